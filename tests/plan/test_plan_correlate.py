"""Plans of the correlate engine: who gets them, and that what they need is there. What they compute, the kernels
themselves show: tests/emulator/test_correlate.py."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from plan.problems import (
    BFLOAT16,
    FLOAT32,
    FORWARD,
    GRAD_INPUT,
    GRAD_WEIGHT,
    H200,
    IEEE,
    TF32,
    TF32X3,
    element_bytes,
    from_row,
)
from plan.profile import few_problems
from plan.tensor_cores import CLASS_OF_DTYPE, HALF, plans_of

INSTANCES = {
    "2x128": (2, 128, 2), "2x128_boxes": (2, 128, 2), "3x128": (3, 128, 2), "3x96": (3, 96, 2),
    "4x64": (4, 64, 2), "5x64": (5, 64, 2), "3x64x3": (3, 64, 3),
}  # taps, input channels, warpgroups  # fmt: skip


def engine_plans(module, problem, direction=GRAD_WEIGHT):
    return plans_of("correlate_sm90a", module, problem | {"direction": direction})


@st.composite
def problems(draw):
    dtype = draw(st.sampled_from(sorted(CLASS_OF_DTYPE)))
    vector = 4 if dtype == FLOAT32 else 8
    stride, groups = draw(st.integers(1, 3)), draw(st.sampled_from([1, 1, 2, 3]))
    kernel = (draw(st.integers(1, 6)), draw(st.integers(1, 9)))
    width = draw(st.one_of(st.integers(1, 40).map(lambda count: vector * count), st.integers(1, 300)))
    padding = (draw(st.integers(0, kernel[0])), draw(st.integers(0, kernel[1] // 2)))
    return from_row(
        draw(st.integers(1, 300)), groups * draw(st.integers(1, 300)), groups * draw(st.integers(1, 300)),
        (draw(st.integers(1, 70)), width), kernel, stride, padding, 0, groups, draw(st.integers(1, 2)),
        dtype=dtype, precision=CLASS_OF_DTYPE[dtype], channels_last=draw(st.booleans()),
    )  # fmt: skip


def whole(number: int) -> int:
    return math.ceil(number / 256) * 256


@few_problems
@given(problem=problems())
def test_candidates_are_legal(plan_module, problem):
    element, (h, w) = element_bytes(problem), (problem["h"], problem["w"])
    assume(min(h["out"], w["out"]) > 0 and min(w["in"], w["out"], problem["c_in"], problem["c_out"]) > 1)
    weights = problem["c_in"] * problem["c_out"] // problem["groups"] * h["kernel"] * w["kernel"]
    channels_last = problem["x_stride"][1] == 1 and problem["x_stride"][3] != 1
    for plan in engine_plans(plan_module, problem):
        name = plan["kernel"].split("_", 2)[2]
        pixels = name.startswith("pixels_")
        taps, channels, warpgroups = INSTANCES[re.sub(r"^(stride2|pixels)_", "", name)]
        assert plan["threads"] == 128 * (warpgroups + 1)
        parts = plan["co_parts"] * plan["kh_parts"] * plan["kw_parts"]
        of_group = problem["c_out"] // problem["groups"]
        assert parts in {warpgroups, 2 * warpgroups, 4 * warpgroups}
        co_rows = 64 * warpgroups // parts
        assert co_rows == 64 or of_group <= co_rows
        if pixels and element == 2:  # of whose parts products are told one distance, from a row of taps to the next
            assert co_rows == 64 or (plan["co_parts"] == 1 and plan["kh_parts"] % (64 // co_rows) == 0)
        step = 32 // element
        assert plan["columns"] % (8 if pixels else step) == 0
        if not pixels:
            assert plan["rows"] * plan["columns"] >= 2 * step  # a stage is given back behind its second step
        else:
            assert plan["rows"] * plan["columns"] >= 16  # a step of halves, and two of float32, as of rows
            assert element == 4 or plan["rows"] * plan["columns"] % 16 == 0  # whole steps
        passes = (
            problem["groups"]
            * math.ceil(problem["c_out"] / problem["groups"] / (co_rows * plan["co_parts"]))
            * math.ceil(problem["c_in"] / problem["groups"] / channels)
            * math.ceil(h["kernel"] / plan["kh_parts"])
            * math.ceil(w["kernel"] / (taps * plan["kw_parts"]))
        )
        assert 1 <= plan["images"] <= problem["batch"]
        units = plan["images"] * math.ceil(h["in"] / plan["rows"]) * math.ceil(w["in"] / plan["columns"])
        chunks = math.ceil(units / plan["units_per_chunk"])
        assert plan["num_blocks"] == passes * chunks
        of_x, of_gy = (
            packed_bytes(problem, operand, pixels, plan["images"]) if plan[f"packs_{operand}"] else 0
            for operand in ("x", "gy")
        )
        in_registers = not pixels or element == 4
        of_planes = not (pixels or plan["packs_gy"]) and w["out"] * element % 16 != 0
        of_planes = of_planes and w["in"] % plan["columns"] != 0
        rows_of_bias = 0 if of_planes or (in_registers and taps > 4) else bias_rows(problem, taps)
        if not in_registers:  # CTAs of other input channels take turns
            rows_of_bias *= math.ceil(problem["c_in"] / problem["groups"] / channels)
        assert plan["gives_grad_bias"] == (rows_of_bias > 0)
        slabs = (weights + rows_of_bias * problem["c_out"]) * chunks
        others, rest = divmod(plan["workspace_bytes"] - of_x - of_gy - 4 * slabs, 4 * problem["c_out"])
        assert rest == 0
        assert (others > 0) == (rows_of_bias > 0 and left_out(h) + left_out(w) > 0)
        if of_x + of_gy == 0:
            assert plan["images"] == problem["batch"]
        elif plan["images"] > 1:
            assert of_x + of_gy <= (256 << 20) + 2 * 256
        vector = 16 // element
        channels_x, channels_gy = (problem[name] // problem["groups"] for name in ("c_in", "c_out"))
        if pixels:
            assert channels_last or element == 2
            assert plan["packs_x"] == (not channels_last or channels_x % vector != 0)
            assert plan["packs_gy"] == (not channels_last or channels_gy % vector != 0)
        else:
            assert not channels_last
            assert plan["packs_x"] == (w["in"] % vector != 0)
        # Of a stage at least the input, and grad_output's columns of the pixels alone.
        of_row = plan["columns"] * element
        between = 1 if pixels else w["stride"]
        least = plan["rows"] * of_row * channels + of_row * between * co_rows * plan["co_parts"]
        assert plan["slots"] * least + 32 * plan["slots"] <= plan["shared_bytes"] <= H200[2]
        assert plan["source_on_vectors"] == (not plan["packs_gy"])
        assert plan["result_on_vectors"] == (not plan["packs_x"])


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(("half", "dtype"), [(4, BFLOAT16), (TF32, FLOAT32)])
def test_first_rows_and_columns_are_added_up_apart(plan_module, half, dtype, channels_last):
    """Where they are few of many, and no counted tap has them."""

    def gives(*row, **options) -> bool:
        layer = from_row(*row, precision=half, dtype=dtype, channels_last=channels_last, **options)
        return engine_plans(plan_module, layer | {"direction": GRAD_WEIGHT})[0]["gives_grad_bias"]

    assert gives(8, 64, 64, 256, 3)
    assert gives(8, 64, 64, 256, 3, 2)
    assert not gives(1, 64, 64, 64, 3)
    assert not gives(2560, 64, 64, 14, 3)  # many, but two rows of sixteen
    assert gives(1, 64, 64, 64, 3, 1, 1)
    assert gives(8, 64, 64, 256, 4, 2, 1, 1)
    assert not gives(8, 64, 64, 256, 2, 2, 0, 1)  # the last row and column, which no tap has


def counted_tap(axis) -> int | None:
    """The first of as many neighbouring taps as the stride that have each element of grad_output once, but for some of
    the first ones."""
    if axis["stride"] > 1 and axis["dilation"] > 1:
        return None
    for tap in range(axis["kernel"] - axis["stride"] + 1):
        if tap * axis["dilation"] - axis["padding"] + axis["in"] * axis["stride"] >= axis["out"]:
            return tap
    return None


def left_out(axis) -> int:
    return min(max(0, counted_tap(axis) * axis["dilation"] - axis["padding"]), axis["out"])


def bias_rows(problem, taps: int) -> int:
    """Sums of a channel for the gradient of the bias, of a chunk: of every tap along H and every run of a warp's taps
    along W that are counted. Elements that none of them has are few of many."""
    h, w = problem["h"], problem["w"]
    if counted_tap(h) is None or counted_tap(w) is None:
        return 0
    whole = h["out"] * w["out"]
    rest = whole - (h["out"] - left_out(h)) * (w["out"] - left_out(w))
    is_large = problem["batch"] * problem["c_out"] * whole * element_bytes(problem) >= 64 << 20
    if rest > 0 and not (is_large and 16 * rest <= whole):
        return 0
    return h["stride"] * len({tap // taps for tap in range(counted_tap(w), counted_tap(w) + w["stride"])})


def packed_bytes(problem, operand: str, pixels: bool, images: int) -> int:
    """Rows begin on 16 bytes, or the channels of a group do."""
    vector, side = 16 // element_bytes(problem), "in" if operand == "x" else "out"
    channels, rows, columns = problem[f"c_{side}"], problem["h"][side], problem["w"][side]
    groups = problem["groups"] if pixels else 1
    inner, others = (channels // groups, groups * rows * columns) if pixels else (columns, channels * rows)
    return whole(images * others * math.ceil(inner / vector) * 16)


@pytest.mark.parametrize("dtype", CLASS_OF_DTYPE)
@pytest.mark.parametrize(
    "layer",
    [
        (8, 64, 64, 512, 3, 1, 1), (16, 128, 64, 128, 4, 2, 1), (8, 256, 128, 40, 3, 2, 1, 1), (1, 256, 256, 768, 2, 2),
        (64, 256, 64, 64, 2, 2), (8, 256, 128, 64, 2, 2), (4, 256, 128, 56, 4, 4),
    ],
    ids=str,
)  # fmt: skip
def test_layers_of_many_channels_get_it(plan_module, layer, dtype):
    problem = from_row(*layer, dtype=dtype, precision=CLASS_OF_DTYPE[dtype]) | {"direction": GRAD_WEIGHT}
    assert plan_module.choose(problem, H200)["kernel"].startswith("correlate_")


def test_rows_between_vectors(plan_module):
    """Of grad_output, where no tap reads beside its row, they are parts of planes that are whole vectors. Others are
    packed, up to 2^28 elements of an image."""
    tf32, half = {"precision": TF32}, {"dtype": BFLOAT16, "precision": HALF}

    def packed(*row, **options) -> set[tuple[bool, bool]]:
        return {(plan["packs_x"], plan["packs_gy"]) for plan in engine_plans(plan_module, from_row(*row, **options))}

    assert packed(2, 64, 64, 64, 3, 1, 0, **tf32) == {(False, False)}  # 66 x 66
    assert packed(2, 64, 64, 66, 3, 1, 1, **tf32) == {(True, True)}  # 66 x 66, with padding
    assert packed(2, 64, 64, 64, (5, 4), 1, (1, 1), **tf32) == {(False, True)}  # 66 x 65, with padding
    assert packed(2, 64, 64, 64, 2, 1, 0, **tf32) == {(False, True)}  # 65 x 65
    of_pixels = {(True, True)}  # halves of which are packed
    assert packed(2, 64, 64, 64, 3, 1, 0, **half) == {(False, True)} | of_pixels  # 66 x 66 halves
    assert packed(2, 64, 64, 64, (5, 3), 1, 0, **half) == {(False, False)} | of_pixels  # 68 x 66
    assert packed(2, 64, 64, 63, 3, 1, 1, **tf32) == {(True, True)}
    assert packed(4, 64, 64, 2047, 3, 1, 1, **tf32) == {(True, True)}  # a little less than 2^28 of an image
    assert packed(4, 64, 64, 2049, 3, 1, 1, **tf32) == set()


def test_stages_of_transposed_pixels_have_two_steps(plan_module):
    """With two slots the third stage would be waited for before the first is given back. Taps that lie far from each
    other leave room for no more."""
    far = (2, 64, 64, (4, 8), (3, 5), (3, 1), 0, 0, 1, (1, 62))
    plans = engine_plans(plan_module, from_row(*far, precision=TF32, channels_last=True))
    assert 2 in {plan["slots"] for plan in plans}
    assert min(plan["rows"] * plan["columns"] for plan in plans) >= 16


def test_expanded_tensors_are_packed(plan_module):
    problem = from_row(2, 64, 64, 32, 3, 1, 1, precision=TF32) | {"y_stride": [0, 0, 0, 0]}
    assert {(plan["packs_x"], plan["packs_gy"]) for plan in engine_plans(plan_module, problem)} == {(False, True)}


def test_large_tensors_are_packed_in_parts(plan_module):
    problem = from_row(8, 64, 64, 1023, 3, 1, 1, precision=TF32)
    assert {plan["images"] for plan in engine_plans(plan_module, problem)} == {1}
    small = from_row(8, 64, 64, 127, 3, 1, 1, precision=TF32)
    assert {plan["images"] for plan in engine_plans(plan_module, small)} == {8}


@pytest.mark.parametrize("change", ["class", "exact", "forward", "grad_input"])
def test_other_problems_get_none(plan_module, change):
    tf32 = {"dtype": FLOAT32, "precision": TF32}
    layer = (2, 64, 64, 32, 3, 1, 1)
    rows = {
        "class": from_row(*layer, dtype=FLOAT32, precision=TF32X3),
        "exact": from_row(*layer, dtype=FLOAT32, precision=IEEE),
        "forward": from_row(*layer, **tf32),
        "grad_input": from_row(*layer, **tf32),
    }
    direction = {"forward": FORWARD, "grad_input": GRAD_INPUT}.get(change, GRAD_WEIGHT)
    assert not engine_plans(plan_module, rows[change], direction)
    assert engine_plans(plan_module, from_row(*layer, **tf32))


@pytest.mark.parametrize("layer", [(2, 64, 64, 32, 3, 3, 0, 1), (2, 64, 64, 32, 3, 1, 2, 0, 1, 2)], ids=str)
def test_forms(plan_module, layer):
    """Rows of halves have strides of 1 and 2 and no dilation along W; in channels_last pixels lie as they should."""
    tf32, half = {"dtype": FLOAT32, "precision": TF32}, {"dtype": BFLOAT16, "precision": HALF}

    def forms(**options) -> set[bool]:
        return {"_pixels_" in plan["kernel"] for plan in engine_plans(plan_module, from_row(*layer, **options))}

    assert forms(**tf32) == {False}
    assert forms(**half) == {True}
    assert forms(channels_last=True, **tf32) == forms(channels_last=True, **half) == {True}

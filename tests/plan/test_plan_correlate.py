"""Plans of the correlate engine: who gets them, and that what they need is there. What they compute, the kernels
themselves show: tests/emulator/test_correlate.py."""

from __future__ import annotations

import math

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
    "2x128": (2, 128, 2), "2x128_boxes": (2, 128, 2), "3x96": (3, 96, 2), "4x64": (4, 64, 2), "5x64": (5, 64, 2),
    "3x64x3": (3, 64, 3),
}  # taps, input channels, warpgroups  # fmt: skip


def engine_plans(module, problem, direction=GRAD_WEIGHT):
    return plans_of("correlate_sm90a", module, problem | {"direction": direction})


@st.composite
def problems(draw):
    dtype = draw(st.sampled_from(sorted(CLASS_OF_DTYPE)))
    vector = 4 if dtype == FLOAT32 else 8
    stride, groups = draw(st.integers(1, 3)), draw(st.sampled_from([1, 1, 3]))
    kernel = (draw(st.integers(1, 6)), draw(st.integers(1, 9)))
    width = draw(st.one_of(st.integers(1, 40).map(lambda count: vector * count), st.integers(1, 300)))
    padding = (draw(st.integers(0, kernel[0])), draw(st.integers(0, kernel[1] // 2)))
    return from_row(
        draw(st.integers(1, 300)), groups * draw(st.integers(1, 300)), groups * draw(st.integers(1, 300)),
        (draw(st.integers(1, 70)), width), kernel, stride, padding, 0, groups, draw(st.integers(1, 2)),
        dtype=dtype, precision=CLASS_OF_DTYPE[dtype],
    )  # fmt: skip


def whole(number: int) -> int:
    return math.ceil(number / 256) * 256


@few_problems
@given(problem=problems())
def test_candidates_are_legal(plan_module, problem):
    element, (h, w) = element_bytes(problem), (problem["h"], problem["w"])
    assume(min(h["out"], w["out"]) > 0)
    weights = problem["c_in"] * problem["c_out"] // problem["groups"] * h["kernel"] * w["kernel"]
    for plan in engine_plans(plan_module, problem):
        taps, channels, warpgroups = INSTANCES[plan["kernel"].split("_", 2)[2].removeprefix("stride2_")]
        assert plan["threads"] == 128 * (warpgroups + 1)
        assert plan["co_parts"] * plan["kh_parts"] * plan["kw_parts"] == warpgroups
        assert plan["rows"] * plan["steps"] >= 2  # a stage is given back behind its second step
        passes = (
            problem["groups"]
            * math.ceil(problem["c_out"] / problem["groups"] / (64 * plan["co_parts"]))
            * math.ceil(problem["c_in"] / problem["groups"] / channels)
            * math.ceil(h["kernel"] / plan["kh_parts"])
            * math.ceil(w["kernel"] / (taps * plan["kw_parts"]))
        )
        units = (
            problem["batch"] * math.ceil(h["in"] / plan["rows"]) * math.ceil(w["in"] / (plan["steps"] * 32 // element))
        )
        chunks = math.ceil(units / plan["units_per_chunk"])
        assert plan["num_blocks"] == passes * chunks
        assert 4 * weights * chunks <= 256 << 20
        vector, images = 16 // element, problem["batch"]
        rows_of_x, rows_of_gy = images * problem["c_in"] * h["in"], images * problem["c_out"] * h["out"]
        of_x = whole(rows_of_x * math.ceil(w["in"] / vector) * 16) if plan["packs_x"] else 0
        of_gy = whole(rows_of_gy * math.ceil(w["out"] / vector) * 16) if plan["packs_gy"] else 0
        assert max(of_x, of_gy) <= element << 28
        assert plan["workspace_bytes"] == of_x + of_gy + 4 * weights * chunks
        assert plan["packs_x"] == (w["in"] % vector != 0)
        # Of a stage at least the input, and grad_output's columns of the pixels alone.
        of_row = plan["steps"] * 32
        least = plan["rows"] * of_row * channels + of_row * w["stride"] * 64 * plan["co_parts"]
        assert plan["slots"] * least + 16 * plan["slots"] <= plan["shared_bytes"] <= H200[2]
        assert plan["source_on_vectors"] == (not plan["packs_gy"])
        assert plan["result_on_vectors"] == (not plan["packs_x"])


@pytest.mark.parametrize("dtype", CLASS_OF_DTYPE)
@pytest.mark.parametrize(
    "layer", [(8, 64, 64, 512, 3, 1, 1), (16, 128, 64, 128, 4, 2, 1), (8, 256, 128, 40, 3, 2, 1, 1)], ids=str
)
def test_layers_of_many_channels_get_it(plan_module, layer, dtype):
    problem = from_row(*layer, dtype=dtype, precision=CLASS_OF_DTYPE[dtype]) | {"direction": GRAD_WEIGHT}
    assert plan_module.choose(problem, H200)["kernel"].startswith("correlate_")


def test_rows_between_vectors(plan_module):
    """Of grad_output, where no tap reads beside its row, they are parts of planes that are whole vectors. Others are
    packed, up to 2^28 elements."""
    tf32, half = {"precision": TF32}, {"dtype": BFLOAT16, "precision": HALF}

    def packed(*row, **options) -> set[tuple[bool, bool]]:
        return {(plan["packs_x"], plan["packs_gy"]) for plan in engine_plans(plan_module, from_row(*row, **options))}

    assert packed(2, 64, 64, 64, 3, 1, 0, **tf32) == {(False, False)}  # 66 x 66
    assert packed(2, 64, 64, 64, (5, 4), 1, (1, 1), **tf32) == {(False, True)}  # 66 x 65, with padding
    assert packed(2, 64, 64, 64, 2, 1, 0, **tf32) == {(False, True)}  # 65 x 65
    assert packed(2, 64, 64, 64, 3, 1, 0, **half) == {(False, True)}  # 66 x 66 halves
    assert packed(2, 64, 64, 64, (5, 3), 1, 0, **half) == {(False, False)}  # 68 x 66
    assert packed(2, 64, 64, 63, 3, 1, 1, **tf32) == {(True, True)}
    assert packed(4, 64, 64, 1023, 3, 1, 1, **tf32) == {(True, True)}  # a little less than 2^28
    assert packed(4, 64, 64, 1025, 3, 1, 1, **tf32) == set()


@pytest.mark.parametrize(
    "change", ["class", "exact", "channels_last", "forward", "grad_input", "stride", "dilation", "expanded"]
)
def test_other_problems_get_none(plan_module, change):
    tf32, half = {"dtype": FLOAT32, "precision": TF32}, {"dtype": BFLOAT16, "precision": HALF}
    layer = (2, 64, 64, 32, 3, 1, 1)
    rows = {
        "class": from_row(*layer, dtype=FLOAT32, precision=TF32X3),
        "exact": from_row(*layer, dtype=FLOAT32, precision=IEEE),
        "channels_last": from_row(*layer, channels_last=True, **tf32),
        "forward": from_row(*layer, **tf32),
        "grad_input": from_row(*layer, **tf32),
        "stride": from_row(2, 64, 64, 32, 3, 3, 0, 1, **half),
        "dilation": from_row(2, 64, 64, 32, 3, 1, 2, 0, 1, 2, **half),
        "expanded": from_row(*layer, **tf32) | {"y_stride": [0, 0, 0, 0]},
    }
    direction = {"forward": FORWARD, "grad_input": GRAD_INPUT}.get(change, GRAD_WEIGHT)
    assert not engine_plans(plan_module, rows[change], direction)
    assert engine_plans(plan_module, from_row(*layer, **tf32))
    assert engine_plans(plan_module, from_row(2, 64, 64, 32, 3, 1, 2, 0, 1, 2, **tf32))  # dilated

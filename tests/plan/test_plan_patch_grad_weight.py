"""The patch engine's plans for the gradient of the weight: legal, exact when executed as patch_sm90a/grad_weight.cuh
does, and within what their layout says of shared memory."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from plan.exact import assert_exact_grad_weight
from plan.problems import FLOAT32, FORWARD, GRAD_INPUT, GRAD_WEIGHT, H200, IEEE, TF32, TF32X3, element_bytes, from_row
from plan.profile import few_problems
from plan.tensor_cores import CLASS_OF_DTYPE, plans_of

KERNELS = [(2, 2), (1, 2), (3, 2), (4, 4), (2, 4)]


def engine_plans(module, problem, device=H200):
    plans = plans_of("patch_sm90a", module, problem | {"direction": GRAD_WEIGHT}, device)
    assert all("_weight_" in plan["kernel"] for plan in plans)
    return plans


def assert_weight_is_legal(module, problem, plan, layout, shared=H200[2]):
    element, columns = element_bytes(problem), module.patch_weight_columns[plan["instance"]]
    assert layout["ci_parts"] * layout["kh_parts"] == 2  # warpgroups
    assert layout["steps"] * 32 == layout["pixels"] * element
    assert layout["steps"] >= 2  # a stage is given back behind its second
    # Boxes of the input: rows of 128 bytes that begin where the swizzle does.
    assert layout["boxes"] * 128 >= layout["pixels"] * element
    assert layout["gy_begin"] == layout["ci_parts"] * layout["boxes"] * 128 * columns
    assert layout["gy_begin"] % 1024 == layout["stage_bytes"] % 1024 == 0
    # Boxes of grad_output: every channel has all taps of all pixels, and is read in whole vectors.
    assert layout["pitch"] == layout["rows"] * layout["columns"] * element
    assert layout["pitch"] >= layout["pixels"] * layout["kernel_w"] * element
    assert layout["pitch"] % 16 == 0
    assert max(layout["columns"], layout["rows"]) <= 256
    of_gy = layout["kh_parts"] * module.patch_weight_rows * layout["pitch"]
    assert layout["gy_begin"] + of_gy <= layout["stage_bytes"]
    assert layout["slots"] * layout["stage_bytes"] == layout["barriers_begin"]
    assert layout["barriers_begin"] + 16 * layout["slots"] <= layout["shared_bytes"] <= shared
    assert layout["chunks"] * layout["units_per_chunk"] >= layout["num_units"]
    assert (layout["chunks"] - 1) * layout["units_per_chunk"] < layout["num_units"]
    assert layout["num_blocks"] == layout["passes"] * layout["chunks"]


def box_of(tensor, begin, size):
    """A copy of a box of a tensor, with zeros for what is outside."""
    result = np.zeros(size)
    inside = [slice(max(b, 0), max(min(b + s, n), 0)) for b, s, n in zip(begin, size, tensor.shape, strict=True)]
    if all(one.start < one.stop for one in inside):
        place = tuple(slice(one.start - b, one.stop - b) for one, b in zip(inside, begin, strict=True))
        result[place] = tensor[tuple(inside)]
    return result


def run(module, problem, plan, layout, gy, x):
    """The slabs, and how often each of a slab's weights was written."""
    columns, rows_of_tile = module.patch_weight_columns[plan["instance"]], module.patch_weight_rows
    groups, (batch, c_in, height, width) = problem["groups"], x.shape
    kernel_h, kernel_w = layout["kernel_h"], layout["kernel_w"]
    of_box, step = 128 // element_bytes(problem), 32 // element_bytes(problem)
    by_rows = x.reshape(batch, c_in, 1, height * width) if layout["whole_rows"] else x
    by_taps = gy.reshape(batch, gy.shape[1], height, kernel_h, -1)
    shape = (c_in, layout["group_co"], kernel_h, kernel_w)
    slabs = np.full((layout["chunks"], *shape), np.nan)
    writes = np.zeros(shape, int)
    for block in range(layout["num_blocks"]):
        digits, rest = [], block
        for count in (layout["co_tiles"], layout["ci_tiles"], layout["kh_tiles"], groups):
            rest, digit = divmod(rest, count)
            digits.append(digit)
        co, ci = digits[0] * rows_of_tile, digits[1] * layout["ci_parts"] * columns
        kh, group, chunk = digits[2] * layout["kh_parts"], digits[3], rest
        sums = np.zeros((layout["kh_parts"], kernel_w, rows_of_tile, layout["ci_parts"] * columns))
        first = chunk * layout["units_per_chunk"]
        for unit in range(first, min(first + layout["units_per_chunk"], layout["num_units"])):
            outer, strip = divmod(unit, layout["strips"])
            image, row_unit = divmod(outer, layout["row_units"])
            row = row_unit * layout["rows"]
            pixel = row_unit * layout["pixels"] if layout["whole_rows"] else strip * layout["pixels"]
            of_gy = [
                box_of(
                    by_taps[image],
                    (group * layout["group_co"] + co, row, kh + part, strip * layout["pixels"] * kernel_w),
                    (rows_of_tile, layout["rows"], 1, layout["columns"]),
                ).reshape(rows_of_tile, -1)
                for part in range(layout["kh_parts"])
            ]
            of_x = np.concatenate([
                box_of(
                    by_rows[image],
                    (group * layout["group_ci"] + ci, 0 if layout["whole_rows"] else row, pixel + box * of_box),
                    (layout["ci_parts"] * columns, 1, of_box),
                )[:, 0]
                for box in range(layout["boxes"])
            ], axis=1)  # fmt: skip
            for first_pixel in range(0, layout["steps"] * step, step):
                pixels = np.arange(first_pixel, first_pixel + step)
                for part in range(layout["kh_parts"]):
                    for tap in range(kernel_w):
                        sums[part, tap] += of_gy[part][:, pixels * kernel_w + tap] @ of_x[:, pixels].T
        ends = min(co + rows_of_tile, layout["group_co"]), min(ci + sums.shape[3], layout["group_ci"])
        channels = slice(group * layout["group_ci"] + ci, group * layout["group_ci"] + ends[1])
        for part in range(min(layout["kh_parts"], kernel_h - kh)):
            found = sums[part, :, : ends[0] - co, : ends[1] - ci].transpose(2, 1, 0)
            slabs[chunk, channels, co : ends[0], kh + part] = found
            writes[channels, co : ends[0], kh + part] += chunk == 0
    return slabs, writes


@st.composite
def patches(draw):
    """A problem whose operands boxes may describe, of small images."""
    dtype = draw(st.sampled_from(sorted(CLASS_OF_DTYPE)))
    kernel = draw(st.sampled_from(KERNELS))
    groups = draw(st.sampled_from([1, 1, 2]))
    size = (draw(st.integers(1, 6)), draw(st.sampled_from([2, 4, 6, 8, 12, 14, 16, 24, 40])))
    return from_row(
        draw(st.integers(1, 2)), groups * draw(st.sampled_from([1, 20, 70])),
        groups * draw(st.sampled_from([1, 5, 66])),
        size, kernel, kernel, 0, 0, groups, dtype=dtype, precision=CLASS_OF_DTYPE[dtype],
    ) | {"direction": GRAD_WEIGHT}  # fmt: skip


@few_problems
@given(problem=patches(), data=st.data())
def test_any_tile_is_exact(plan_module, problem, data):
    """Tiles that divide nothing too, not only those that the planner would choose."""
    step = 32 // element_bytes(problem)
    number = sorted(CLASS_OF_DTYPE).index(problem["dtype"])
    names = {FLOAT32: 0}.get(problem["dtype"], 3 if number == 2 else 6)
    quads = problem["w"]["kernel"] == 4
    rows = data.draw(st.integers(1, 4))
    pixels = rows * problem["w"]["in"] if rows > 1 else step * data.draw(st.integers(2, 5))
    plan = {
        "instance": names + (2 if quads else data.draw(st.integers(0, 1))), "ci_parts": data.draw(st.integers(1, 2)),
        "rows": rows, "pixels": pixels, "slots": 2, "units_per_chunk": data.draw(st.integers(1, 9)),
    }  # fmt: skip
    plan["kh_parts"] = 2 // plan["ci_parts"]
    layout = plan_module.patch_grad_weight_layout(problem, plan)
    assume(layout is not None)
    assert_weight_is_legal(plan_module, problem, plan, layout, shared=1 << 22)
    assert_exact_grad_weight(problem, partial(run, plan_module, problem, plan, layout))


@few_problems
@given(problem=patches())
def test_candidates_are_legal(plan_module, problem):
    for plan in engine_plans(plan_module, problem):
        layout = plan_module.patch_grad_weight_layout(problem, plan)
        assert_weight_is_legal(plan_module, problem, plan, layout)
        assert (plan["shared_bytes"], plan["num_blocks"]) == (layout["shared_bytes"], layout["num_blocks"])
        assert plan["threads"] == layout["threads"] == 384
        weights = problem["c_in"] * layout["group_co"] * layout["kernel_h"] * layout["kernel_w"]
        of_bias = layout["kernel_h"] * problem["c_out"]
        assert plan["workspace_bytes"] == 4 * (weights + of_bias) * layout["chunks"]
        assert plan["gives_grad_bias"]
        assert plan["source_on_vectors"]
        assert plan["result_on_vectors"]


@pytest.mark.parametrize("dtype", CLASS_OF_DTYPE)
@pytest.mark.parametrize(
    "layer", [(1, 256, 256, 768, 2, 2), (64, 256, 64, 64, 2, 2), (8, 256, 128, 64, 2, 2), (4, 256, 128, 56, 4, 4)]
)
def test_layers_of_many_channels_get_it(plan_module, layer, dtype):
    problem = from_row(*layer, dtype=dtype, precision=CLASS_OF_DTYPE[dtype]) | {"direction": GRAD_WEIGHT}
    assert re.match(r"patch_\w+_weight_|correlate_", plan_module.choose(problem, H200)["kernel"])


def test_rows_between_vectors_are_copied_as_images(plan_module):
    """Of 14 pixels: those of the input begin between 16 bytes, images do not."""
    problem = from_row(100, 256, 256, 14, 2, 2, dtype=FLOAT32, precision=TF32)
    plans = engine_plans(plan_module, problem)
    assert plans
    assert all(plan["rows"] > 1 for plan in plans)


@pytest.mark.parametrize(
    "change",
    ["class", "exact", "channels_last", "forward", "grad_input", "padding", "kernel", "width", "rows", "expanded"],
)
def test_other_problems_get_none(plan_module, change):
    tf32 = {"dtype": FLOAT32, "precision": TF32}
    layer = (2, 64, 64, 16, 2, 2)
    rows = {
        "class": from_row(*layer, dtype=FLOAT32, precision=TF32X3),
        "exact": from_row(*layer, dtype=FLOAT32, precision=IEEE),
        "channels_last": from_row(*layer, channels_last=True, **tf32),
        "forward": from_row(*layer, **tf32),
        "grad_input": from_row(*layer, **tf32),
        "padding": from_row(2, 64, 64, 16, 2, 2, 1, **tf32),
        "kernel": from_row(2, 64, 64, 16, 3, 3, **tf32),
        "width": from_row(2, 64, 64, (16, 17), 2, 2, **tf32),  # rows of grad_output are no vectors
        "rows": from_row(2, 64, 64, (3, 14), 2, 2, **tf32),  # nor images of the input
        "expanded": from_row(*layer, **tf32) | {"y_stride": [0, 0, 0, 0]},
    }
    direction = {"forward": FORWARD, "grad_input": GRAD_INPUT}.get(change, GRAD_WEIGHT)
    plans = plans_of("patch_sm90a", plan_module, rows[change] | {"direction": direction}, H200)
    assert not [plan for plan in plans if "_weight_" in plan["kernel"]]
    assert engine_plans(plan_module, from_row(*layer, **tf32))

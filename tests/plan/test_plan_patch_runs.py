"""The patch engine's plans for runs of grad_output: legal, exact when executed as patch_sm90a/runs.cuh does."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from plan.exact import assert_exact
from plan.legal import assert_launch_is_of
from plan.problems import (
    FLOAT32,
    FORWARD,
    GRAD_INPUT,
    GRAD_WEIGHT,
    H200,
    IEEE,
    TF32,
    TF32X3,
    from_row,
)
from plan.profile import few_problems
from plan.tensor_cores import CLASS_OF_DTYPE, plans_of

KERNELS = [(1, 2), (2, 2), (4, 2), (1, 4), (2, 4), (4, 4), (2, 8)]
SUMS = 128 * 4  # bytes of a channel's


def engine_plans(module, problem, device=H200):
    return [plan for plan in plans_of("patch_sm90a", module, problem, device) if "_runs_" in plan["kernel"]]


def element_of(problem):
    return 4 if problem["dtype"] == FLOAT32 else 2


def assert_runs_are_legal(module, problem, plan, layout, shared=H200[2]):
    element, kernel_w = element_of(problem), problem["w"]["kernel"]
    taps, height = layout["kernel_h"] * kernel_w, problem["h"]["in"]
    assert layout["rows"] * layout["by_width"] <= module.runs_positions
    assert layout["total_rows"] * layout["by_width"] == layout["positions"]
    assert (1 << layout["patch_log2"], 1 << layout["columns_log2"]) == (taps * element, kernel_w * element)
    assert layout["splits"] == 1 << layout["splits_log2"]
    # A stage is 128 bytes of K, of whole channels of the source.
    assert layout["stage_channels"] * taps == layout["stage_elements"] == 128 // element
    assert layout["num_stages"] * layout["stage_channels"] == problem["c_out"]
    assert layout["num_stages"] >= layout["splits"]
    if layout["boxes"]:  # these are some rows of an image, or whole images, as a tensor map can have them
        assert layout["line_bytes"] % 16 == 0
        assert max(problem["w"]["out"], min(layout["rows"], height) * layout["kernel_h"]) <= 256
        assert problem["batch"] == 1 or height % layout["rows"] == 0 or layout["rows"] % height == 0
        assert layout["channel_pitch"] == layout["rows"] * layout["row_bytes"]
    # Copies are of multiples of 16 bytes; boxes of weights begin where their swizzle does.
    assert layout["row_bytes"] == layout["kernel_h"] * layout["line_bytes"]
    assert layout["row_bytes"] % 16 == layout["channel_pitch"] % 16 == 0
    assert layout["channel_pitch"] >= layout["rows"] * layout["row_bytes"]
    assert layout["weights_bytes"] == 128 * plan["channels"]
    assert layout["weights_bytes"] % 1024 == layout["source_bytes"] % 128 == 0
    assert layout["source_bytes"] >= layout["stage_channels"] * layout["channel_pitch"]
    pipeline = layout["slots"] * (layout["weights_bytes"] + layout["source_bytes"])
    staged = plan["channels"] // plan["splits"] * module.runs_staged_pitch * 4
    assert max(pipeline, staged) <= layout["sums_begin"]
    assert layout["sums_begin"] % 16 == layout["barriers_begin"] % 16 == 0
    assert layout["sums_bytes"] == SUMS * plan["channels"] // plan["splits"] * (plan["splits"] - 1)
    assert layout["sums_begin"] + layout["sums_bytes"] <= layout["barriers_begin"]
    assert layout["barriers_begin"] + 16 * layout["slots"] + 8 <= layout["shared_bytes"] <= shared
    assert layout["slots"] >= 2
    assert layout["threads"] == (384 if plan["channels"] == 256 else 288)


def first_operand(problem, layout, grad_output, first_row, stage):
    """[position, K] of a stage, from its runs as they lie in shared memory."""
    element, rows = element_of(problem), min(layout["rows"], layout["total_rows"] - first_row)
    channels, width = layout["stage_channels"], layout["by_width"]
    line, row_elements = layout["line_bytes"] // element, layout["row_bytes"] // element
    pitch = layout["channel_pitch"] // element
    shared = np.full(layout["source_bytes"] // element, np.nan)
    for channel in range(channels):
        for row in range(rows):
            image, of_image = divmod(first_row + row, layout["by_rows"])
            lines = grad_output[image, stage * channels + channel].reshape(-1, row_elements)
            begin = channel * pitch + row * row_elements
            shared[begin : begin + row_elements] = lines[of_image]
    k, kernel_w = np.arange(128 // element), problem["w"]["kernel"]
    taps = layout["kernel_h"] * kernel_w
    of_k = k // taps * pitch + k % taps // kernel_w * line + k % kernel_w
    position = np.arange(rows * width)
    of_position = position // width * row_elements + position % width * kernel_w
    return shared[of_position[:, None] + of_k]


def run(module, problem, plan, layout, grad_output, weight):
    """The results, and how often each was written."""
    c_in, of_stage = problem["c_in"], 128 // element_of(problem)
    matrix = weight.reshape(c_in, -1)
    size = [problem["batch"], c_in, problem["h"]["in"], problem["w"]["in"]]
    result, writes = np.full(size, np.nan), np.zeros(size, int)
    channels, parts = plan["channels"], layout["splits"]
    for tile in range(layout["num_blocks"] // parts):
        row_tile, channel_tile = divmod(tile, layout["channel_tiles"])
        first_row, first_channel = row_tile * layout["rows"], channel_tile * channels
        sums = 0
        for part in range(parts):
            begin, end = (layout["num_stages"] * p // parts for p in (part, part + 1))
            for stage in range(begin, end):
                a = first_operand(problem, layout, grad_output, first_row, stage)
                b = matrix[first_channel : first_channel + channels, stage * of_stage : (stage + 1) * of_stage]
                sums = sums + a @ b.T
        for part in range(parts):
            share = channels // parts
            mine = slice(part * share, min((part + 1) * share, c_in - first_channel))
            for of_tile, values in enumerate(sums):
                image, place = divmod(first_row * layout["by_width"] + of_tile, layout["by_image"])
                row, column = divmod(place, layout["by_width"])
                of_result = slice(first_channel + mine.start, first_channel + max(mine.start, mine.stop))
                result[image, of_result, row, column] = values[mine]
                writes[image, of_result, row, column] += 1
    return result, writes


@st.composite
def patches(draw):
    """A problem that the kernels serve, of small images."""
    dtype = draw(st.sampled_from(sorted(CLASS_OF_DTYPE)))
    element = 4 if dtype == FLOAT32 else 2
    kernel = draw(st.sampled_from(KERNELS))
    unit = 128 // element // (kernel[0] * kernel[1])  # channels of a stage
    c_out = unit * draw(st.integers(1, max(1, 40 // unit)))
    copied = 16 // element // np.gcd(16 // element, kernel[0] * kernel[1])  # positions of a row are whole copies
    size = (draw(st.integers(1, 9)), int(copied) * draw(st.integers(1, 20 // int(copied))))
    return from_row(
        draw(st.integers(1, 3)), draw(st.integers(1, 150)), c_out, size, kernel, kernel, 0,
        dtype=dtype, precision=CLASS_OF_DTYPE[dtype],
    ) | {"direction": GRAD_INPUT}  # fmt: skip


@few_problems
@given(
    problem=patches(),
    channels=st.sampled_from([64, 128, 256]),
    rows=st.integers(1, 12),
    parts=st.sampled_from([1, 2, 4, 8]),
    slots=st.integers(2, 4),
)
def test_any_tile_is_exact(plan_module, problem, channels, rows, parts, slots):
    """Tiles that divide nothing too, not only those that the planner would choose."""
    plan = {"instance": 0, "channels": channels, "rows": rows, "splits": parts, "slots": slots}
    layout = plan_module.patch_runs_layout(problem, plan)
    assume(layout is not None)
    assert_runs_are_legal(plan_module, problem, plan, layout, shared=1 << 20)
    assert_exact(problem, partial(run, plan_module, problem, plan, layout))


@few_problems
@given(problem=patches())
def test_candidates_are_legal(plan_module, problem):
    plans = engine_plans(plan_module, problem)
    assert plans
    for plan in plans:
        layout = plan_module.patch_runs_layout(problem, plan)
        assert_runs_are_legal(plan_module, problem, plan, layout)
        assert_launch_is_of(layout, plan, H200)
        assert plan["workspace_bytes"] == plan["packed_bytes"] == 0
        ctas = -(-plan["num_blocks"] // H200[1])  # of an SM
        assert plan["splits"] == 1 or ctas <= (2 if plan["channels"] == 64 else 1)


@pytest.mark.parametrize(("columns", "boxes"), [(128, True), (256, True), (260, False)])
def test_lines_longer_than_a_box_are_copied(plan_module, columns, boxes):
    problem = from_row(1, 64, 64, (4, columns // 4), (1, 4), (1, 4), precision=TF32) | {"direction": GRAD_INPUT}
    plans = engine_plans(plan_module, problem)
    assert plans
    assert {bool(plan_module.patch_runs_layout(problem, plan)["boxes"]) for plan in plans} == {boxes}


@pytest.mark.parametrize("dtype", CLASS_OF_DTYPE)
@pytest.mark.parametrize("layer", [(1, 256, 64, 64, 2, 2), (1, 256, 256, 37, 4, 4), (1, 48, 48, 37, 4, 4)])
def test_small_layers_get_it(plan_module, layer, dtype):
    problem = from_row(*layer, dtype=dtype, precision=CLASS_OF_DTYPE[dtype]) | {"direction": GRAD_INPUT}
    assert "_runs_" in plan_module.choose(problem, H200)["kernel"]


@pytest.mark.parametrize("dtype", CLASS_OF_DTYPE)
@pytest.mark.parametrize("layer", [(8, 128, 64, 256, 2, 2), (1, 768, 1024, 48, 2, 2)])
def test_large_layers_do_not(plan_module, layer, dtype):
    problem = from_row(*layer, dtype=dtype, precision=CLASS_OF_DTYPE[dtype]) | {"direction": GRAD_INPUT}
    assert "_runs_" not in plan_module.choose(problem, H200)["kernel"]


@pytest.mark.parametrize(
    "change",
    [
        "class", "exact", "channels_last", "forward", "grad_weight", "groups", "stages", "padding", "kernel", "wide",
        "expanded", "lines",
    ],
)  # fmt: skip
def test_other_layers_get_none(plan_module, change):
    tf32 = {"dtype": FLOAT32, "precision": TF32}
    directions = {"forward": FORWARD, "grad_weight": GRAD_WEIGHT}
    rows = {
        "class": from_row(1, 64, 64, 16, 2, 2, dtype=FLOAT32, precision=TF32X3),
        "exact": from_row(1, 64, 64, 16, 2, 2, dtype=FLOAT32, precision=IEEE),
        "channels_last": from_row(1, 64, 64, 16, 2, 2, channels_last=True, **tf32),
        "forward": from_row(1, 64, 64, 16, 2, 2, **tf32),
        "grad_weight": from_row(1, 64, 64, 16, 2, 2, **tf32),
        "groups": from_row(1, 64, 64, 16, 2, 2, 0, 0, 2, **tf32),
        "stages": from_row(1, 64, 36, 16, 2, 2, **tf32),  # of eight channels
        "padding": from_row(1, 64, 64, 16, 4, 4, 1, **tf32),
        "kernel": from_row(1, 64, 64, 16, 3, 3, **tf32),
        "wide": from_row(1, 64, 64, (4, 130), 2, 2, **tf32),
        "expanded": from_row(1, 64, 64, 16, 2, 2, **tf32) | {"y_stride": [0, 0, 32, 1]},
        "lines": from_row(1, 64, 64, (2, 1), (1, 2), (1, 2), **tf32),  # of 8 bytes, of channels of 16
    }
    assert not engine_plans(plan_module, rows[change] | {"direction": directions.get(change, GRAD_INPUT)})

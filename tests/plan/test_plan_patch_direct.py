"""The patch engine's plans for weights as they are: legal, exact when executed as patch_sm90a/direct.cuh does."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from plan.exact import assert_exact
from plan.problems import (
    FLOAT32,
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

KERNELS = [(2, 2), (4, 2), (1, 4), (3, 4), (4, 4), (2, 8)]


def engine_plans(module, problem, device=H200):
    return [plan for plan in plans_of("patch_sm90a", module, problem, device) if "_direct_" in plan["kernel"]]


def element_of(problem):
    return 4 if problem["dtype"] == FLOAT32 else 2


STAGED_BYTES = 8 * (256 + 64)  # of a warp: eight quads, with the widest gap behind each


def assert_direct_is_legal(module, problem, plan, layout, shared=H200[2]):
    element, consumers = element_of(problem), plan["consumers"]
    assert layout["columns"] % (128 // element) == 0  # boxes are whole
    assert layout["num_chunks"] * 128 >= problem["c_in"] * element
    positions = module.direct_positions * consumers
    assert layout["position_tiles"] * positions >= layout["positions"]
    # A stage of the source is 128 bytes of every position; boxes begin where the swizzle does.
    assert layout["num_chunks"] * 128 * positions <= layout["weights_begin"]
    assert layout["weights_begin"] % 1024 == 0
    assert layout["weights_begin"] + layout["slots"] * module.direct_stage_bytes <= layout["staged_begin"]
    assert layout["staged_begin"] + 4 * consumers * STAGED_BYTES <= layout["barriers_begin"]
    assert layout["staged_begin"] % 16 == layout["barriers_begin"] % 16 == 0
    barriers = 16 * layout["slots"] + 8 * layout["num_chunks"]
    assert layout["barriers_begin"] + barriers <= layout["shared_bytes"] <= shared
    assert layout["slots"] >= 2


def run(module, problem, plan, layout, x, weight, bias):
    """The results, and how often each was written."""
    kernel_h, kernel_w = layout["kernel_h"], layout["kernel_w"]
    batch, c_in, h, w = x.shape
    source = x.transpose(0, 2, 3, 1).reshape(-1, c_in)  # [position, channel]
    matrix = weight.reshape(c_in, -1)
    y = np.full((batch, problem["c_out"], h * kernel_h, w * kernel_w), np.nan)
    writes = np.zeros(y.shape, int)
    positions, quads = module.direct_positions * plan["consumers"], module.direct_columns // 4
    for block in range(layout["num_blocks"]):
        column_group, position_tile = divmod(block, layout["position_tiles"])
        first_tile = column_group * layout["block_tiles"]
        begin = position_tile * positions
        rows = slice(begin, min(begin + positions, layout["positions"]))
        for tile in range(first_tile, min(first_tile + layout["block_tiles"], layout["column_tiles"])):
            for quad in range(tile * quads, (tile + 1) * quads):
                if 4 * quad >= layout["columns"]:
                    continue
                sums = source[rows] @ matrix[:, 4 * quad : 4 * quad + 4]
                channel, of_channel = divmod(quad, layout["channel_quads"])
                row, of_row = divmod(of_channel, layout["row_quads"])
                for position, four in enumerate(sums, begin):
                    image, place = divmod(position, layout["by_image"])
                    at_h, at_w = divmod(place, layout["by_row"])
                    four = four + (0 if bias is None else bias[channel])
                    if kernel_w == 2:
                        results, rows_of_patch, columns = four.reshape(2, 2), 2, 2
                    else:
                        results, rows_of_patch, columns = four.reshape(1, 4), 1, 4
                    out_h = at_h * kernel_h + row * rows_of_patch
                    out_w = at_w * kernel_w + 4 * of_row
                    y[image, channel, out_h : out_h + rows_of_patch, out_w : out_w + columns] = results
                    writes[image, channel, out_h : out_h + rows_of_patch, out_w : out_w + columns] += 1
    return y, writes


@st.composite
def patches(draw):
    """A problem that the kernels serve, of small images."""
    dtype = draw(st.sampled_from(sorted(CLASS_OF_DTYPE)))
    kernel = draw(st.sampled_from(KERNELS))
    box = 32 if dtype == FLOAT32 else 64
    taps = kernel[0] * kernel[1]
    unit = box // np.gcd(box, taps)  # channels whose columns are whole boxes
    c_out = int(unit) * draw(st.integers(1, max(1, 40 // int(unit))))
    size = (draw(st.integers(1, 9)), draw(st.integers(1, 20)))
    problem = from_row(
        draw(st.integers(1, 3)), draw(st.integers(1, 90)), c_out, size, kernel, kernel, 0,
        dtype=dtype, precision=CLASS_OF_DTYPE[dtype],
    )  # fmt: skip
    return problem | {"has_bias": draw(st.booleans())}


@few_problems
@given(problem=patches(), consumers=st.integers(1, 2), tiles=st.integers(1, 4), slots=st.integers(2, 4))
def test_any_tile_is_exact(plan_module, problem, consumers, tiles, slots):
    """Tiles that divide nothing too, not only those that the planner would choose."""
    plan = {"instance": 0, "consumers": consumers, "tiles": tiles, "slots": slots}
    layout = plan_module.patch_direct_layout(problem, plan)
    assume(layout is not None)
    assert_direct_is_legal(plan_module, problem, plan, layout)
    assert_exact(problem, partial(run, plan_module, problem, plan, layout))


@few_problems
@given(problem=patches())
def test_candidates_are_legal(plan_module, problem):
    plans = engine_plans(plan_module, problem)
    assert plans
    for plan in plans:
        layout = plan_module.patch_direct_layout(problem, plan)
        assert_direct_is_legal(plan_module, problem, plan, layout)
        assert plan["shared_bytes"] == layout["shared_bytes"]
        assert plan["num_blocks"] == layout["num_blocks"]
        assert plan["workspace_bytes"] == plan["packed_bytes"] == 0
        assert plan["threads"] == 128 * (plan["consumers"] + 1)
        assert plan["shared_bytes"] <= H200[2]


@pytest.mark.parametrize("dtype", CLASS_OF_DTYPE)
@pytest.mark.parametrize("layer", [(1, 256, 64, 64, 2, 2), (1, 256, 256, 37, 4, 4), (1, 48, 48, 37, 4, 4)])
def test_small_layers_get_it(plan_module, layer, dtype):
    problem = from_row(*layer, dtype=dtype, precision=CLASS_OF_DTYPE[dtype])
    assert "_direct_" in plan_module.choose(problem, H200)["kernel"]


@pytest.mark.parametrize("dtype", CLASS_OF_DTYPE)
@pytest.mark.parametrize("layer", [(8, 128, 64, 256, 2, 2), (4, 1024, 512, 32, 2, 2)])
def test_large_layers_do_not(plan_module, layer, dtype):
    problem = from_row(*layer, dtype=dtype, precision=CLASS_OF_DTYPE[dtype])
    assert "_direct_" not in plan_module.choose(problem, H200)["kernel"]


@pytest.mark.parametrize(
    "change",
    ["class", "exact", "channels_last", "grad_input", "grad_weight", "groups", "boxes", "padding", "kernel", "many"],
)
def test_other_layers_get_none(plan_module, change):
    tf32 = {"dtype": FLOAT32, "precision": TF32}
    rows = {
        "class": from_row(1, 64, 64, 16, 2, 2, dtype=FLOAT32, precision=TF32X3),
        "exact": from_row(1, 64, 64, 16, 2, 2, dtype=FLOAT32, precision=IEEE),
        "channels_last": from_row(1, 64, 64, 16, 2, 2, channels_last=True, **tf32),
        "grad_input": from_row(1, 64, 64, 16, 2, 2, **tf32) | {"direction": GRAD_INPUT},
        "grad_weight": from_row(1, 64, 64, 16, 2, 2, **tf32) | {"direction": GRAD_WEIGHT},
        "groups": from_row(1, 64, 64, 16, 2, 2, 0, 0, 2, **tf32),
        "boxes": from_row(1, 64, 36, 16, 2, 2, **tf32),  # 144 columns
        "padding": from_row(1, 64, 64, 16, 4, 4, 1, **tf32),
        "kernel": from_row(1, 64, 64, 16, 3, 3, **tf32),
        "many": from_row(1, 1056, 64, 16, 2, 2, **tf32),  # stages of the source
    }
    assert not engine_plans(plan_module, rows[change])

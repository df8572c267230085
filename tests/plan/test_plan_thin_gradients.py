"""The thin engine's plans of the gradients: every result is one thread's, every tap reads what was loaded for it."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from plan.legal import assert_launch_is_of
from plan.problems import (
    BFLOAT16,
    DEVICES,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    GRAD_INPUT,
    GRAD_WEIGHT,
    H200,
    IEEE,
    TF32X3,
    from_row,
    problems,
    sizes_of,
)
from plan.profile import few_problems
from plan.tensor_cores import HALF
from plan.test_plan_choice import LAYERS

POSITIONS = {"8x8": (8, 8), "4x8": (4, 8), "1x16": (1, 16)}  # channels and rows of a thread


def thin_plans(module, problem, direction, device=H200):
    plans = module.candidates({**problem, "direction": direction}, device)
    return [plan for plan in plans if plan["engine"] in ("thin", "depthwise")]


def is_depthwise(plan):
    return "rows" in plan


def staged_rows(layout, h):
    """Place in a stage -> row of grad_output from the tile's first, as kernels/thin/grad_input_loader.cuh fills it."""
    for slot in range(layout["slots"]):
        if layout["apart"]:
            q, k = divmod(slot, h["kernel"])
            yield q * layout["position"] + k * layout["tap"], q * h["stride"] + k * h["dilation"]
        else:
            yield slot * layout["slot"], slot * layout["row_step"]


def assert_stage_is_right(problem, layout):
    """Rows lie apart, whole vectors of them too, within the stage; each tap finds its row."""
    h, w = problem["h"], problem["w"]
    element = 2 if problem["dtype"] != FLOAT32 else 4
    vector = 16 // element
    rows = dict(staged_rows(layout, h))
    assert len(rows) == layout["slots"]
    places = sorted(rows)
    least = layout["columns"] + 2 * (vector - 1)
    assert all(b - a >= least for a, b in pairwise(places))
    assert places[-1] + least <= layout["channel"] + 2 * vector
    channels = layout["block_groups"] * layout["chunk_co"]
    assert (
        vector - 1 + (channels - 1) * layout["channel"] + places[-1] + layout["columns"] + vector - 1
    ) * element <= (layout["stage_bytes"])
    for q, k in product(range(layout["tile_h"]), range(h["kernel"])):
        assert rows[q * layout["position"] + k * layout["tap"]] == q * h["stride"] + k * h["dilation"]
    last = (layout["tile_w"] - 1) * w["stride"] + (w["kernel"] - 1) * w["dilation"]
    assert layout["columns"] == last + 1
    # 16-byte copies: distances in shared memory are those in memory, modulo a vector.
    stride = problem["y_stride"]
    assert (layout["channel"] - stride[1]) % vector == 0
    assert (layout["position"] - h["stride"] * stride[2]) % vector == 0
    assert (layout["tap"] - h["dilation"] * stride[2]) % vector == 0


def assert_written_once(problem, layout, channels, positions):
    """Every (image, channel, position) of the result belongs to one thread."""
    (batch, c_in, height, width), _, _ = sizes_of(problem)
    writes = Counter()
    for block in range(layout["num_blocks"]):
        chunk, index = divmod(block, layout["passes"])
        group_block, ci_tile = divmod(index, layout["ci_tiles"])
        tiles = range(
            chunk * layout["tiles_per_block"], min((chunk + 1) * layout["tiles_per_block"], layout["num_tiles"])
        )
        for number, warp in product(tiles, range(layout["threads"] // 32)):
            rest, tile_w = divmod(number, layout["tiles_w"])
            image, tile_h = divmod(rest, layout["tiles_h"])
            rest, warp_w = divmod(warp, layout["warps_w"])
            group, warp_ci = divmod(rest, layout["warps_ci"])
            row, strip = divmod(warp_w, layout["tile_w"] // 32)
            group += group_block * layout["block_groups"]
            if group >= layout["groups"]:
                continue
            for c in range(channels):
                ci = warp_ci * channels + c
                if ci >= layout["block_ci"] or ci_tile * layout["block_ci"] + ci >= layout["group_ci"]:
                    continue
                channel = group * layout["group_ci"] + ci_tile * layout["block_ci"] + ci
                # Columns by their strip alone: lanes of one are 32 neighbours.
                for j in range(positions):
                    h = tile_h * layout["tile_h"] + row * positions + j
                    w = tile_w * layout["tile_w"] + strip * 32
                    if h < height and w < width:
                        writes[image, channel, h, w] += 1
    wanted = set(product(range(batch), range(c_in), range(height), range(0, width, 32)))
    assert set(writes) == wanted
    assert set(writes.values()) == {1}


def assert_grad_input_is_legal(module, problem, plan, device):
    layout = module.thin_grad_input_layout(problem, plan)
    assert layout is not None, plan
    assert_launch_is_of(layout, plan, device)
    channels, positions = POSITIONS[plan["kernel"].rsplit("_", 1)[1]]
    assert plan["threads"] == 32 * layout["warps_w"] * layout["warps_ci"] * layout["block_groups"]
    assert plan["threads"] <= (512 if channels * positions > 32 else 256)
    assert plan["workspace_bytes"] == 0
    assert_stage_is_right(problem, layout)
    return layout, channels, positions


@few_problems
@given(problem=problems(dtypes=True), device=st.sampled_from(sorted(DEVICES)), data=st.data())
def test_grad_input_candidates(plan_module, problem, device, data):
    plans = [plan for plan in thin_plans(plan_module, problem, GRAD_INPUT, DEVICES[device]) if not is_depthwise(plan)]
    assume(plans)
    problem = {**problem, "direction": GRAD_INPUT}
    plan = data.draw(st.sampled_from(plans))
    layout, channels, positions = assert_grad_input_is_legal(plan_module, problem, plan, DEVICES[device])
    if layout["num_blocks"] <= 200:
        assert_written_once(problem, layout, channels, positions)


@few_problems
@given(problem=problems(dtypes=True), data=st.data())
def test_any_tile_of_grad_input(plan_module, problem, data):
    """Tiles that the planner would not choose too."""
    draw = data.draw
    assume(problem["dtype"] in (FLOAT32, FLOAT16))
    problem = {**problem, "direction": GRAD_INPUT}
    group_ci, group_co = (problem[key] // problem["groups"] for key in ("c_in", "c_out"))
    instance = draw(st.integers(0, 2)) + (3 if problem["dtype"] == FLOAT16 else 0)
    channels, positions = list(POSITIONS.values())[instance % 3]
    block_groups = draw(st.sampled_from([1, 1, 2, 3]))
    blocks = -(-group_ci // channels)
    plan = {
        "instance": instance,
        "tile_h": draw(st.integers(1, 3)) * positions,
        "tile_w": draw(st.integers(1, 3)) * 32,
        "block_ci": (blocks if block_groups > 1 else draw(st.integers(1, blocks))) * channels,
        "block_groups": block_groups,
        "chunk_co": group_co if block_groups > 1 else draw(st.integers(1, group_co)),
        "stages": draw(st.integers(1, 4)),
        "tiles_per_block": draw(st.integers(1, 3)),
    }
    layout = plan_module.thin_grad_input_layout(problem, plan)
    assume(layout is not None and layout["num_blocks"] <= 200)
    assert_stage_is_right(problem, layout)
    assert_written_once(problem, layout, channels, positions)


@pytest.mark.parametrize("name", ["kb75", "kb81", "dw_up", "dcgan_rgb", "fsrcnn"])
def test_thin_layers_have_plans(plan_module, name):
    problem = {**from_row(*LAYERS[name]), "direction": GRAD_INPUT}
    plans = thin_plans(plan_module, problem, GRAD_INPUT)
    assert plans
    for plan in plans:
        if not is_depthwise(plan):
            assert_grad_input_is_legal(plan_module, problem, plan, H200)


# Measured on an H200: what the general kernels of the same dtype took on these, 3 to 10 times as long as this engine's.
LARGE_DEPTHWISE = [
    (16, 64, 64, (36, 18), (8, 8), 4, 2, 0, 64),
    (4, 48, 48, (108, 108), (9, 9), 4, 3, 0, 48),
    (2, 128, 128, (74, 74), (8, 8), 4, 2, 0, 128),
    (16, 128, 128, (39, 13), (7, 7), 3, 2, 0, 128),
]


@pytest.mark.parametrize(("dtype", "precision"), [(FLOAT32, IEEE), (FLOAT32, TF32X3), (BFLOAT16, HALF)])
@pytest.mark.parametrize("row", LARGE_DEPTHWISE)
def test_large_kernels_of_depthwise_layers_in_channels_last(plan_module, row, dtype, precision):
    problem = from_row(*row, dtype=dtype, precision=precision, channels_last=True)
    assert plan_module.choose({**problem, "direction": GRAD_INPUT}, H200)["family"] == "thin_grad_input"


@pytest.mark.parametrize("direction", [GRAD_INPUT, GRAD_WEIGHT])
def test_float64_has_none(plan_module, direction):
    assert not thin_plans(plan_module, from_row(*LAYERS["dw_up"], dtype=FLOAT64), direction)

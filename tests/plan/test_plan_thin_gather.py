"""The thin engine's plans of gathered terms, executed as kernels/thin/gather.cuh does."""

from __future__ import annotations

from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from plan.exact import assert_exact
from plan.problems import (
    DEVICES,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    FORWARD,
    GRAD_INPUT,
    GRAD_WEIGHT,
    H200,
    IEEE,
    from_row,
    problems,
)
from plan.profile import few_problems
from plan.test_plan_choice import LAYERS
from plan.test_plan_thin_direct import run_strided

SUMS = [8, 4, 2]  # channels, and positions, of a thread


def gather_plans(module, problem, device=H200):
    return [plan for plan in module.candidates(problem, device) if "_gather_" in plan["kernel"]]


def places_of_threads(layout, sums):
    """(position, channel) of every sum of a CTA, as GatherPlace gives them to threads."""
    run, lanes_c = min(sums, 4), layout["lanes_channels"]
    lanes_p = 32 // lanes_c
    for thread in range(layout["threads"]):
        warp, lane = divmod(thread, 32)
        lane_p, lane_c = divmod(lane, lanes_c)
        if lanes_c == 4:
            lane_p, lane_c = lane >> 1 & 7, (lane & 1) | (lane >> 4) << 1
        warp_p, warp_c = divmod(warp, layout["warps_channels"])
        for p, c in product(range(sums), repeat=2):
            position = warp_p * lanes_p * sums + lane_p * run + p // run * lanes_p * run + p % run
            channel = warp_c * lanes_c * sums + lane_c * run + c // run * lanes_c * run + c % run
            yield position, channel


def assert_places_are_right(layout, sums):
    """Threads share a tile's sums, tables and stages do not overlap, terms of a stage have places of their own."""
    places = list(places_of_threads(layout, sums))
    assert sorted(places) == list(product(range(layout["block_positions"]), range(layout["block_channels"])))
    taps = layout["terms"] // layout["group_ci"]
    assert layout["table_positions"] % 32 == 0
    assert layout["table_positions"] >= layout["block_positions"]
    assert layout["bits_begin"] >= 8 * layout["table_positions"]
    assert layout["terms_begin"] >= layout["bits_begin"] + taps * layout["table_positions"] // 8
    assert layout["stage_begin"] >= layout["terms_begin"] + 16 * layout["chunk_ci"] * taps
    assert all(layout[key] % 16 == 0 for key in ("terms_begin", "stage_begin", "stage_weight", "stage_bytes"))
    assert all(layout[key] % 4 == 0 for key in ("source_pitch", "weight_pitch", "weight_channel_pitch"))
    assert layout["source_pitch"] >= layout["chunk_taps"] * layout["block_positions"]
    assert layout["weight_pitch"] >= layout["block_channels"]
    assert layout["weight_channel_pitch"] >= layout["chunk_taps"] * layout["weight_pitch"]
    assert layout["stage_weight"] >= 4 * layout["chunk_ci"] * layout["source_pitch"]
    assert layout["stage_bytes"] >= layout["stage_weight"] + 4 * layout["chunk_ci"] * layout["weight_channel_pitch"]
    assert layout["shared_bytes"] == layout["stage_begin"] + layout["stages"] * layout["stage_bytes"]


def terms_of(layout, taps):
    """(channel, tap) of a sum, stage after stage."""
    ci = tap = 0
    while ci < layout["group_ci"] and taps:
        channels = range(ci, min(ci + layout["chunk_ci"], layout["group_ci"]))
        yield from product(channels, range(tap, min(tap + layout["chunk_taps"], taps)))
        tap += layout["chunk_taps"]
        if tap >= taps:
            tap, ci = 0, ci + layout["chunk_ci"]


def run(layout, source, weight, bias, size):
    """The results, and how often each was written."""
    result, writes = np.full(size, np.nan), np.zeros(size, dtype=np.int32)
    stride_h, stride_w = len(layout["phases_h"]), len(layout["phases_w"])
    for block in range(layout["num_blocks"]):
        rest, channel_tile = divmod(block, layout["by_channel_tiles"])
        rest, phase = divmod(rest, layout["by_phases"])
        group, position_tile = divmod(rest, layout["by_position_tiles"])
        phase_h, phase_w = divmod(phase, stride_w)
        h, w = layout["phases_h"][phase_h], layout["phases_w"][phase_w]
        terms = list(terms_of(layout, h["num_taps"] * w["num_taps"]))
        assert terms == list(product(range(layout["group_ci"]), range(h["num_taps"] * w["num_taps"])))[: len(terms)]
        assert len(terms) == layout["group_ci"] * h["num_taps"] * w["num_taps"]
        for m, n in product(range(layout["block_positions"]), range(layout["block_channels"])):
            position = position_tile * layout["block_positions"] + m
            channel = channel_tile * layout["block_channels"] + n
            rest, column = divmod(position, layout["by_columns"])
            image, row = divmod(rest, layout["by_rows"])
            result_row, result_column = row * stride_h + phase_h, column * stride_w + phase_w
            if position >= layout["num_positions"] or channel >= layout["group_co"]:
                continue
            if result_row >= layout["result_rows"] or result_column >= layout["result_columns"]:
                continue
            total = 0.0
            for ci, tap in terms:
                k_h, k_w = divmod(tap, w["num_taps"])
                i = row * layout["row_step"] + h["first_shift"] - k_h * h["shift_step"]
                j = column * layout["column_step"] + w["first_shift"] - k_w * w["shift_step"]
                if not (0 <= i < layout["rows"] and 0 <= j < layout["columns"]):
                    continue
                place = (h["first_tap"] + k_h * h["tap_step"], w["first_tap"] + k_w * w["tap_step"])
                of = np.dot((ci, channel, *place), layout["weight_stride"]) + group * layout["weight_group_stride"]
                from_ = np.dot((image, group * layout["group_ci"] + ci, i, j), layout["source_stride"])
                total += source[from_] * weight[of]
            channel += group * layout["group_co"]
            at = (image, channel, result_row, result_column)
            result[at] = total + (0 if bias is None else bias[channel])
            writes[at] += 1
    return result, writes


@few_problems
@given(
    problem=problems(),
    direction=st.sampled_from([FORWARD, GRAD_INPUT]),
    device=st.sampled_from(sorted(DEVICES)),
    data=st.data(),
)
def test_candidates(plan_module, problem, direction, device, data):
    problem = {**problem, "direction": direction, "dtype": FLOAT32, "precision": IEEE}
    plans = gather_plans(plan_module, problem, DEVICES[device])
    if not plans:
        return  # a depthwise layer, or too large
    plan = data.draw(st.sampled_from(plans))
    layout = plan_module.thin_gather_layout(problem, plan)
    for key in ("threads", "shared_bytes", "num_blocks"):
        assert layout[key] == plan[key]
    assert plan["shared_bytes"] <= DEVICES[device][2]
    assert plan["workspace_bytes"] == 0
    assert_places_are_right(layout, SUMS[plan["instance"] % 3])
    if layout["results"] * layout["terms"] <= 4000:
        assert_exact(problem, partial(run_strided, run, problem, layout))


@few_problems
@given(problem=problems(), direction=st.sampled_from([FORWARD, GRAD_INPUT]), data=st.data())
def test_any_tile(plan_module, problem, direction, data):
    """Tiles that the planner would not choose too."""
    problem = {**problem, "direction": direction, "dtype": FLOAT32, "precision": IEEE}
    direct = plan_module.thin_direct_layout(problem)
    assume(direct is not None and direct["results"] * direct["terms"] <= 4000)
    taps = direct["terms"] // direct["group_ci"]
    draw = data.draw
    chunk_taps = draw(st.integers(1, taps))
    plan = {
        "instance": draw(st.integers(0, 2)) + (0 if direction == FORWARD else 3),
        "lanes_channels": draw(st.sampled_from([1, 2, 4])),
        "warps_channels": draw(st.integers(1, 3)),
        "warps_positions": draw(st.integers(1, 2)),
        "chunk_ci": draw(st.integers(1, direct["group_ci"])) if chunk_taps == taps else 1,
        "chunk_taps": chunk_taps,
        "stages": draw(st.sampled_from([2, 3, 4, 6])),
    }
    layout = plan_module.thin_gather_layout(problem, plan)
    assume(layout is not None and layout["num_blocks"] <= 200)
    assert_places_are_right(layout, SUMS[plan["instance"] % 3])
    assert_exact(problem, partial(run_strided, run, problem, layout))


@pytest.mark.parametrize("name", ["kb75", "kb81", "dcgan_rgb", "fsrcnn"])
@pytest.mark.parametrize("direction", [FORWARD, GRAD_INPUT])
def test_thin_layers_have_them(plan_module, name, direction):
    assert gather_plans(plan_module, {**from_row(*LAYERS[name]), "direction": direction})


def test_what_it_does_not_serve(plan_module):
    for dtype in (FLOAT16, FLOAT64):
        assert not gather_plans(plan_module, from_row(*LAYERS["dcgan_rgb"], dtype=dtype))
    assert not gather_plans(plan_module, {**from_row(*LAYERS["dcgan_rgb"]), "direction": GRAD_WEIGHT})

"""The thin engine's plans of gathered terms, executed as kernels/streamed/gather.cuh does."""

from __future__ import annotations

from functools import partial
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from plan.exact import assert_exact
from plan.legal import assert_launch_is_of
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
from plan.thin_tiled import Results, tiles

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
    results = Results(layout, (source, weight, bias), size)
    for tile in tiles(layout):
        taps = layout["phases_h"][tile.phase_h]["num_taps"] * layout["phases_w"][tile.phase_w]["num_taps"]
        assert list(terms_of(layout, taps)) == list(product(range(layout["group_ci"]), range(taps)))
        for m, n in product(range(layout["block_positions"]), range(layout["block_channels"])):
            position = tile.position + m
            if position >= layout["num_positions"]:
                continue
            rest, column = divmod(position, layout["by_columns"])
            image, row = divmod(rest, layout["by_rows"])
            results.write(tile, (image, row, column), tile.channel + n)
    return results.values, results.writes


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
    assert_launch_is_of(layout, plan, DEVICES[device])
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

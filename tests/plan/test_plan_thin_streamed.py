"""The thin engine's plans of streamed sources, executed as kernels/streamed/kernel.cuh does."""

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
from plan.thin_tiled import Results, existing_taps, tiles


def streamed_plans(module, problem, device=H200):
    return [plan for plan in module.candidates(problem, device) if "_streamed_" in plan["kernel"]]


def inside_range(phase, step, source, positions):
    """(first, number) of an axis's positions whose taps all exist, as InsideRange has them."""
    reach = max(0, phase["num_taps"] - 1) * phase["shift_step"]
    least, most = phase["first_shift"] - max(0, reach), phase["first_shift"] - min(0, reach)
    begin = min(positions, (step - 1 - least) // step if least < 0 else 0)
    end = 0 if most >= source else (source - 1 - most) // step + 1
    return begin, max(0, min(positions, end) - begin)


def positions_in_order(layout, h, w):
    """(image, row, column) of each position of a phase, and whether all its taps exist, as StreamedOrder has them."""
    num_rows, num_columns = layout["by_rows"], layout["by_columns"]
    row_begin, rows = inside_range(h, layout["row_step"], layout["rows"], num_rows)
    column_begin, columns = inside_range(w, layout["column_step"], layout["columns"], num_columns)
    images = range(layout["num_positions"] // (num_rows * num_columns))
    inside_rows, inside_columns = (range(b, b + n) for b, n in ((row_begin, rows), (column_begin, columns)))
    for place in product(images, inside_rows, inside_columns):
        yield place, True
    other_rows = [row for row in range(num_rows) if row not in inside_rows]
    other_columns = [column for column in range(num_columns) if column not in inside_columns]
    for image in images:
        for row, column in [*product(other_rows, range(num_columns)), *product(inside_rows, other_columns)]:
            yield (image, row, column), False


def run(layout, source, weight, bias, size, instance):
    """The results, and how often each was written."""
    results = Results(layout, (source, weight, bias), size)
    if instance["taps"]:  # vectors begin on 16 bytes
        strides = [layout["source_stride"][axis] for axis in (0, 2, 3)]
        assert layout["source_stride"][1] == 1
        assert all(count % 4 == 0 for count in (*strides, layout["group_ci"]))
    for tile in tiles(layout):
        h, w = layout["phases_h"][tile.phase_h], layout["phases_w"][tile.phase_w]
        order = list(positions_in_order(layout, h, w))
        assert len(order) == layout["num_positions"]
        for (image, row, column), inside in order[tile.position : tile.position + layout["block_positions"]]:
            num_taps = len(existing_taps(layout, tile, row, column))
            assert num_taps == h["num_taps"] * w["num_taps"] or not inside
            for n in range(layout["block_channels"]):
                results.write(tile, (image, row, column), tile.channel + n)
    return results.values, results.writes


def assert_shared_memory_is_right(layout, instance):
    assert layout["block_channels"] == layout["warps_channels"] * instance["channels"]
    assert layout["block_positions"] == layout["warps_positions"] * 32 * instance["positions"]
    assert layout["threads"] == 32 * layout["warps_channels"] * layout["warps_positions"]
    assert layout["weights_begin"] >= 8 * (layout["terms"] + layout["padding"])
    assert layout["weights_begin"] % 32 == 0  # both halves of the list begin on 16 bytes
    assert layout["weight_pitch"] >= layout["block_channels"]
    assert layout["weight_pitch"] % 8 == 4  # whole quads, an odd number of them
    assert layout["shared_bytes"] == layout["weights_begin"] + 4 * layout["terms"] * layout["weight_pitch"]


@few_problems
@given(
    problem=problems(),
    direction=st.sampled_from([FORWARD, GRAD_INPUT]),
    device=st.sampled_from(sorted(DEVICES)),
    data=st.data(),
)
def test_candidates(plan_module, problem, direction, device, data):
    problem = {**problem, "direction": direction, "dtype": FLOAT32, "precision": IEEE}
    plans = streamed_plans(plan_module, problem, DEVICES[device])
    if not plans:
        return  # a depthwise layer, or too large
    plan = data.draw(st.sampled_from(plans))
    layout = plan_module.thin_streamed_layout(problem, plan)
    instance = plan_module.thin_streamed_instances()[plan["instance"]]
    assert instance["name"] == plan["kernel"]
    assert_launch_is_of(layout, plan, DEVICES[device])
    assert plan["workspace_bytes"] == 0
    assert_shared_memory_is_right(layout, instance)
    if layout["results"] * layout["terms"] <= 4000:
        assert_exact(problem, partial(run_strided, partial(run, instance=instance), problem, layout))


@few_problems
@given(problem=problems(), direction=st.sampled_from([FORWARD, GRAD_INPUT]), data=st.data())
def test_any_tile(plan_module, problem, direction, data):
    """Tiles that the planner would not choose too."""
    problem = {**problem, "direction": direction, "dtype": FLOAT32, "precision": IEEE}
    instances = [
        (index, instance)
        for index, instance in enumerate(plan_module.thin_streamed_instances())
        if instance["direction"] == direction
    ]
    index, instance = data.draw(st.sampled_from(instances))
    plan = {
        "instance": index,
        "warps_channels": data.draw(st.integers(1, 3)),
        "warps_positions": data.draw(st.integers(1, 2)),
    }
    layout = plan_module.thin_streamed_layout(problem, plan)
    assume(layout is not None and layout["num_blocks"] <= 200 and layout["results"] * layout["terms"] <= 4000)
    assert_shared_memory_is_right(layout, instance)
    assert_exact(problem, partial(run_strided, partial(run, instance=instance), problem, layout))


@pytest.mark.parametrize("name", ["kb75", "kb81", "dcgan_rgb", "fsrcnn"])
@pytest.mark.parametrize("direction", [FORWARD, GRAD_INPUT])
def test_thin_layers_have_them(plan_module, name, direction):
    assert streamed_plans(plan_module, {**from_row(*LAYERS[name]), "direction": direction})


def test_vectors_need_neighbouring_channels_and_few_taps(plan_module):
    layer = {"n": 1, "c_in": 8, "c_out": 4, "size": 9, "kernel": 4, "stride": 2, "padding": 1}

    def kernels(**changes):
        return {plan["kernel"] for plan in streamed_plans(plan_module, from_row(**{**layer, **changes}))}

    assert any(kernel.endswith("_taps4") for kernel in kernels(channels_last=True))
    for changes in ({}, {"c_in": 6, "channels_last": True}, {"kernel": 6, "channels_last": True}):
        assert not any("_taps" in kernel for kernel in kernels(**changes))


def test_what_it_does_not_serve(plan_module):
    for dtype in (FLOAT16, FLOAT64):
        assert not streamed_plans(plan_module, from_row(*LAYERS["dcgan_rgb"], dtype=dtype))
    assert not streamed_plans(plan_module, {**from_row(*LAYERS["dcgan_rgb"]), "direction": GRAD_WEIGHT})
    assert not streamed_plans(plan_module, from_row(1, 1, 1, 9, (33, 3)))  # a word has no bits for so many taps

"""What a plan of the mma engine's tiles of whole rows promises, and its execution in numpy."""

from __future__ import annotations

from itertools import product
from math import isfinite
from types import ModuleType
from typing import Any

import numpy as np
from plan.legal import assert_launch_is_of
from plan.mma import COLUMNS, passes_of
from plan.problems import FLOAT32, FORWARD, TF32, Problem
from plan.tensor_cores import HALF

POSITIONS = 32  # of a unit
UNIT_COLUMNS = 3 * COLUMNS


def assert_mma_rows_is_legal(module: ModuleType, problem: Problem, device: list[int], plan: dict[str, Any]) -> None:
    """The layout is the plan's, it fits, and staged channels lie apart, aligned as their places in memory are."""
    half = problem["dtype"] != FLOAT32
    assert problem["direction"] == FORWARD
    assert problem["precision"] == (HALF if half else TF32)
    layout = module.mma_rows_layout(problem, plan)
    assert layout is not None, plan
    assert_launch_is_of(layout, plan, device)
    assert plan["threads"] == 32 * (plan["warps"] + 2) <= 512, plan
    assert plan["num_blocks"] == layout["passes"] * layout["blocks_per_pass"], plan
    for key in ("compute_us", "memory_us", "estimate_us"):
        assert isfinite(plan[key]), plan
        assert plan[key] > 0, plan

    element, sector = (2, 16) if half else (4, 8)
    assert layout["result_vector"] == sector
    stride, w_out = problem["y_stride"], layout["w"]["out"]
    assert problem["x_stride"][3] == 1
    assert stride[2] == w_out
    assert w_out >= 2 * sector  # of the least part of a tile, whose ends are not on sectors
    assert layout["units"] == layout["units_w"] * layout["tile_h"] * layout["column_units"]
    assert layout["units_w"] * POSITIONS >= layout["w"]["positions"]
    assert layout["row_step"] == layout["h"]["out_stride"] * w_out
    assert layout["stage_channel"] >= layout["tile_h"] * layout["row_step"], plan
    if problem["c_out"] > 1:
        assert (layout["stage_channel"] - stride[1]) % sector == 0, plan
    assert layout["slot_elements"] % sector == 0, plan
    # Wherever a tile begins in a sector.
    assert layout["slot_elements"] >= layout["block_co"] * layout["stage_channel"] + sector - 1, plan
    ends = (
        layout["slots"] * layout["slot_elements"] * element,
        layout["weight_begin"],
        layout["weight_begin"] + layout["taps"] * layout["steps"] * layout["column_tiles"] * 512,
        layout["column_begin_bytes"],
        layout["column_begin_bytes"] + layout["column_tiles"] * COLUMNS * 16,
        layout["step_begin"],
        layout["step_begin"] + 8 * layout["taps"] * layout["steps"] * layout["column_units"],
        layout["group_begin"],
        layout["group_begin"] + 16 * layout["groups_of_steps"],
        layout["barriers_begin"],
        layout["barriers_begin"] + 16 * layout["slots"],
        layout["shared_bytes"],
    )
    assert list(ends) == sorted(ends), plan
    ends_on_16 = ("weight_begin", "column_begin_bytes", "step_begin", "group_begin", "barriers_begin")
    assert all(layout[key] % 16 == 0 for key in ends_on_16)
    # Taps along W, and runs of neighbours.
    taps = [(first + n, n) for first, count in layout["runs"] for n in range(count)]
    assert [tap for tap, _ in taps] == list(range(len(layout["w"]["taps"]))), plan
    for tap, n in taps:
        assert layout["w"]["taps"][tap][0] == layout["w"]["taps"][tap - n][0] - n, plan
    assert layout["groups_of_steps"] == len(layout["h"]["taps"]) * layout["steps"] * len(layout["runs"]), plan
    assert layout["w"]["first"] % 4 == 0, plan
    # Vectors of four columns are inside of the source or outside.
    firsts = [layout["w"]["taps"][first][0] for first, _ in layout["runs"]]
    whole = all(number % 4 == 0 for number in (layout["w"]["in"], *problem["x_stride"][:3], *firsts))
    assert layout["vector"] == (4 if whole else 1), plan
    # From one of its units to the next a warp passes no more tiles than there are slots.
    assert plan["warps"] <= layout["units"] * layout["slots"], plan
    assert layout["weight_begin"] >= 4 * layout["taps"] * layout["column_tiles"] * COLUMNS  # the places of the weights


def run(module: ModuleType, problem: Problem, plan: dict[str, Any], x, weight, bias):
    """The plan's result and how often each output was written, element by element through the staged tiles."""
    layout = module.mma_rows_layout(problem, plan)
    h, w = layout["h"], layout["w"]
    shape = (problem["batch"], problem["c_out"], h["out"], w["out"])
    stride = problem["y_stride"]
    y, writes = np.full(np.prod(shape), np.nan), np.zeros(np.prod(shape), dtype=int)
    columns, length = layout["columns"], layout["tile_h"] * layout["row_step"]
    assert len(columns) == layout["column_tiles"] * COLUMNS == layout["column_units"] * UNIT_COLUMNS
    for (group, first, channels, _), tile in product(passes_of(layout), range(layout["num_tiles"])):
        image, tile_h = divmod(tile, layout["tiles_h"])
        taps_of = weight[group * layout["group_ci"] :][: layout["group_ci"]]
        source = x[image, group * layout["group_ci"] :][: layout["group_ci"]]
        biases = np.zeros(channels) if bias is None else bias[group * layout["group_co"] + first :][:channels]
        q_h = h["first"] + tile_h * layout["tile_h"]
        row = q_h * h["out_stride"] - h["out_origin"]
        origin = image * stride[0] + (group * layout["group_co"] + first) * stride[1] + row * stride[2]
        shift = origin % layout["result_vector"]
        slot = np.full(layout["slot_elements"], np.nan)
        for co in range(channels):
            slot[shift + co * layout["stage_channel"] :][:length] = biases[co]
        for position_row, q in product(range(layout["tile_h"]), range(w["positions"])):
            for number, (co, phase_h, phase_w, mask_h, mask_w) in enumerate(columns):
                assert (mask_h, mask_w) == columns[number // COLUMNS * COLUMNS][
                    3:5
                ]  # a tile's columns are of one class
                column = (w["first"] + q) * w["out_stride"] - w["out_origin"] + phase_w
                if co >= channels or not 0 <= column < w["out"]:
                    continue
                total = 0.0
                for (t_h, (offset_h, ks_h)), (t_w, (offset_w, ks_w)) in product(
                    enumerate(h["taps"]), enumerate(w["taps"])
                ):
                    has = bool(mask_h >> t_h & 1) and bool(mask_w >> t_w & 1)
                    assert has == (ks_h[phase_h] >= 0 and ks_w[phase_w] >= 0)
                    i, j = q_h + position_row + offset_h, w["first"] + q + offset_w
                    if has and 0 <= i < h["in"] and 0 <= j < w["in"]:
                        total += taps_of[:, first + co, ks_h[phase_h], ks_w[phase_w]] @ source[:, i, j]
                place = co * layout["stage_channel"] + position_row * layout["row_step"] + phase_h * w["out"] + column
                slot[shift + place] = total + biases[co]
        begin = max(-row, 0) * w["out"]
        end = min(layout["tile_h"] * h["out_stride"], h["out"] - row) * w["out"]
        assert end - begin >= 2 * layout["result_vector"]
        for co in range(channels):
            there = origin + co * stride[1]
            assert (shift + co * layout["stage_channel"] - there) % layout["result_vector"] == 0
            y[there + begin : there + end] = slot[shift + co * layout["stage_channel"] :][begin:end]
            writes[there + begin : there + end] += 1
    return y.reshape(shape), writes.reshape(shape)

"""What a plan of the mma engine promises, and its execution in numpy from the numbers of its launch."""

from __future__ import annotations

from itertools import pairwise, product
from math import isfinite
from types import ModuleType
from typing import Any

import numpy as np
from plan.legal import assert_launch_is_of
from plan.problems import FLOAT32, FORWARD, TF32, Problem
from plan.tensor_cores import HALF

COLUMNS = 16  # of a column tile


def passes_of(layout: dict[str, Any]):
    """(group, first channel, channels, H phase of a pass that owns one) of every pass."""
    for index in range(layout["passes"]):
        number, split = divmod(index, layout["split_phases"])
        group, co_tile = divmod(number, layout["co_tiles"])
        first = co_tile * layout["block_co"]
        yield group, first, min(layout["block_co"], layout["group_co"] - first), split


def filled_phases(layout: dict[str, Any], phase: int) -> list[int]:
    """H phases with taps of a pass, counted from its first."""
    filled = layout["h"]["filled"]
    if layout["split_phases"] > 1:
        return [0] if filled >> phase & 1 else []
    return [v for v in range(layout["h"]["out_stride"]) if filled >> v & 1]


def staged_row(layout: dict[str, Any], result_stride: int, number: int, phase: int, co: int, row: int) -> int:
    congruent = phase * result_stride % layout["result_vector"]
    steps = (co, layout["stage_channel"]), (row, layout["stage_row"]), (number, layout["stage_phase"])
    return sum(count * step for count, step in steps) + congruent


def assert_mma_is_legal(module: ModuleType, problem: Problem, device: list[int], plan: dict[str, Any]) -> None:
    """The layout is the plan's, it fits, and staged rows lie apart, aligned as their places in memory are."""
    half = problem["dtype"] != FLOAT32
    assert problem["direction"] == FORWARD
    assert problem["precision"] == (HALF if half else TF32)
    layout = module.mma_layout(problem, plan)
    assert layout is not None, plan
    assert_launch_is_of(layout, plan, device)
    assert plan["threads"] in (128, 256), plan
    assert plan["num_blocks"] == layout["passes"] * layout["blocks_per_pass"], plan
    for key in ("compute_us", "memory_us", "estimate_us"):
        assert isfinite(plan[key]), plan
        assert plan[key] > 0, plan
    assert layout["num_chunks"] * layout["chunk_steps"] == layout["steps"], plan
    assert layout["num_chunks"] == 1 or layout["column_units"] * layout["position_units"] <= plan["threads"] // 32

    element, vector = (2, 8) if half else (4, 4)
    raw = layout["chunk_ci"] * layout["raw_channel"] * element
    assert raw <= layout["raw_bytes"], plan
    assert layout["raw_slots"] * layout["raw_bytes"] <= layout["operand_begin"], plan
    planes = 4 * layout["chunk_steps"] * layout["plane"] * 8
    assert layout["operand_begin"] + planes <= layout["stage_begin"], plan
    assert layout["plane"] % 8 == 4, plan  # banks
    assert layout["raw_channel"] <= layout["plane"], plan
    for begin in ("raw_bytes", "operand_begin", "stage_begin", "weight_begin"):
        assert layout[begin] % 16 == 0, plan

    width = layout["tile_w"] * layout["w"]["out_stride"]
    stride = problem["y_stride"]
    for _, _, channels, split in passes_of(layout):
        rows = sorted(
            (staged_row(layout, stride[2], number, phase, co, row), co, row, phase)
            for (number, phase), co, row in product(
                enumerate(filled_phases(layout, split)), range(channels), range(layout["tile_h"])
            )
        )
        for one, other in pairwise(rows):
            assert one[0] + width <= other[0], plan
        for place, co, row, phase in rows:
            there = co * stride[1] * (problem["c_out"] > 1) + (row * layout["h"]["out_stride"] + phase) * stride[2]
            assert (place - there) % vector == 0, plan
        if rows:
            end = rows[-1][0] + width + vector - 1  # wherever the tile begins in a vector
            assert layout["stage_begin"] + end * element <= layout["weight_begin"], plan


def run(module: ModuleType, problem: Problem, plan: dict[str, Any], x, weight, bias):
    """The plan's result and how often each output was written."""
    layout = module.mma_layout(problem, plan)
    h, w = layout["h"], layout["w"]
    y = np.full((problem["batch"], problem["c_out"], h["out"], w["out"]), np.nan)
    writes = np.zeros(y.shape, dtype=int)
    least_h, least_w = (min(offset for offset, _ in axis["taps"]) for axis in (h, w))
    positions = np.add.outer(np.arange(layout["tile_h"]) * layout["pitch"], np.arange(layout["tile_w"])).ravel()
    positions = positions + layout["column_begin"]
    for group, first, channels, split in passes_of(layout):
        first_ci = group * layout["group_ci"]
        taps_of = weight[first_ci : first_ci + layout["group_ci"]]
        phases = range(h["out_stride"]) if layout["split_phases"] == 1 else [split]
        columns = layout["columns"][split]
        assert len(columns) in (0, layout["column_tiles"] * COLUMNS)
        owned = [column[:3] for column in columns if column[0] < channels]
        assert len(owned) == len(set(owned))
        for tile in range(layout["num_tiles"]):
            row, tile_w = divmod(tile, layout["tiles_w"])
            image, tile_h = divmod(row, layout["tiles_h"])
            q_h, q_w = h["first"] + tile_h * layout["tile_h"], w["first"] + tile_w * layout["tile_w"]
            # The source tile, zero outside.
            rows = q_h + least_h + np.arange(layout["rows"])
            source_columns = q_w + layout["column_offset"] + np.arange(layout["pitch"])
            inside = np.outer((rows >= 0) & (rows < h["in"]), (source_columns >= 0) & (source_columns < w["in"]))
            source = x[image, first_ci : first_ci + layout["group_ci"]]
            source = source[:, rows.clip(0, h["in"] - 1)][:, :, source_columns.clip(0, w["in"] - 1)] * inside
            source = source.reshape(layout["group_ci"], -1)
            assert source.shape[1] == layout["raw_channel"]
            sums = np.zeros((len(columns), len(positions)))
            for (t_h, (offset_h, ks_h)), (t_w, (offset_w, ks_w)) in product(enumerate(h["taps"]), enumerate(w["taps"])):
                distance = (offset_h - least_h) * layout["pitch"] + offset_w - least_w
                operand = source[:, positions + distance]
                for number, (co, phase_h, phase_w, mask_h, mask_w, _) in enumerate(columns):
                    has = bool(mask_h >> t_h & 1) and bool(mask_w >> t_w & 1)
                    first_of_tile = columns[number // COLUMNS * COLUMNS]
                    assert (mask_h, mask_w) == first_of_tile[3:5]  # a tile's columns are of one class
                    if co >= channels:
                        continue
                    k_h, k_w = ks_h[phase_h], ks_w[phase_w]
                    assert has == (k_h >= 0 and k_w >= 0)
                    if has:
                        sums[number] += taps_of[:, first + co, k_h, k_w] @ operand
            # Staged rows, and those without taps.
            staged: dict[int, float] = {}
            for number, (co, _, _, _, _, place) in enumerate(columns):
                if co < channels:
                    for index, value in enumerate(sums[number]):
                        position_row, column = divmod(index, layout["tile_w"])
                        staged[place + position_row * layout["stage_row"] + column * w["out_stride"]] = value
            numbers = {phase: number for number, phase in enumerate(filled_phases(layout, split))}
            for co, position_row, phase in product(range(channels), range(layout["tile_h"]), phases):
                o_h = (q_h + position_row) * h["out_stride"] + phase - h["out_origin"]
                if not 0 <= o_h < h["out"]:
                    continue
                channel = group * layout["group_co"] + first + co
                begin = None
                if phase - phases[0] in numbers:
                    number = numbers[phase - phases[0]]
                    stride = problem["y_stride"][2]
                    begin = staged_row(layout, stride, number, phase - phases[0], co, position_row)
                for column in range(layout["tile_w"] * w["out_stride"]):
                    o_w = q_w * w["out_stride"] - w["out_origin"] + column
                    if 0 <= o_w < w["out"]:
                        value = 0.0 if begin is None else staged.get(begin + column, 0.0)
                        y[image, channel, o_h, o_w] = value + (0.0 if bias is None else bias[channel])
                        writes[image, channel, o_h, o_w] += 1
    return y, writes

"""What a thin plan promises, and its execution in numpy from the numbers that the kernel is launched with."""

from __future__ import annotations

from itertools import product
from math import isfinite
from types import ModuleType
from typing import Any

import numpy as np
from plan.legal import assert_launch_is_of
from plan.problems import FLOAT32, FLOAT64, IEEE, TF32, TF32X3, Problem


def blocks_of(layout: dict[str, Any]):
    """(groups, channels of each, H phases, tiles) of every CTA, as kernels/thin/tile.cuh decodes its index."""
    for block in range(layout["num_blocks"]):
        index, number = divmod(block, layout["passes"])
        number, split = divmod(number, layout["phase_splits"])
        group_block, co_tile = divmod(number, layout["co_tiles"])
        first_group = group_block * layout["block_groups"]
        groups = range(first_group, min(first_group + layout["block_groups"], layout["groups"]))
        first = co_tile * layout["block_co"]
        channels = range(first, min(first + layout["block_co"], layout["group_co"]))
        phases = range(layout["h"]["out_stride"]) if layout["phase_splits"] == 1 else range(split, split + 1)
        first_tile = index * layout["tiles_per_block"]
        tiles = range(first_tile, min(first_tile + layout["tiles_per_block"], layout["num_tiles"]))
        yield groups, channels, phases, tiles


def places_of(layout: dict[str, Any]) -> dict[int, tuple[int, int]]:
    """Element of a channel in shared memory -> source row and column, counted from the tile's first position."""
    places = {}
    for row, column in product(range(layout["rows"]), range(layout["columns"])):
        place = row * layout["pitch"] + column
        assert place not in places
        assert place < layout["channel_pitch"]
        places[place] = (row + layout["row_offset"], column + layout["column_offset"])
    return places


def assert_thin_is_legal(module: ModuleType, problem: Problem, device: list[int], plan: dict[str, Any]) -> None:
    """The layout is the plan's, it fits, every tap reads what was loaded for it, staged results do not overlap."""
    assert problem["dtype"] != FLOAT64
    assert problem["precision"] in (IEEE, TF32X3, TF32)
    layout = module.thin_layout(problem, plan)
    assert layout is not None, plan
    assert_launch_is_of(layout, plan, device)
    assert plan["threads"] % 32 == 0, plan
    assert 32 <= plan["threads"] <= 256, plan
    assert plan["threads"] == 32 * layout["warps_w"] * layout["output_blocks"] * layout["block_groups"]
    for key in ("compute_us", "memory_us", "estimate_us"):
        assert isfinite(plan[key]), plan
        assert plan[key] > 0, plan

    places = places_of(layout)
    last_row, last_column = layout["tile_h"] - 1, layout["tile_w"] - 1
    for row, column in {(0, 0), (0, last_column), (last_row, 0), (last_row, last_column)}:
        for (offset_h, _), tap_row in zip(layout["h"]["taps"], layout["tap_row"], strict=True):
            for (offset_w, _), tap_column in zip(layout["w"]["taps"], layout["tap_column"], strict=True):
                place = row * layout["pitch"] + column + tap_row + tap_column
                assert places[place] == (row + offset_h, column + offset_w), plan
    positions = 32 * layout["positions"] * layout["warps_w"]
    assert last_row * layout["pitch"] + last_column < positions, plan

    element = 4 if problem["dtype"] == FLOAT32 else 2
    phases = layout["h"]["out_stride"] if layout["phase_splits"] == 1 else 1
    sizes = {
        "stage_channel": layout["block_groups"] * layout["block_co"],
        "stage_row": layout["tile_h"],
        "stage_phase": phases,
        "stage_column": layout["tile_w"] * layout["w"]["out_stride"],
    }
    # Sorted by stride, each dimension lies within one step of the next.
    extent = 1
    for key in sorted((key for key in sizes if sizes[key] > 1), key=lambda key: layout[key]):
        assert layout[key] >= extent, (key, plan)
        extent += (sizes[key] - 1) * layout[key]
    slack = 0 if layout["channels_last_result"] else layout["store_vector"] - 1
    assert (extent + slack) * element <= layout["weight_begin"], plan
    # Until the weights are there, a table of them lies where the source will. Of steps the mainloop reads two more.
    assert 4 * layout["taps"] * layout["outputs"] <= layout["weight_begin"], plan
    assert 8 * (layout["chunk_ci"] * layout["taps"] + 2) <= layout["quad_begin"] - layout["step_begin"], plan
    if not layout["channels_last_result"]:
        vector, stride = layout["store_vector"], problem["y_stride"]
        channel_stride = stride[1] if problem["c_out"] > 1 else layout["stage_channel"]
        for key, global_stride in (
            ("stage_channel", channel_stride),
            ("stage_row", stride[2] * layout["h"]["out_stride"]),
        ):
            assert sizes[key] == 1 or (layout[key] - global_stride) % vector == 0, (key, plan)
        assert phases == 1 or (layout["stage_phase"] - stride[2]) % vector == 0, plan


def run(module: ModuleType, problem: Problem, plan: dict[str, Any], x, weight, bias):
    """The plan's result and how often each output was written."""
    layout = module.thin_layout(problem, plan)
    h, w = layout["h"], layout["w"]
    shape = (problem["batch"], problem["c_out"], h["out"], w["out"])
    y, writes = np.full(shape, np.nan), np.zeros(shape, dtype=int)
    for groups, channels, phases_h, tiles in blocks_of(layout):
        for tile in tiles:
            row, tile_w = divmod(tile, layout["tiles_w"])
            image, tile_h = divmod(row, layout["tiles_h"])
            q_h = h["first"] + tile_h * layout["tile_h"] + np.arange(layout["tile_h"])
            q_w = w["first"] + tile_w * layout["tile_w"] + np.arange(layout["tile_w"])
            for phase_h, phase_w, group in product(phases_h, range(w["out_stride"]), groups):
                o_h, o_w = (
                    q * axis["out_stride"] + phase - axis["out_origin"]
                    for q, axis, phase in ((q_h, h, phase_h), (q_w, w, phase_w))
                )
                in_h, in_w = (o_h >= 0) & (o_h < h["out"]), (o_w >= 0) & (o_w < w["out"])
                first = group * layout["group_co"]
                outputs = [first + channel for channel in channels]
                sums = np.zeros((len(outputs), int(in_h.sum()), int(in_w.sum())))
                for (offset_h, taps_h), (offset_w, taps_w) in product(h["taps"], w["taps"]):
                    k_h, k_w = taps_h[phase_h], taps_w[phase_w]
                    if k_h < 0 or k_w < 0:
                        continue
                    i_h, i_w = q_h[in_h] + offset_h, q_w[in_w] + offset_w
                    inside = np.outer((i_h >= 0) & (i_h < h["in"]), (i_w >= 0) & (i_w < w["in"]))
                    first_ci = group * layout["group_ci"]
                    source = x[image, first_ci : first_ci + layout["group_ci"]]
                    source = source[:, i_h.clip(0, h["in"] - 1)][:, :, i_w.clip(0, w["in"] - 1)] * inside
                    taps = weight[first_ci : first_ci + layout["group_ci"], channels.start : channels.stop, k_h, k_w]
                    sums += np.einsum("ihw,io->ohw", source, taps)
                if bias is not None:
                    sums += bias[outputs][:, None, None]
                place = np.ix_([image], outputs, o_h[in_h], o_w[in_w])
                y[place] = sums
                writes[place] += 1
    return y, writes

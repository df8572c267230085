"""What a plan of the mma engine's gradient of the input promises, and its execution in numpy."""

from __future__ import annotations

from itertools import pairwise, product
from math import isfinite
from types import ModuleType
from typing import Any

import numpy as np
from plan.legal import assert_launch_is_of
from plan.problems import FLOAT32, GRAD_INPUT, TF32, TF32X3, Problem, sizes_of
from plan.tensor_cores import HALF


def copies_of(problem: Problem, layout: dict[str, Any], row_0: int, column_0: int):
    """(place in a plane of the stage, row, first column, elements) of every copy, as load_stage() makes them."""
    h, w, pitch = problem["h"], problem["w"], layout["column_pitch"]
    begin, end = max(0, -column_0), min(layout["columns"], w["out"] - column_0)
    if begin >= end:
        return
    row_elements = (end - begin - 1) * pitch + (layout["chunk_co"] if layout["interleaved"] else 1)
    if layout["joined"]:
        first, last = max(0, -row_0), min(layout["slots"], h["out"] - row_0)
        if first < last:
            elements = (last - first - 1) * layout["slot_pitch"] + row_elements
            yield first * layout["slot_pitch"] + begin * pitch, row_0 + first, column_0 + begin, elements
        return
    for slot in range(layout["slots"]):
        if layout["apart"]:
            q, k = divmod(slot, h["kernel"])
            place = q * layout["position_pitch"] + k * layout["tap_pitch"]
            row = q * h["stride"] + k * h["dilation"]
        else:
            place, row = slot * layout["slot_pitch"], slot * layout["row_step"]
        if 0 <= row_0 + row < h["out"]:
            yield place + begin * pitch, row_0 + row, column_0 + begin, row_elements


def assert_is_legal(module: ModuleType, problem: Problem, device: list[int], plan: dict[str, Any]) -> dict[str, Any]:
    """The layout is the plan's, it fits, rows lie apart and on vectors where memory's do."""
    half = problem["dtype"] != FLOAT32
    assert problem["direction"] == GRAD_INPUT
    assert problem["precision"] in ((HALF,) if half else (TF32, TF32X3))
    layout = module.mma_grad_input_layout(problem, plan)
    assert layout is not None, plan
    assert_launch_is_of(layout, plan, device)
    assert plan["threads"] == 32 * (plan["warps"] + layout["loaders"]) <= 512, plan
    assert layout["loaders"] > 0, plan
    for key in ("compute_us", "memory_us", "estimate_us"):
        assert isfinite(plan[key]), plan
        assert plan[key] > 0, plan
    blocks = layout["num_blocks"] // layout["groups"]
    assert layout["tiles_per_block"] * blocks + layout["longer_blocks"] == layout["num_tiles"]
    assert layout["chunk_co"] * layout["num_chunks"] == layout["group_co"]
    units = layout["channel_units"] * layout["position_units"]
    assert (layout["num_chunks"] == layout["splits"] == 1) or units <= plan["warps"] // plan["splits"]

    element, vector = (2, 8) if half else (4, 4)
    h, stride = problem["h"], problem["y_stride"]
    assert (layout["channel_pitch"] - stride[1]) % vector == 0, plan
    assert (layout["position_pitch"] - h["stride"] * stride[2]) % vector == 0, plan
    assert (layout["tap_pitch"] - h["dilation"] * stride[2]) % vector == 0, plan
    stage_bytes = layout["stage_bytes"]
    assert (layout["chunk_co"] * layout["channel_pitch"] + 2 * vector) * element <= stage_bytes, plan
    plane = stage_bytes // element - 2 * vector if layout["interleaved"] else layout["channel_pitch"]
    assert stage_bytes % 128 == 0, plan
    # Whole vectors around one copy touch no other.
    copies = sorted(copies_of(problem, layout, 0, 0))
    ends = [place + elements + vector - 1 for place, _, _, elements in copies]
    assert all(end <= copy[0] - vector + 1 for end, copy in zip(ends, copies[1:], strict=False)), plan
    assert not ends or ends[-1] <= plane + vector, plan
    # Every tap of every position finds its row and column.
    for co, k_h, k_w, place in layout["taps"]:
        column = k_w * problem["w"]["dilation"] * layout["column_pitch"]
        assert place == co * layout["channel_pitch"] + k_h * layout["tap_pitch"] + column
    for a, b in pairwise(sorted(layout["taps"])):
        assert a[:3] != b[:3]
    assert len(layout["taps"]) == layout["chunk_co"] * taps_of(problem)
    if layout["raw_weights"]:  # which come to the last slot first, in whole vectors
        assert layout["stages"] > 1, plan
        assert layout["group_ci"] * layout["raw_pitch"] * element <= stage_bytes, plan
        assert layout["raw_bytes"] == layout["chunk_co"] * layout["num_chunks"] * taps_of(problem) * element
        contiguous = layout["raw_pitch"] * element == layout["raw_bytes"]
        assert layout["raw_bytes"] * (layout["group_ci"] if contiguous else 1) % 16 == 0, plan
        assert contiguous or layout["raw_pitch"] * element % 128 == 16, plan
    return layout


def taps_of(problem: Problem) -> int:
    return problem["h"]["kernel"] * problem["w"]["kernel"]


def run(problem: Problem, layout: dict[str, Any], grad_output: np.ndarray, weight: np.ndarray):
    """The gradient, and how often each element was written."""
    shape, h, w = sizes_of(problem)[0], problem["h"], problem["w"]
    result, writes = np.full(shape, np.nan), np.zeros(shape, dtype=np.int32)
    group_ci, group_co, chunk_co = layout["group_ci"], layout["group_co"], layout["chunk_co"]
    interleaved, stride = layout["interleaved"], problem["y_stride"]
    planes = 1 if interleaved else chunk_co
    images = (grad_output.transpose(0, 2, 3, 1) if interleaved else grad_output).reshape(problem["batch"], -1)
    first_tile = 0
    for block in range(layout["num_blocks"] // layout["groups"]):
        tiles = layout["tiles_per_block"] + (block < layout["longer_blocks"])
        for number, group in product(range(first_tile, first_tile + tiles), range(layout["groups"])):
            rest, tile_w = divmod(number, layout["tiles_w"])
            image, tile_h = divmod(rest, layout["tiles_h"])
            q_h, q_w = tile_h * layout["tile_h"], tile_w * layout["tile_w"]
            row_0, column_0 = q_h * h["stride"] - h["padding"], q_w * w["stride"] - w["padding"]
            sums: dict[tuple[int, int], np.ndarray] = {}
            for first_co in range(0, group_co, chunk_co):
                # What no copy brings is masked.
                stage = np.full(layout["stage_bytes"] // (4 if problem["dtype"] == FLOAT32 else 2), np.nan)
                for channel in range(planes):
                    first = (group * group_co + first_co + channel) * stride[1]
                    for place, row, column, elements in copies_of(problem, layout, row_0, column_0):
                        begin = first + row * stride[2] + column * stride[3]
                        to = channel * layout["channel_pitch"] + place
                        stage[to : to + elements] = images[image, begin : begin + elements]
                filters = weight[group * group_ci : (group + 1) * group_ci, first_co : first_co + chunk_co]
                for row, column in layout["places"]:
                    if q_h + row >= h["in"] or q_w + column >= w["in"]:
                        continue
                    source = row * layout["position_pitch"] + column * w["stride"] * layout["column_pitch"]
                    total = sums.setdefault((q_h + row, q_w + column), np.zeros(group_ci))
                    for co, k_h, k_w, place in layout["taps"]:
                        o_h = row_0 + row * h["stride"] + k_h * h["dilation"]
                        o_w = column_0 + column * w["stride"] + k_w * w["dilation"]
                        if 0 <= o_h < h["out"] and 0 <= o_w < w["out"]:
                            total += stage[source + place] * filters[:, co, k_h, k_w]
            for (row, column), total in sums.items():
                result[image, group * group_ci : (group + 1) * group_ci, row, column] = total
                writes[image, group * group_ci : (group + 1) * group_ci, row, column] += 1
        first_tile += tiles
    return result, writes

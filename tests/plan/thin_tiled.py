"""Results in tiles, as kernels/streamed/tiled.cuh has them, and their sums term by term."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np


class ResultTile(NamedTuple):
    """The results of a CTA."""

    group: int
    phase_h: int
    phase_w: int
    position: int  # the first
    channel: int  # of the group, the first


def tiles(layout: dict[str, Any]) -> Iterator[ResultTile]:
    for block in range(layout["num_blocks"]):
        rest, channel_tile = divmod(block, layout["by_channel_tiles"])
        rest, phase = divmod(rest, layout["by_phases"])
        group, position_tile = divmod(rest, layout["by_position_tiles"])
        phase_h, phase_w = divmod(phase, len(layout["phases_w"]))
        position, channel = position_tile * layout["block_positions"], channel_tile * layout["block_channels"]
        yield ResultTile(group, phase_h, phase_w, position, channel)


def existing_taps(layout: dict[str, Any], tile: ResultTile, row: int, column: int) -> list[tuple[int, int, int, int]]:
    """(row, column) of the source and of the kernel, for each tap that a position has, in the order of its sum."""
    h, w = layout["phases_h"][tile.phase_h], layout["phases_w"][tile.phase_w]
    taps = []
    for k_h, k_w in product(range(h["num_taps"]), range(w["num_taps"])):
        i = row * layout["row_step"] + h["first_shift"] - k_h * h["shift_step"]
        j = column * layout["column_step"] + w["first_shift"] - k_w * w["shift_step"]
        if 0 <= i < layout["rows"] and 0 <= j < layout["columns"]:
            taps.append((i, j, h["first_tap"] + k_h * h["tap_step"], w["first_tap"] + k_w * w["tap_step"]))
    return taps


class Results:
    """What the kernel wrote, and how often."""

    def __init__(self, layout: dict[str, Any], operands: tuple[np.ndarray, np.ndarray, np.ndarray | None], size):
        self.layout = layout
        self.source, self.weight, self.bias = operands
        self.values = np.full(size, np.nan)
        self.writes = np.zeros(size, dtype=np.int32)

    def write(self, tile: ResultTile, place: tuple[int, int, int], of_group: int) -> None:
        """The result of a position (image, row, column) and a channel of the tile's group, where there is one."""
        layout, (image, row, column) = self.layout, place
        result_row = row * len(layout["phases_h"]) + tile.phase_h
        result_column = column * len(layout["phases_w"]) + tile.phase_w
        if of_group >= layout["group_co"]:
            return
        if result_row >= layout["result_rows"] or result_column >= layout["result_columns"]:
            return
        total = 0.0
        taps = existing_taps(layout, tile, row, column)
        for ci, (i, j, *tap) in product(range(layout["group_ci"]), taps):
            of = np.dot((ci, of_group, *tap), layout["weight_stride"]) + tile.group * layout["weight_group_stride"]
            at = np.dot((image, tile.group * layout["group_ci"] + ci, i, j), layout["source_stride"])
            total += self.source[at] * self.weight[of]
        channel = tile.group * layout["group_co"] + of_group
        at = (image, channel, result_row, result_column)
        self.values[at] = total + (0 if self.bias is None else self.bias[channel])
        self.writes[at] += 1

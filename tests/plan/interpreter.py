"""Executes a plan as the kernels do, in numpy: tile_of_block, then stages, then stores. Proves tiles and phases.

Knows a plan only through `_plan` and the documented meaning of its fields, never through the kernels' code.
A plan that fuses W phases into channels (problem/fuse.h) is executed on the fused problem, then unshuffled.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from plan.problems import ATEN, FORWARD, GRAD_INPUT, Problem, sizes_of


class Stage(NamedTuple):
    """Input channels of the group and taps of the phase, along each axis, that one pipeline stage holds."""

    channels: range
    taps_h: range
    taps_w: range


class Tap(NamedTuple):
    tap: int
    shift: int


def taps_of(phase: dict[str, int]) -> list[Tap]:
    """The taps of a phase: their place in the kernel, and the input coordinate that position 0 needs."""
    return [
        Tap(phase["first_tap"] + t * phase["tap_step"], phase["first_shift"] - t * phase["shift_step"])
        for t in range(phase["num_taps"])
    ]


def _chunks(count: int, chunk: int) -> list[range]:
    return [range(begin, min(begin + chunk, count)) for begin in range(0, count, chunk)]


def stages(plan: dict[str, Any], aten: bool, c_in: int, num_taps_h: int, num_taps_w: int) -> Iterator[Stage]:
    """The stages of one tile and phase in the order of time. c_in is that of one group."""
    channels = _chunks(c_in, plan["chunk_ci"])
    rows = _chunks(num_taps_h, plan["chunk_kh"])
    columns = _chunks(num_taps_w, plan["chunk_kw"])
    if aten:  # taps outermost and descending: that is ascending input row and column
        order = [(ci, th, tw) for th in reversed(rows) for tw in reversed(columns) for ci in channels]
    else:
        order = [(ci, th, tw) for ci in channels for th in rows for tw in columns]
    for ci, th, tw in order:
        yield Stage(ci, th, tw)


def _inside(begin: int, count: int, size: int, step: int) -> tuple[slice, slice]:
    """Of the `count` coordinates begin, begin + step, ... those within 0 .. size: their places, and themselves."""
    low = min(max(0, -(begin // step)), count)
    high = max(low, min(count, -(-(size - begin) // step)))
    return slice(low, high), slice(begin + low * step, max(begin + (high - 1) * step + 1, 0), step)


def computed_problem(module: ModuleType, problem: Problem, plan: dict[str, Any]) -> Problem:
    """The problem whose tiles, taps and channels a plan's fields count."""
    if problem["direction"] == GRAD_INPUT and "position_step" not in problem["h"]:
        return module.adjoint_problem(problem)
    return module.fuse_phases(problem) if plan["fused_w"] > 1 else problem


def fuse_weight(weight: np.ndarray, fused_w: int) -> np.ndarray:
    """weight'[ci, co * fused_w + v, kh, t] = weight[ci, co, kh, v + fused_w * t]."""
    c_in, c_out, kernel_h, kernel_w = weight.shape
    by_phase = weight.reshape(c_in, c_out, kernel_h, kernel_w // fused_w, fused_w)
    return by_phase.transpose(0, 1, 4, 2, 3).reshape(c_in, c_out * fused_w, kernel_h, kernel_w // fused_w)


def unfuse_output(y: np.ndarray, w: dict[str, int]) -> np.ndarray:
    """y[n, co, oh, q * stride + v - padding] = y'[n, co * stride + v, oh, q], for the columns that exist."""
    batch, c_out, rows, positions = y.shape
    by_phase = y.reshape(batch, c_out // w["stride"], w["stride"], rows, positions)
    columns = by_phase.transpose(0, 1, 3, 4, 2).reshape(batch, c_out // w["stride"], rows, positions * w["stride"])
    return columns[..., w["padding"] : w["padding"] + w["out"]]


def run(module: ModuleType, problem: Problem, plan: dict[str, Any], x, weight, bias) -> tuple[np.ndarray, np.ndarray]:
    """Executes the plan on float64 arrays. Returns the output and how often each of its elements was written."""
    fused_w = plan["fused_w"]
    if fused_w == 1:
        return _run_tiles(module, problem, plan, x, weight, bias)
    # A tile that held a part of a channel's phases could not store whole rows.
    assert fused_w == problem["w"]["stride"]
    assert plan["block_co"] % fused_w == 0
    fused = computed_problem(module, problem, plan)
    fused_bias = None if bias is None else np.repeat(bias, fused_w)
    results = _run_tiles(module, fused, plan, x, fuse_weight(weight, fused_w), fused_bias)
    y, writes = (unfuse_output(result, problem["w"]) for result in results)
    assert list(y.shape) == sizes_of(problem)[2]
    return y, writes


def run_grad_input(module: ModuleType, problem: Problem, plan: dict[str, Any], grad_output, weight):
    """run() of a plan for the gradient of the input: the adjoint problem, with the weight's channels exchanged."""
    groups = problem["groups"]
    by_group = weight.reshape(groups, problem["c_in"] // groups, *weight.shape[1:])
    exchanged = by_group.swapaxes(1, 2).reshape(problem["c_out"], problem["c_in"] // groups, *weight.shape[2:])
    return _run_tiles(module, module.adjoint_problem(problem), plan, grad_output, exchanged, None)


def _run_tiles(module: ModuleType, problem: Problem, plan: dict[str, Any], x, weight, bias):
    """run() for the problem that the plan's fields count."""
    y = np.full(sizes_of(problem)[2], np.nan)
    writes = np.zeros(y.shape, dtype=np.int32)
    h, w, groups = problem["h"], problem["w"], problem["groups"]
    c_in, c_out = problem["c_in"] // groups, problem["c_out"] // groups
    step_h, step_w = h.get("position_step", 1), w.get("position_step", 1)
    aten = problem["precision"] == ATEN and problem["direction"] == FORWARD
    phases = {
        axis: [
            (module.num_positions(problem[axis], phase), taps_of(module.make_phase(problem[axis], phase)))
            for phase in range(min(problem[axis]["stride"], problem[axis]["out"]))
        ]
        for axis in ("h", "w")
    }

    for tile in module.all_tiles(problem, plan).tolist():
        n_begin, group, co_begin, phase_h, p_h_begin, phase_w_begin, num_phases_w, p_w_begin = tile
        images = slice(n_begin, min(n_begin + plan["tile_n"], problem["batch"]))
        # A tile ends where the group ends, not where the tensor does.
        channels = slice(group * c_out + co_begin, group * c_out + min(co_begin + plan["block_co"], c_out))
        local = slice(co_begin, channels.stop - group * c_out)
        positions_h, taps_h = phases["h"][phase_h]
        num_h = min(plan["tile_h"], positions_h - p_h_begin)

        for phase_w in range(phase_w_begin, phase_w_begin + num_phases_w):
            positions_w, taps_w = phases["w"][phase_w]
            # The first tile may begin before the first position.
            p_w_first = max(p_w_begin, 0)
            num_w = min(p_w_begin + plan["tile_w"], positions_w) - p_w_first
            if num_h <= 0 or num_w <= 0:
                continue
            sums = np.zeros((images.stop - images.start, channels.stop - channels.start, num_h, num_w))
            for stage in stages(plan, aten, c_in, len(taps_h), len(taps_w)):
                ci = slice(group * c_in + stage.channels.start, group * c_in + stage.channels.stop)
                for kh, shift_h in taps_h[stage.taps_h.start : stage.taps_h.stop]:
                    tile_rows, rows = _inside(p_h_begin * step_h + shift_h, num_h, h["in"], step_h)
                    if tile_rows.start == tile_rows.stop:
                        continue
                    for kw, shift_w in taps_w[stage.taps_w.start : stage.taps_w.stop]:
                        tile_columns, columns = _inside(p_w_first * step_w + shift_w, num_w, w["in"], step_w)
                        if tile_columns.start == tile_columns.stop:
                            continue
                        operand = x[images, ci, rows, columns]  # [image, c_in, row, column]
                        slab = weight[ci, local, kh, kw]
                        product = slab.T @ operand.reshape(*operand.shape[:2], -1)
                        sums[:, :, tile_rows, tile_columns] += product.reshape(*product.shape[:2], *operand.shape[2:])
            if bias is not None:
                sums += bias[channels, None, None]
            # The last position of the tile is the last output: a slice may not run past it to the next one.
            first_row, first_column = phase_h + p_h_begin * h["stride"], phase_w + p_w_first * w["stride"]
            target = (
                images,
                channels,
                slice(first_row, first_row + (num_h - 1) * h["stride"] + 1, h["stride"]),
                slice(first_column, first_column + (num_w - 1) * w["stride"] + 1, w["stride"]),
            )
            y[target] = sums
            writes[target] += 1
    return y, writes

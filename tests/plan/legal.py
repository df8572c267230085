"""What plan.h and *_instances.h promise of every plan, whoever made it."""

from __future__ import annotations

from math import isfinite
from types import ModuleType
from typing import Any

from plan.interpreter import computed_problem
from plan.problems import ATEN, FLOAT32, FLOAT64, FORWARD, IEEE, Problem

GRID_LIMIT = 2**31 - 1  # blocks of a one-dimensional grid


def is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def served_precision(problem: Problem) -> int:
    """Of the exact-order engine: `ieee` serves the tensor-core classes, and only float32 has `aten`."""
    forward = problem["direction"] == FORWARD
    return ATEN if forward and problem["precision"] == ATEN and problem["dtype"] == FLOAT32 else IEEE


def assert_launch_is_of(layout: dict[str, Any], plan: dict[str, Any], device: list[int]) -> None:
    """What a plan says of its launch is what its layout, which was made anew, has; and the device can launch it."""
    for key in ("threads", "shared_bytes", "num_blocks"):
        assert plan[key] == layout[key], plan
    assert plan["shared_bytes"] <= device[2], plan
    assert 1 <= plan["num_blocks"] <= GRID_LIMIT, plan


def assert_fusing_is_legal(module: ModuleType, problem: Problem, plan: dict[str, Any]) -> None:
    """Phases become channels all together, and only where problem/fuse.h allows."""
    if plan["fused_w"] == 1:
        return
    assert module.can_fuse_phases(problem), plan
    assert plan["fused_w"] == problem["w"]["stride"], plan
    assert plan["phases_w"] == 1, plan
    assert plan["block_co"] % plan["fused_w"] == 0, plan


def assert_legal(module: ModuleType, problem: Problem, device: list[int], plan: dict[str, Any]) -> None:
    """Every constraint on a plan. A failure shows the plan."""
    assert_fusing_is_legal(module, problem, plan)
    problem = computed_problem(module, problem, plan)
    instance = module.instances()[plan["instance"]]
    assert instance["dtype"] == problem["dtype"]
    assert instance["direction"] == problem["direction"]
    assert instance["precision"] == served_precision(problem)

    threads, thread_co, quads = plan["threads"], instance["thread_co"], instance["quads"]
    assert threads % 32 == 0, plan
    assert 32 <= threads <= 256, plan
    assert plan["block_co"] % thread_co == 0, plan
    assert is_power_of_two(plan["block_co"] // thread_co), plan
    channel_threads = plan["block_co"] // thread_co
    assert threads % channel_threads == 0, plan
    assert channel_threads <= threads // 8, plan  # a warp holds at most 4 channel groups

    h, w = problem["h"], problem["w"]
    positions_h = module.num_positions(h, 0)
    assert min(plan[key] for key in ("tile_n", "tile_h", "tile_w", "phases_w", "chunk_ci", "chunk_kh", "chunk_kw")) >= 1
    assert plan["tile_w"] % 4 == 0, plan
    assert plan["phases_w"] <= min(w["stride"], w["out"], module.max_phases_w), plan
    assert plan["tile_n"] == 1 or plan["tile_h"] >= positions_h, plan
    tile_quads = plan["tile_n"] * plan["tile_h"] * (plan["tile_w"] // 4)
    assert tile_quads <= threads // channel_threads * quads, plan

    c_in = problem["c_in"] // problem["groups"]
    taps_h, taps_w = module.max_taps(h), module.max_taps(w)
    assert plan["chunk_ci"] <= c_in, plan
    if served_precision(problem) == ATEN:
        assert (plan["chunk_kh"], plan["chunk_kw"]) == (1, 1), plan
    else:  # otherwise a later stage would bring terms that come earlier in the order
        assert plan["chunk_kh"] >= taps_h or plan["chunk_ci"] == 1, plan
        assert plan["chunk_kw"] >= taps_w or (plan["chunk_ci"] == 1 and plan["chunk_kh"] == 1), plan
    assert 1 <= plan["stages"] <= module.max_stages, plan
    # What a stage holds at the very least, counted in integers that do not overflow.
    weight_elems = plan["block_co"] * plan["chunk_kh"] * plan["chunk_kw"]
    input_elems = plan["tile_n"] * plan["tile_h"] * plan["tile_w"]
    accumulator_bytes = 8 if problem["dtype"] == FLOAT64 else 4
    stage_bytes = plan["chunk_ci"] * (weight_elems + input_elems) * accumulator_bytes
    assert plan["stages"] * stage_bytes <= plan["shared_bytes"] <= device[2], plan
    assert plan["num_blocks"] == module.num_tiles(problem, plan), plan
    assert 1 <= plan["num_blocks"] <= GRID_LIMIT, plan
    for key in ("compute_us", "memory_us", "estimate_us"):
        assert isfinite(plan[key]), plan
        assert plan[key] > 0, plan
    assert plan["estimate_us"] >= max(plan["compute_us"], plan["memory_us"]) * (1 - 1e-12), plan

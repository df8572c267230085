"""What plan.h and the instances promise of every plan, whoever made it."""

from __future__ import annotations

from math import isfinite
from types import ModuleType
from typing import Any

from families import family_of
from plan.problems import ATEN, FLOAT16, FLOAT32, FLOAT64, FORWARD, GRAD_INPUT, IEEE, Problem, is_channels_last
from plan.tensor_cores import KINDS, on_tensor_cores
from raw_ops import DIRECTIONS

GRID_LIMIT = 2**31 - 1  # blocks of a one-dimensional grid
DTYPE_WORDS = ("f32", "f64", "f16", "bf16")  # in names of kernels


def is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def served_precision(problem: Problem) -> int:
    """Of the exact-order engine: `ieee` serves the tensor-core classes, and only float32 has `aten`."""
    forward = problem["direction"] == FORWARD
    return ATEN if forward and problem["precision"] == ATEN and problem["dtype"] == FLOAT32 else IEEE


def assert_launchable(plan: dict[str, Any], device: list[int]) -> None:
    """The device can launch the plan, whose numbers fit their types."""
    # Some kernels have no dynamic shared memory.
    assert 0 <= plan["shared_bytes"] <= device[2], plan
    assert 1 <= plan["num_blocks"] <= GRID_LIMIT, plan
    assert 32 <= plan["threads"] <= 1024, plan
    assert plan["threads"] % 32 == 0, plan
    assert 0 <= plan["packed_bytes"] <= plan["workspace_bytes"], plan
    # CTAs that take tile after tile step beyond the last one, in 32 bits.
    assert plan.get("num_tiles", 0) + plan["num_blocks"] <= GRID_LIMIT, plan
    for key in ("compute_us", "memory_us", "estimate_us"):
        assert isfinite(plan[key]), plan
        assert plan[key] > 0, plan


def assert_served(problem: Problem, device: list[int], plan: dict[str, Any]) -> None:
    """The kernel is of the problem's class, direction and result format, and the GPU has its instructions."""
    kernel, direction = plan["kernel"], DIRECTIONS[problem["direction"]]
    words = kernel.split("_")
    if not on_tensor_cores(plan):
        assert DTYPE_WORDS[problem["dtype"]] in words, kernel
        assert ("aten" in words) == (served_precision(problem) == ATEN), kernel
        assert {of for of in DIRECTIONS if f"_{of}_" in kernel} == {direction} - {"forward"}, kernel
        return
    family = family_of(kernel, direction)
    assert words[1] in family.classes, kernel
    assert KINDS[words[1]] == (problem["dtype"], problem["precision"]), kernel
    assert device[0] == 90 or (plan["engine"] == "portable" and device[0] >= 75), kernel
    of_result = {"forward": "y_stride", "grad_input": "x_stride"}.get(direction)
    if of_result is not None and (channels_last := is_channels_last(problem, of_result)) is not None:
        assert channels_last in family.formats, kernel


def assert_cluster_is_legal(problem: Problem, device: list[int], plan: dict[str, Any]) -> None:
    """A cluster has one tile. Its CTAs run at once, have stages each, and exchange their sums where stages were."""
    splits = plan.get("splits", 1)
    if splits == 1 or plan["family"] not in ("strided", "nhwc", "patch", "patch_runs"):
        return
    assert splits in (2, 4, 8), plan
    assert plan["num_blocks"] % splits == 0, plan
    if plan["family"] == "patch_runs":
        assert plan["num_blocks"] <= device[1] * (2 if plan["channels"] == 64 else 1), plan
        return
    assert plan["num_blocks"] == splits * plan["num_tiles"] <= device[1], plan
    assert plan["num_chunks"] * plan.get("num_windows", 1) >= 2 * splits, plan
    if plan["family"] == "nhwc":
        positions, channels = int(plan["kernel"].rsplit("_", 1)[1].split("x")[0]), plan["block_n"]
        element = 2 if problem["dtype"] >= FLOAT16 else 4
        assert channels % (splits * 64 // element) == 0, plan  # a thread reads whole runs of 16 bytes
        assert plan["parts"] == 1, plan
    elif plan["family"] == "patch":
        assert (problem["direction"], plan["consumers"]) == (GRAD_INPUT, 2), plan
        positions, channels = plan["tile_positions"], 64 * plan["blocks"]
    else:
        kernel = problem["h"]["kernel"]
        phases = (2 if kernel == 4 else 4) if problem["direction"] == FORWARD else 1
        positions, channels = 4 * 64, plan["block_n"] * phases  # 64 quads
    assert positions * channels * 4 <= plan["stages_end"], plan


def computed_problem(module: ModuleType, problem: Problem, plan: dict[str, Any]) -> Problem:
    """The problem whose tiles, taps and channels a simt plan's fields count."""
    if problem["direction"] == GRAD_INPUT and "position_step" not in problem["h"]:
        return module.adjoint_problem(problem)
    return module.fuse_phases(problem) if plan["fused_w"] > 1 else problem


def assert_fusing_is_legal(module: ModuleType, problem: Problem, plan: dict[str, Any]) -> None:
    """Phases become channels all together, and only where problem/fuse.h allows."""
    if plan["fused_w"] == 1:
        return
    assert module.can_fuse_phases(problem), plan
    assert plan["fused_w"] == problem["w"]["stride"], plan
    assert plan["phases_w"] == 1, plan
    assert plan["block_co"] % plan["fused_w"] == 0, plan


def assert_simt_is_legal(module: ModuleType, problem: Problem, plan: dict[str, Any]) -> None:
    """Every constraint on a plan of the simt engine that is not a gradient of the weight."""
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
    assert plan["stages"] * stage_bytes <= plan["shared_bytes"], plan
    assert plan["num_blocks"] == module.num_tiles(problem, plan), plan
    assert plan["estimate_us"] >= max(plan["compute_us"], plan["memory_us"]) * (1 - 1e-12), plan

"""Benchmarks the best few plans of convt_ext and PyTorch's operator on the user's GPU, and returns the fastest.

Called by auto_dispatch.py if `torch.backends.cudnn.benchmark` requests it: at once inside `tune`, otherwise when a
direction of a shape has been called often enough (`calls_before`). Measures GPU time with cold caches, alternately.
Must not know what the calls compute.
"""

from __future__ import annotations

import math
import os
import statistics
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import torch

from ..dispatch import planner
from ..environment import _driver, _torch
from .choices import MARGIN, MEASURED, Choice
from .gpu_clock import GpuClock

_Times = TypeVar("_Times")

# Maximum and minimum number of rounds of the remaining candidates, and the GPU time that the rounds should fit into.
_MOST_ROUNDS, _LEAST_ROUNDS, _BUDGET_US = 14, 3, 15_000.0

# Candidates that are slower than the fastest by this factor plus these microseconds after two passes are dropped.
_OUT, _OUT_US = 1.25, 2.0

# A benchmark runs when the calls of a direction have taken this multiple of its cost. On held-out layers its choices
# take 8 % less time than the cost model's, so it pays off after about as many further calls: a shape that disappears
# loses little by the benchmark, and a shape that stays loses little by the calls before it.
_WORTH = 10
# The approximate cost of a benchmark: planning, cuDNN's search, which empties the allocator's cache, and launches of
# the direction and of the kernel that flushes the GPU's cache.
_COST_US, _NUM_LAUNCHES, _EMPTY_US = 50_000.0, 60, 40.0

# Allows one benchmark at a time: two on one GPU would disturb each other.
_lock = threading.Lock()

# The setting of this process: False disables benchmarks, True benchmarks each shape in its first call, None follows
# PyTorch's switches.
_forced: bool | None = False if os.environ.get("CONVT_EXT_REPLAY", "") not in ("", "0") else None


def is_enabled() -> bool:
    """Returns whether to benchmark: the setting of this process, else PyTorch's switches, which must request benchmarks
    and must not request reproducible results."""
    if _forced is not None:
        return _forced
    return (
        _torch.get_cudnn_benchmark()
        and not _torch.get_cudnn_deterministic()
        and not _torch.get_deterministic_algorithms()
    )


def calls_before(estimate: Choice) -> int | None:
    """Returns how many calls of a direction use the cost model's choice before its benchmark; None if there is nothing
    to compare. Depends only on the estimate, so the number is equal in every run and on every rank."""
    if math.isinf(estimate.ours_us):
        return None
    if _forced:
        return 0
    us = max(1.0, min(estimate.ours_us, estimate.torch_us or math.inf))
    return math.ceil(_WORTH * (_COST_US + _NUM_LAUNCHES * (us + _EMPTY_US)) / us)


def force(measures: bool | None) -> bool | None:
    """Replaces the setting of this process (see `_forced`), and returns the old one."""
    global _forced
    before, _forced = _forced, measures
    return before


@contextmanager
def forced(measures: bool | None) -> Iterator[None]:
    """Calls `force` on entry, and restores the old setting on exit."""
    before = force(measures)
    try:
        yield
    finally:
        force(before)


def is_possible() -> bool:
    """Returns whether a benchmark may run now: not during a CUDA graph capture, nor under a dispatch mode."""
    return _torch.num_dispatch_modes() == 0 and not torch.cuda.is_current_stream_capturing()


def run(
    problem: planner.Problem,
    direction: int,
    run_ours: Callable[[int], Any],
    run_torch: Callable[[], Any] | None,
    device: torch.device,
) -> Choice | None:
    """Returns the choice of a benchmark; None if no kernel of convt_ext fits, or if memory is short. `run_ours` runs
    the plan with the given candidate number on the current stream of `device`; without `run_torch`, PyTorch's operator
    is not timed."""
    contenders = planner.contenders(problem, direction)
    if not contenders:
        return None
    # A result, and copies of operands in another layout, which PyTorch's operator may make.
    other_bytes = 2 * problem.tensor_bytes() + max(one.workspace_bytes for one in contenders)
    calls: list[Callable[[], Any]] = [lambda number=one.number: run_ours(number) for one in contenders]  # type: ignore[misc]
    if run_torch is not None:
        calls.append(run_torch)
    try:
        best, times = timed(partial(_compare, calls, len(contenders)), device, other_bytes)
    except torch.OutOfMemoryError:
        return None
    torch_us = times[-1] if run_torch is not None else 0.0
    by_torch = 0 < torch_us < MARGIN * times[best]
    return Choice(by_torch, contenders[best].number, times[best], torch_us, MEASURED)


def timed(compute: Callable[[torch.Tensor], _Times], device: torch.device, other_bytes: int = 0) -> _Times:
    """Calls `compute` with a buffer that flushes the L2 cache when written, and returns its result.

    Only one thread runs in here at a time. Raises an OutOfMemoryError if memory is short for the buffer and
    `other_bytes`, or in `compute`; the allocator's cache then keeps no memory that `compute` used.
    """
    flush_bytes = 2 * torch.cuda.get_device_properties(device).L2_cache_size
    with _lock, torch.cuda.device(device), _driver.relaxed_capture():
        if flush_bytes + other_bytes > _free_bytes(device):
            raise torch.OutOfMemoryError("too little memory is free to time a layer")
        try:
            return compute(torch.empty(flush_bytes, dtype=torch.uint8, device=device))
        except torch.OutOfMemoryError as error:
            failure = error.with_traceback(None)  # its frames hold the buffer
        # A later allocation inside a cached segment would prevent the release of the whole segment.
        torch.cuda.empty_cache()
        raise failure


def _free_bytes(device: torch.device) -> int:
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def _compare(calls: Sequence[Callable[[], Any]], num_ours: int, flush: torch.Tensor) -> tuple[int, list[float]]:
    """Returns the index of the fastest call of convt_ext, and the microseconds of each call."""
    times = _times(calls, num_ours, flush)
    best = min(range(num_ours), key=times.__getitem__)
    if best > 0:  # time the cost model's plan again: one disturbed sample must not change the choice
        both = _times([calls[0], calls[best]], 2, flush, _BUDGET_US / 3)
        times[0], times[best] = min(times[0], both[0]), min(times[best], both[1])
        best = 0 if both[0] <= both[1] else best
    return best, times


def _times(
    calls: Sequence[Callable[[], Any]], num_ours: int, flush: torch.Tensor, budget_us: float = _BUDGET_US
) -> list[float]:
    """Returns the microseconds of each call: the median, or infinity for candidates that are dropped after two passes.

    Never drops PyTorch's calls, which start at `num_ours`, or the fastest call of convt_ext.
    """
    for call in calls:
        call()  # loads kernels; cuDNN searches for an algorithm
    clock = GpuClock()
    # Uses the better of two passes, so that a disturbance of one pass does not drop the fastest candidate.
    looks = clock.times_us(calls, flush), clock.times_us(calls[::-1], flush)[::-1]
    samples = [min(both) for both in zip(*looks, strict=True)]
    fastest = min(samples)
    fastest_of_ours = min(samples[:num_ours])
    going_on = [
        index
        for index, us in enumerate(samples)
        if us <= _OUT * fastest + _OUT_US or index >= num_ours or us == fastest_of_ours
    ]
    one_round_us = sum(samples[index] for index in going_on)
    rounds = max(_LEAST_ROUNDS, min(_MOST_ROUNDS, int(budget_us / one_round_us)))
    found: dict[int, list[float]] = {index: [] for index in going_on}
    for turn in range(rounds):
        order = going_on if turn % 2 == 0 else going_on[::-1]
        for index, us in zip(order, clock.times_us([calls[index] for index in order], flush), strict=True):
            found[index].append(us)
    return [statistics.median(found[index]) if index in found else float("inf") for index in range(len(calls))]

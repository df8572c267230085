"""Times our best few plans and PyTorch's operator on the user's GPU, and reports the fastest.

Called by chosen.py where `torch.backends.cudnn.benchmark` asks for measuring: at once inside of tune.py, otherwise when
a direction of a shape has been called often enough (`calls_before`). Times are of the GPU alone, with cold caches,
alternately. Must not know what the calls compute.
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

from .. import _driver, _torch, planner
from ..gpu_clock import GpuClock
from .verdicts import MARGIN, MEASURED, Verdict

_Times = TypeVar("_Times")

# Rounds of all that may still win, as many as fit into so many microseconds of the GPU.
_MOST_ROUNDS, _LEAST_ROUNDS, _BUDGET_US = 14, 3, 15_000.0

# What the first two looks find to be slower than the fastest by so much, relative and in microseconds, is out.
_OUT, _OUT_US = 1.25, 2.0

# A benchmark runs once the calls of a direction have taken so many times as long as it costs. On held-out layers its
# choices take 8 % less time than the cost model's, so it pays for itself in about as many calls again: a shape that
# stops coming loses little by the benchmark, and one that stays loses little by the calls before it.
_WORTH = 10
# About what it costs: planning, cuDNN's search, which empties the allocator's cache, and so many launches of the
# direction and of the kernel that empties the GPU's.
_COST_US, _NUM_LAUNCHES, _EMPTY_US = 50_000.0, 60, 40.0

# One race at a time: two on one GPU would time each other.
_racing = threading.Lock()

# What this process measures: False nothing, True every new shape at once, None what PyTorch's switches ask for.
_forced: bool | None = False if os.environ.get("CONVT_EXT_REPLAY", "") not in ("", "0") else None


def is_wanted() -> bool:
    """Whether PyTorch's switches, unless this process overrules them, ask for measuring and not for the same results on
    every run."""
    if _forced is not None:
        return _forced
    return (
        _torch.get_cudnn_benchmark()
        and not _torch.get_cudnn_deterministic()
        and not _torch.get_deterministic_algorithms()
    )


def calls_before(estimate: Verdict) -> int | None:
    """How many calls of a direction run by the cost model's choice before its benchmark; None where there is nothing to
    compare. A function of the estimate alone, so that every run and every rank counts alike."""
    if math.isinf(estimate.ours_us):
        return None
    if _forced:
        return 0
    us = max(1.0, min(estimate.ours_us, estimate.torch_us or math.inf))
    return math.ceil(_WORTH * (_COST_US + _NUM_LAUNCHES * (us + _EMPTY_US)) / us)


def force(measures: bool | None) -> bool | None:
    """Has first calls measure every new shape, or nothing, or what PyTorch's switches ask for; returns what held."""
    global _forced
    before, _forced = _forced, measures
    return before


@contextmanager
def forced(measures: bool | None) -> Iterator[None]:
    """`force` for a while."""
    before = force(measures)
    try:
        yield
    finally:
        force(before)


def is_possible() -> bool:
    """Whether this moment allows it: launches of a race must neither be captured nor seen by who watches the calls."""
    return _torch.num_dispatch_modes() == 0 and not torch.cuda.is_current_stream_capturing()


def run(
    problem: planner.Problem,
    direction: int,
    run_ours: Callable[[int], Any],
    run_torch: Callable[[], Any] | None,
    device: torch.device,
) -> Verdict | None:
    """The verdict of a race; None where none of ours serves, or where memory is too short to find out.

    Args:
        run_ours: runs the candidate of that number, on the current stream of `device`.
        run_torch: runs PyTorch's operator; None where it does not take part.
    """
    contenders = planner.contenders(problem, direction)
    if not contenders:
        return None
    # A result, and what PyTorch's operator may want besides, such as copies of its operands in another layout.
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
    return Verdict(by_torch, contenders[best].number, times[best], torch_us, MEASURED)


def timed(compute: Callable[[torch.Tensor], _Times], device: torch.device, other_bytes: int = 0) -> _Times:
    """What `compute` returns of the buffer that empties the L2 cache; nothing else is timed meanwhile.

    Args:
        other_bytes: memory that it needs besides the buffer.

    Raises:
        torch.OutOfMemoryError: memory is short. The allocator keeps nothing of what `compute` used.
    """
    flush_bytes = 2 * torch.cuda.get_device_properties(device).L2_cache_size
    with _racing, torch.cuda.device(device), _driver.relaxed_capture():
        if flush_bytes + other_bytes > _free_bytes(device):
            raise torch.OutOfMemoryError("too little memory is free to time a layer")
        try:
            return compute(torch.empty(flush_bytes, dtype=torch.uint8, device=device))
        except torch.OutOfMemoryError as error:
            failure = error.with_traceback(None)  # its frames hold the buffer
        # A result that took a part of a cached segment would keep the rest from the next one.
        torch.cuda.empty_cache()
        raise failure


def _free_bytes(device: torch.device) -> int:
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def _compare(calls: Sequence[Callable[[], Any]], num_ours: int, flush: torch.Tensor) -> tuple[int, list[float]]:
    """The number of our fastest call, and the microseconds of each."""
    times = _times(calls, num_ours, flush)
    best = min(range(num_ours), key=times.__getitem__)
    if best > 0:  # the cost model's plan has a second chance: a disturbance of its few times must not cost it
        both = _times([calls[0], calls[best]], 2, flush, _BUDGET_US / 3)
        times[0], times[best] = min(times[0], both[0]), min(times[best], both[1])
        best = 0 if both[0] <= both[1] else best
    return best, times


def _times(
    calls: Sequence[Callable[[], Any]], num_ours: int, flush: torch.Tensor, budget_us: float = _BUDGET_US
) -> list[float]:
    """Microseconds of each: medians of those that may still win after two looks, infinite for the others.

    Of the calls from `num_ours` on, which are PyTorch's, none is out, nor is the fastest of ours.
    """
    for call in calls:
        call()  # loads kernels, and has cuDNN search
    clock = GpuClock()
    # The better of two looks: whatever disturbs one alone may put out the fastest.
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

"""Times GPU calls as ``triton.testing.do_bench`` does.

Before every call a buffer larger than the L2 cache is zeroed, so that the cache is cold. Events enclose each call,
which the host launches ahead (gpu_clock.py); the result is the median of many calls. Compared calls alternate. Must not
know convolutions.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity

from convt_ext.tuning.gpu_clock import GpuClock

_MIN_FLUSH_BYTES = 256 * 2**20
_MIN_CALLS, _MAX_CALLS = 10, 400
_MIN_SLOW_CALLS = 3  # for a call that exceeds the budget
_ROUNDS = 4  # even, so that each of two calls runs first equally often


class Timer(Protocol):
    """Measures median times of alternating calls in microseconds, and the memory and kernels of one call."""

    def times_us(self, calls: Sequence[Callable[[], object]]) -> list[float]: ...

    def peak_bytes(self, call: Callable[[], object]) -> int | None: ...

    def num_kernels(self, call: Callable[[], object]) -> int | None: ...


class CudaTimer:
    """Times calls on one CUDA device.

    `budget_ms` is the GPU time for each call: 10 to 400 repetitions, or 3 if one exceeds the budget.
    """

    def __init__(self, device: torch.device, budget_ms: float = 100.0) -> None:
        if budget_ms <= 0:
            raise ValueError(f"budget_ms must be positive, got {budget_ms}")
        self._device = device
        self._budget_ms = budget_ms
        l2_bytes = int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0))
        self._flush = torch.empty(max(_MIN_FLUSH_BYTES, 2 * l2_bytes), dtype=torch.int8, device=device)

    def times_us(self, calls: Sequence[Callable[[], object]]) -> list[float]:
        """Measures the median of each call in rounds, so that drifts of clocks and temperature affect all equally.

        Each round runs a part of every call's repetitions, and starts with the last call of the previous round.
        """
        with torch.cuda.device(self._device):
            numbers = [self._num_calls(call) for call in calls]
            times: list[list[float]] = [[] for _ in calls]
            clocks = [GpuClock() for _ in calls]
            for turn in range(_ROUNDS):
                for index in range(len(calls)) if turn % 2 == 0 else reversed(range(len(calls))):
                    number = numbers[index]
                    # Warm-up repetitions bring the clocks to their level under this load.
                    clocks[index].times_us([calls[index]] * _share(max(1, number // 5), turn), self._flush)
                    times[index] += clocks[index].times_us([calls[index]] * _share(number, turn), self._flush)
            return [statistics.median(of_call) for of_call in times]

    def peak_bytes(self, call: Callable[[], object]) -> int | None:
        """Measures the peak bytes of one warm call besides its operands: its result and any workspace."""
        with torch.cuda.device(self._device):
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            call()
            torch.cuda.synchronize()
            return torch.cuda.max_memory_allocated() - before

    def num_kernels(self, call: Callable[[], object]) -> int | None:
        """Counts the kernels that one warm call launches, including copies and fills."""
        with torch.cuda.device(self._device), torch.profiler.profile(activities=[ProfilerActivity.CUDA]) as profile:
            call()
            torch.cuda.synchronize()
        return sum(event.device_type == DeviceType.CUDA for event in profile.events())

    def median_us(self, call: Callable[[], object], num_calls: int) -> float:
        """Measures the median of `num_calls` calls, including lazy loading and algorithm search of the first."""
        return statistics.median(GpuClock().times_us([call] * num_calls, self._flush))

    def _num_calls(self, call: Callable[[], object]) -> int:
        """Returns the number of calls that fit into the budget, from a few timed calls."""
        # The first call includes algorithm search and lazy loading, the second the misses that the first caused.
        call()
        call()
        torch.cuda.synchronize()
        estimate_us = max(self.median_us(call, 3), 1.0)
        budget_us = 1e3 * self._budget_ms
        least = _MIN_CALLS if estimate_us < budget_us else _MIN_SLOW_CALLS
        return max(least, min(_MAX_CALLS, int(budget_us / estimate_us)))


def _share(number: int, turn: int) -> int:
    """Returns the repetitions of one round; all rounds have `number` in total, and the first ones get the remainder.

    >>> [_share(10, turn) for turn in range(_ROUNDS)]
    [3, 3, 2, 2]
    """
    return number // _ROUNDS + (turn < number % _ROUNDS)

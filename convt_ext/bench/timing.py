"""Times one GPU call the way ``triton.testing.do_bench`` does.

Before every call a buffer larger than the L2 cache is zeroed, so that nothing is found in the cache. Events surround
one call, which the host has launched by then (gpu_clock.py); the median of many calls counts. Calls that are compared
take turns. Knows nothing of convolutions.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity

from convt_ext.gpu_clock import GpuClock

_MIN_FLUSH_BYTES = 256 * 2**20
_MIN_CALLS, _MAX_CALLS = 10, 400
_MIN_SLOW_CALLS = 3  # for a call that alone takes the whole budget
_ROUNDS = 4  # even: of two calls each is the first as often as the other


class Timer(Protocol):
    """Median times of calls in microseconds, taken by turns, and the memory and the kernels that one call takes."""

    def times_us(self, calls: Sequence[Callable[[], object]]) -> list[float]: ...

    def peak_bytes(self, call: Callable[[], object]) -> int | None: ...

    def num_kernels(self, call: Callable[[], object]) -> int | None: ...


class CudaTimer:
    """Times calls on one CUDA device.

    Args:
        device: the device that the calls run on.
        budget_ms: GPU time to spend on measured calls of each kind; 10 to 400 calls are made, 3 of one that takes
            longer than the budget.
    """

    def __init__(self, device: torch.device, budget_ms: float = 100.0) -> None:
        if budget_ms <= 0:
            raise ValueError(f"budget_ms must be positive, got {budget_ms}")
        self._device = device
        self._budget_ms = budget_ms
        l2_bytes = int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0))
        self._flush = torch.empty(max(_MIN_FLUSH_BYTES, 2 * l2_bytes), dtype=torch.int8, device=device)

    def times_us(self, calls: Sequence[Callable[[], object]]) -> list[float]:
        """The median of each call, in rounds: clocks and heat that drift meet all of them alike.

        Each round makes a share of every call's repetitions, and begins with the call with which the one before ended.
        """
        with torch.cuda.device(self._device):
            numbers = [self._num_calls(call) for call in calls]
            times: list[list[float]] = [[] for _ in calls]
            clocks = [GpuClock() for _ in calls]
            for turn in range(_ROUNDS):
                for index in range(len(calls)) if turn % 2 == 0 else reversed(range(len(calls))):
                    number = numbers[index]
                    # What is not counted brings clocks to their level under this load.
                    clocks[index].times_us([calls[index]] * _share(max(1, number // 5), turn), self._flush)
                    times[index] += clocks[index].times_us([calls[index]] * _share(number, turn), self._flush)
            return [statistics.median(of_call) for of_call in times]

    def peak_bytes(self, call: Callable[[], object]) -> int | None:
        """Most bytes that one warm call holds besides its operands: its result and any workspace."""
        with torch.cuda.device(self._device):
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            call()
            torch.cuda.synchronize()
            return torch.cuda.max_memory_allocated() - before

    def num_kernels(self, call: Callable[[], object]) -> int | None:
        """How many kernels one warm call launches, copies and fills among them."""
        with torch.cuda.device(self._device), torch.profiler.profile(activities=[ProfilerActivity.CUDA]) as profile:
            call()
            torch.cuda.synchronize()
        return sum(event.device_type == DeviceType.CUDA for event in profile.events())

    def median_us(self, call: Callable[[], object], num_calls: int) -> float:
        """The median of so many calls, the first among them: what it loads or searches for is timed."""
        return statistics.median(GpuClock().times_us([call] * num_calls, self._flush))

    def _num_calls(self, call: Callable[[], object]) -> int:
        """How many calls the budget has room for, from a few of them."""
        # The first call pays for algorithm search and lazy loading, the second for what the first evicted.
        call()
        call()
        torch.cuda.synchronize()
        estimate_us = max(self.median_us(call, 3), 1.0)
        budget_us = 1e3 * self._budget_ms
        least = _MIN_CALLS if estimate_us < budget_us else _MIN_SLOW_CALLS
        return max(least, min(_MAX_CALLS, int(budget_us / estimate_us)))


def _share(number: int, turn: int) -> int:
    """The repetitions of one round: all rounds together have `number`, the first ones the odd ones.

    >>> [_share(10, turn) for turn in range(_ROUNDS)]
    [3, 3, 2, 2]
    """
    return number // _ROUNDS + (turn < number % _ROUNDS)

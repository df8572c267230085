"""Measures the GPU time of calls without waits for the host.

If the GPU finishes before the host has launched the next call, it waits, and events include the wait. So an idling
kernel holds the GPU until the host has launched a whole group of calls. If the host was late, which the first event
shows, the group is timed again after a longer hold, and then with fewer calls, because a GPU queues at most about a
thousand launches. Called by tuning/benchmark.py and bench/timing.py. Must not know convolutions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

# Cycles of the idling kernel per microsecond, for a higher clock than that of most GPUs.
_CYCLES_PER_US = 2000

# Host time per call: initial value, factor after a late launch, and maximum.
_HOST_US, _LONGER, _LONGEST_US = 100.0, 4.0, 25_600.0

# Initial number of calls per hold.
_TOGETHER = 10


class GpuClock:
    """Times calls of similar host time: a hold that was too short once is not used again."""

    def __init__(self) -> None:
        self._hold_us = _HOST_US
        self._together = _TOGETHER

    def times_us(self, calls: Sequence[Callable[[], object]], flush: torch.Tensor) -> list[float]:
        """Measures the microseconds of each call, one after the other on the current stream; zeroes `flush` before
        each, so that caches are cold.

        A call that waits for the GPU itself cannot be launched ahead, and its time includes host time.
        """
        times: list[float] = []
        while len(times) < len(calls):
            group = calls[len(times) : len(times) + self._together]
            found, is_ahead = self._launch(group, flush)
            if is_ahead or not self._gives_more(len(group)):
                times += found
        return times

    def _launch(self, calls: Sequence[Callable[[], object]], flush: torch.Tensor) -> tuple[list[float], bool]:
        """Returns the times, and whether all calls were launched before the first one began."""
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in calls]
        torch.cuda._sleep(int(self._hold_us * _CYCLES_PER_US * len(calls)))
        for call, (start, end) in zip(calls, events, strict=True):
            flush.zero_()
            start.record()
            call()
            end.record()
        is_ahead = not events[0][0].query()
        events[-1][1].synchronize()
        return [1e3 * start.elapsed_time(end) for start, end in events], is_ahead

    def _gives_more(self, num_calls: int) -> bool:
        """Allows the host more time per call, or fewer calls, after it was late; returns False at the limit."""
        if self._hold_us < _LONGEST_US:
            self._hold_us *= _LONGER
        elif num_calls > 1:
            self._together = num_calls // 2
        else:
            return False
        return True

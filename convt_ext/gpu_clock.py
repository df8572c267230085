"""The GPU's own time of calls, none of which waits for the host.

A GPU that is done before the host has launched what comes next waits for it, and events count that as time of the call.
So a kernel that idles holds the GPU until the host has launched all that is timed together. Where the host took longer,
which the first event tells, the same is timed again behind a longer hold, and then fewer calls together, as a GPU takes
a thousand launches ahead and no more. Called by tuning/race.py and bench/timing.py. Knows nothing of convolutions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

# Cycles of the idling kernel in a microsecond, at a higher clock than those of most GPUs.
_CYCLES_PER_US = 2000

# How long the host is given for one call at first, how much more after it took longer, and at most.
_HOST_US, _LONGER, _LONGEST_US = 100.0, 4.0, 25_600.0

# Calls behind one hold, at first.
_TOGETHER = 10


class GpuClock:
    """Times calls that take the host about as long as each other: what was too short a hold once is not tried again."""

    def __init__(self) -> None:
        self._hold_us = _HOST_US
        self._together = _TOGETHER

    def times_us(self, calls: Sequence[Callable[[], object]], flush: torch.Tensor) -> list[float]:
        """Microseconds of each call, one after the other on the current stream; `flush` is zeroed before each, so that
        caches are cold.

        A call that waits for the GPU itself is never launched ahead, and its time has the host's in it.
        """
        times: list[float] = []
        while len(times) < len(calls):
            group = calls[len(times) : len(times) + self._together]
            found, is_ahead = self._launch(group, flush)
            if is_ahead or not self._gives_more(len(group)):
                times += found
        return times

    def _launch(self, calls: Sequence[Callable[[], object]], flush: torch.Tensor) -> tuple[list[float], bool]:
        """Their times, and whether all were launched before the first one began."""
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
        """Whether the host gets longer, or fewer calls, after it was late with so many."""
        if self._hold_us < _LONGEST_US:
            self._hold_us *= _LONGER
        elif num_calls > 1:
            self._together = num_calls // 2
        else:
            return False
        return True

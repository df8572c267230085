"""Times one GPU call the way ``triton.testing.do_bench`` does.

Before every call a buffer larger than the L2 cache is zeroed, so that nothing is found in the cache; that write is
also longer than the host needs to issue a call, so launches are queued ahead and host time is not measured. Events
surround one call; the median of many calls counts. Knows nothing of convolutions.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Protocol

import torch

_MIN_FLUSH_BYTES = 256 * 2**20
_MIN_CALLS, _MAX_CALLS = 10, 400
_MIN_SLOW_CALLS = 3  # for a call that alone takes the whole budget


class Timer(Protocol):
    """Median time of one call in microseconds, and the memory one call takes."""

    def time_us(self, call: Callable[[], object]) -> float: ...

    def peak_bytes(self, call: Callable[[], object]) -> int | None: ...


class CudaTimer:
    """Times calls on one CUDA device.

    Args:
        device: the device that the calls run on.
        budget_ms: GPU time to spend on measured calls; 10 to 400 calls are made, 3 of one that takes longer
            than the budget.
    """

    def __init__(self, device: torch.device, budget_ms: float = 100.0) -> None:
        if budget_ms <= 0:
            raise ValueError(f"budget_ms must be positive, got {budget_ms}")
        self._device = device
        self._budget_ms = budget_ms
        l2_bytes = int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0))
        self._flush = torch.empty(max(_MIN_FLUSH_BYTES, 2 * l2_bytes), dtype=torch.int8, device=device)

    def time_us(self, call: Callable[[], object]) -> float:
        with torch.cuda.device(self._device):
            # The first call pays for algorithm search and lazy loading, the second for what the first evicted.
            call()
            call()
            torch.cuda.synchronize()
            estimate_us = max(self.median_us(call, 3), 1.0)
            budget_us = 1e3 * self._budget_ms
            least = _MIN_CALLS if estimate_us < budget_us else _MIN_SLOW_CALLS
            num_calls = max(least, min(_MAX_CALLS, int(budget_us / estimate_us)))
            self.median_us(call, max(1, num_calls // 5))  # brings clocks to their level under this load
            return self.median_us(call, num_calls)

    def peak_bytes(self, call: Callable[[], object]) -> int | None:
        """Most bytes that one warm call holds besides its operands: its result and any workspace."""
        with torch.cuda.device(self._device):
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            call()
            torch.cuda.synchronize()
            return torch.cuda.max_memory_allocated() - before

    def median_us(self, call: Callable[[], object], num_calls: int) -> float:
        """The median of so many calls, the first among them: what it loads or searches for is timed."""
        starts = [torch.cuda.Event(enable_timing=True) for _ in range(num_calls)]
        ends = [torch.cuda.Event(enable_timing=True) for _ in range(num_calls)]
        for start, end in zip(starts, ends, strict=True):
            self._flush.zero_()
            start.record()
            call()
            end.record()
        torch.cuda.synchronize()
        return 1e3 * statistics.median(start.elapsed_time(end) for start, end in zip(starts, ends, strict=True))

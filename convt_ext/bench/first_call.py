"""Measures the first call of a shape: convt_ext plans in it, and with `--race on` benchmarks the shape.

In PyTorch's first call cuDNN searches for an algorithm and caches it for that thread only. So all calls are made in one
thread, PyTorch's first: the benchmark of convt_ext then times the algorithm of the later measurement. Must not know
layers.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import torch

Call = Callable[[], torch.Tensor]


def timed(call: Call, device: torch.device) -> tuple[torch.Tensor, float]:
    """Returns the result of a call and its wall time in milliseconds, including the device's."""
    with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
        _synchronize(device)
        start = time.perf_counter()
        result = call()
        _synchronize(device)
        return result, 1e3 * (time.perf_counter() - start)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)

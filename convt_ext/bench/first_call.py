"""What the first call of a shape costs beyond PyTorch's own: it plans, and with `--race on` it benchmarks the shape.

cuDNN searches among its algorithms in PyTorch's first call and remembers what it found for that thread alone. So all
calls are made in one thread, PyTorch's first: our benchmark then meets the algorithm that is timed against ours later.
Knows nothing of layers.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import torch

Call = Callable[[], torch.Tensor]


def timed(call: Call, device: torch.device) -> tuple[torch.Tensor, float]:
    """The result of a call and its wall time in milliseconds, host and device together."""
    with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
        _synchronize(device)
        start = time.perf_counter()
        result = call()
        _synchronize(device)
        return result, 1e3 * (time.perf_counter() - start)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)

"""What the first call of a shape costs: cuDNN searches among its algorithms in it, and we race our kernels.

cuDNN remembers what it found for each thread by itself. So our first call is made in a thread of its own: where it runs
PyTorch's operator, the search in it is paid by it, as in a program, and not by PyTorch's side of the comparison. Knows
nothing of layers.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F

Call = Callable[[], torch.Tensor]


def timed(call: Call, device: torch.device) -> tuple[torch.Tensor, float]:
    """The result of a call and its wall time in milliseconds, host and device together."""
    with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
        _synchronize(device)
        start = time.perf_counter()
        result = call()
        _synchronize(device)
        return result, 1e3 * (time.perf_counter() - start)


def timed_in_fresh_thread(call: Call, device: torch.device) -> tuple[torch.Tensor, float]:
    """As `timed`, where nothing that cuDNN found for another thread is known."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(timed, call, device).result()


def warm_up(device: torch.device) -> None:
    """Loads cuDNN and makes its handles for two threads, which is no part of any shape's first call."""
    ones = torch.ones(1, 8, 8, 8, device=device)
    for of_thread in (timed, timed_in_fresh_thread):
        of_thread(lambda: F.conv_transpose2d(ones, ones.view(8, 8, 4, 2)), device)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)

"""The precision column of the benchmark: operand dtype, the request to convt_ext, and PyTorch's switches.

convt_ext and PyTorch always run with the same operands under the same switches, so a row compares equal precision.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

from convt_ext.dispatch.request import decode_request


@dataclasses.dataclass(frozen=True)
class Mode:
    """One value of the precision column."""

    name: str
    dtype: torch.dtype
    requested: str | None  # the request to convt_ext (request.py)
    torch_fp32: str | None = None  # PyTorch's float32 precision of convolutions; None does not change it
    cudnn: bool = True  # False: PyTorch's own CUDA algorithm

    @property
    def keywords(self) -> dict[str, Any]:
        return dict(zip(("precision", "backend"), decode_request(self.requested), strict=True))


# tf32x3 has float32 accuracy, so it is compared with PyTorch's float32. float16 and bfloat16 run without a
# request: they use tensor cores by default. `default` has none either.
MODES: dict[str, Mode] = {
    mode.name: mode
    for mode in (
        Mode("ieee", torch.float32, "exact", torch_fp32="ieee"),
        Mode("aten", torch.float32, "aten", torch_fp32="ieee", cudnn=False),
        Mode("tf32x3", torch.float32, "tf32x3", torch_fp32="ieee"),
        Mode("tf32", torch.float32, "convt_ext:tf32", torch_fp32="tf32"),
        Mode("f16", torch.float16, None),
        Mode("bf16", torch.bfloat16, None),
        Mode("f64", torch.float64, "exact"),
        Mode("default", torch.float32, None),
    )
}


def by_name(mode: Mode) -> Mode:
    """Returns the mode with a request that always runs convt_ext kernels."""
    return dataclasses.replace(mode, requested="convt_ext:") if mode.dtype in (torch.float16, torch.bfloat16) else mode


@contextlib.contextmanager
def torch_switches(mode: Mode) -> Iterator[None]:
    """Sets PyTorch's switches for ``mode``, and restores the caller's."""
    cudnn: Any = torch.backends.cudnn
    with contextlib.ExitStack() as switches:
        if not mode.cudnn:
            switches.enter_context(without_cudnn())
        if mode.torch_fp32 is not None:
            switches.enter_context(_switched(cudnn.conv, "fp32_precision", mode.torch_fp32))
        yield


def cudnn_benchmark(value: bool = True) -> contextlib.AbstractContextManager[None]:
    """Sets `cudnn.benchmark`: if True, cuDNN tries its algorithms on the first call of each shape."""
    return _switched(torch.backends.cudnn, "benchmark", value)


def without_cudnn() -> contextlib.AbstractContextManager[None]:
    """Disables cuDNN: PyTorch's own algorithms are independent of the implementations that are compared."""
    return _switched(torch.backends.cudnn, "enabled", False)


@contextlib.contextmanager
def _switched(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)

"""The precision column of the benchmark: operand dtype, the request to convt_ext, and PyTorch's switches.

convt_ext and PyTorch always run with the same operands under the same switches, so a row compares equal precision.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

from convt_ext.request import decode_request


@dataclasses.dataclass(frozen=True)
class Mode:
    """One value of the precision column."""

    name: str
    dtype: torch.dtype
    requested: str | None  # the request to convt_ext (request.py)
    torch_fp32: str | None = None  # PyTorch's float32 precision of convolutions; None does not change it
    cudnn: bool = True  # False: PyTorch's own CUDA algorithm

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def keywords(self) -> dict[str, Any]:
        """The request as keywords of `convt_ext.conv_transpose2d`."""
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
    cudnn, conv = torch.backends.cudnn, torch.backends.cudnn.conv  # type: ignore[attr-defined]
    enabled, fp32 = cudnn.enabled, conv.fp32_precision
    try:
        cudnn.enabled = enabled and mode.cudnn
        if mode.torch_fp32 is not None:
            conv.fp32_precision = mode.torch_fp32
        yield
    finally:
        cudnn.enabled = enabled
        if mode.torch_fp32 is not None:
            conv.fp32_precision = fp32


@contextlib.contextmanager
def cudnn_benchmark(value: bool = True) -> Iterator[None]:
    """Sets `cudnn.benchmark`: if True, cuDNN tries its algorithms on the first call of each shape."""
    with _cudnn("benchmark", value):
        yield


@contextlib.contextmanager
def without_cudnn() -> Iterator[None]:
    """Disables cuDNN: PyTorch's own algorithms are independent of the implementations that are compared."""
    with _cudnn("enabled", False):
        yield


@contextlib.contextmanager
def _cudnn(name: str, value: bool) -> Iterator[None]:
    """Sets one of cuDNN's switches, and restores it."""
    before = getattr(torch.backends.cudnn, name)
    setattr(torch.backends.cudnn, name, value)
    try:
        yield
    finally:
        setattr(torch.backends.cudnn, name, before)

"""The precision column of the benchmark: operand dtype, our ``precision=`` and PyTorch's switches.

Ours and PyTorch's are always run with the same operands under the same switches, so a row compares equal precision.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

import torch


@dataclasses.dataclass(frozen=True)
class Mode:
    """One value of the precision column."""

    name: str
    dtype: torch.dtype
    ours: str | None  # the argument ``precision=``
    torch_fp32: str | None = None  # PyTorch's float32 precision of convolutions; None leaves it as it is
    cudnn: bool = True  # False: PyTorch's own CUDA algorithm

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize


# tf32x3 promises float32 accuracy, so PyTorch's float32 is what it is compared with. No word asks for float16 and
# bfloat16 on tensor cores: they are what a user gets who changed nothing, and so is `default`.
MODES: dict[str, Mode] = {
    mode.name: mode
    for mode in (
        Mode("ieee", torch.float32, "ieee", torch_fp32="ieee"),
        Mode("aten", torch.float32, "aten", torch_fp32="ieee", cudnn=False),
        Mode("tf32x3", torch.float32, "tf32x3", torch_fp32="ieee"),
        Mode("tf32", torch.float32, "tf32", torch_fp32="tf32"),
        Mode("f16", torch.float16, None),
        Mode("bf16", torch.bfloat16, None),
        Mode("f64", torch.float64, "ieee"),
        Mode("default", torch.float32, None),
    )
}


def by_name(mode: Mode) -> Mode:
    """The mode with a word that asks for our kernels, whatever PyTorch's operator would take."""
    return dataclasses.replace(mode, ours="half") if mode.dtype in (torch.float16, torch.bfloat16) else mode


@contextlib.contextmanager
def torch_switches(mode: Mode) -> Iterator[None]:
    """Sets PyTorch's switches for ``mode`` and puts the caller's back."""
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
    """PyTorch at its best: cuDNN tries its algorithms on the first call of each shape; with False it does not."""
    with _cudnn("benchmark", value):
        yield


@contextlib.contextmanager
def without_cudnn() -> Iterator[None]:
    """PyTorch's own algorithms, which are independent of what is compared with them."""
    with _cudnn("enabled", False):
        yield


@contextlib.contextmanager
def _cudnn(name: str, value: bool) -> Iterator[None]:
    """One of cuDNN's switches."""
    before = getattr(torch.backends.cudnn, name)
    setattr(torch.backends.cudnn, name, value)
    try:
        yield
    finally:
        setattr(torch.backends.cudnn, name, before)

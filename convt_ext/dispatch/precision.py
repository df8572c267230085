"""Selects the precision class of a call and the implementations that may run it, from its request (request.py) and
PyTorch's switches.

Called by routing.py. The classes and their guarantees (float32 unless stated):

    ieee     fused multiply-add chain, c_in ascending, then kh, then kw; bias last (also every other dtype);
             requested as "exact", or as "ieee" without the order
    aten     the order of PyTorch's own CUDA algorithm: one chain over c_in per tap, then the taps in order
    tf32x3   three TF32 products per term: float32 accuracy on tensor cores
    tf32     operands rounded to TF32, float32 accumulation
    f16      float16 operands on tensor cores, float32 accumulation; requested as "half"
    bf16     bfloat16 operands on tensor cores, float32 accumulation; requested as "half"

A call may run in a stricter class than the requested one. Reads PyTorch's switches; must not know tensors or kernels.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch

from ..environment import _torch
from .request import Request

# The classes of the op, and values of its `precision` argument. Tuning files contain these names.
CLASSES = ("ieee", "aten", "tf32x3", "tf32", "half")
CODES = {name: code for code, name in enumerate(CLASSES)} | {"f16": 4, "bf16": 4}

# Precisions that include the order of accumulation, which PyTorch's operator does not promise.
_ORDERED = frozenset({"exact", "aten"})

# The largest error of one call, by dtype or class: ||result - exact|| / ||exact||, exact in float64. docs/numerics.md
# promises smaller errors for results of 4096 elements. Smaller results vary more, and float64 and the half types get
# two roundings of their dtype.
ERROR_LIMITS = {"float32": 1e-6, "tf32x3": 1e-6, "tf32": 5e-4, "float64": 1e-14, "float16": 1e-3, "bfloat16": 8e-3}

# The classes that "half" selects.
_HALVES = {torch.float16: "f16", torch.bfloat16: "bf16"}

# Classes with exact kernels on every GPU.
EXACT_CLASSES = frozenset({"ieee", "aten"})

# The compute capability with estimates of both implementations in the other classes.
_HOPPER = (9, 0)

# The first compute capability on which the kernels use tensor cores.
_FIRST_WITH_CORES = (8, 0)

# The functions that `torch.backends.cudnn.enabled` and `torch.backends.cudnn.conv.fp32_precision` call. Every call
# needs them, and the properties cost six times as much.
cudnn_enabled = _torch.get_cudnn_enabled
_fp32_precision = _torch.get_fp32_precision

# Returns PyTorch's float32 precision of convolutions, which applies while cuDNN is enabled.
tf32_switch = functools.partial(_fp32_precision, "cuda", "conv")


class Selection(NamedTuple):
    """The class of a call, and what may run it."""

    served: str  # the class
    backend: str  # "auto", "convt_ext" or "torch"
    is_explicit: bool  # whether an explicit precision selected the class, and not PyTorch's switches


def select(asked: Request, dtype: torch.dtype, by_switches: str, was_float32: bool = False) -> Selection:
    """Returns class and implementations for operands of `dtype`.

    PyTorch's operator is a candidate for an explicit precision only if its switches ask for that arithmetic, and the
    precision does not include the order of accumulation.

    Args:
        by_switches: the class in which PyTorch's operator would compute (`class_by_switches`).
        was_float32: the input is float32, and autocast casts it to `dtype`.

    Raises:
        ValueError: a precision that the dtype does not support, or that PyTorch's operator does not compute now.
    """
    precision = asked.precision
    served = None if precision is None else explicit_class(dtype, precision, asked.from_keyword, was_float32)
    if served is None:
        return Selection(by_switches, asked.backend, False)
    agrees = served == by_switches or {served, by_switches} <= EXACT_CLASSES
    if agrees and precision not in _ORDERED:
        return Selection(served, asked.backend, True)
    if asked.backend != "torch":
        return Selection(served, "convt_ext", True)
    name = str(dtype).removeprefix("torch.")
    raise ValueError(
        f'backend="torch" computes {name} as {by_switches!r}, as PyTorch\'s switches select, but got '
        f"precision={precision!r}: leave precision=None, set torch.backends.cudnn.conv.fp32_precision for float32, or "
        'use backend="convt_ext"'
    )


def explicit_class(dtype: torch.dtype, precision: str, from_keyword: bool, was_float32: bool = False) -> str | None:
    """Returns the class that an explicit precision selects for `dtype`; None if `flags` do not apply to it. Raises a
    ValueError for a keyword that does not support the dtype."""
    if precision == "half" and dtype in _HALVES:
        return _HALVES[dtype]
    if precision in ("exact", "ieee"):
        return "ieee"
    if precision != "half" and dtype is torch.float32:
        return precision
    if not from_keyword:
        return None
    name = str(dtype).removeprefix("torch.")
    is_another, instead = f"the input is {name}", ""
    if was_float32:
        is_another = f"autocast casts the input to {name}"
        instead = "make the call inside of torch.autocast(..., enabled=False), "
    raise ValueError(
        f"precision={precision!r} is for {'float16 and bfloat16' if precision == 'half' else 'float32'} and "
        f'{is_another}: {instead}leave precision=None, or use precision="exact", which supports every dtype'
    )


def request_for(served: str) -> str:
    """Returns the precision that requests this class.

    >>> request_for("ieee"), request_for("bf16"), request_for("tf32")
    ('exact', 'half', 'tf32')
    """
    return {"ieee": "exact", "f16": "half", "bf16": "half"}.get(served, served)


def class_by_switches(dtype: torch.dtype, capability: tuple[int, int], exporting: bool = False) -> str:
    """Returns the class in which PyTorch's operator would compute on a GPU of this capability, by its current switches.

    float32 is TF32 if `torch.backends.cudnn.conv.fp32_precision` selects it (that getter also resolves `allow_tf32`
    and inheritance from the wider switches). With cuDNN disabled, PyTorch uses cuBLAS, so the matmul switch applies.
    torch.export disables cuDNN while it traces, so `exporting` ignores that. TF32 needs compute capability 8.0.
    """
    if dtype is torch.float32:
        cudnn = exporting or cudnn_enabled()
        switch = tf32_switch() if cudnn else _fp32_precision("cuda", "matmul")
        if switch == "tf32" and capability >= (8, 0):
            return "tf32"
        return "ieee" if cudnn else "aten"
    if dtype is torch.float64:
        return "ieee"
    return _HALVES[dtype]


def has_estimates(served: str, capability: tuple[int, int]) -> bool:
    """Returns whether the cost model may select convt_ext for `precision=None`, in this class on such a GPU.

    For tensor cores the cost model contains PyTorch's times on Hopper only; other GPUs need a measurement. An explicit
    precision needs neither.
    """
    return served in EXACT_CLASSES or capability == _HOPPER


def may_be_measured(capability: tuple[int, int]) -> bool:
    """Returns whether convt_ext uses such a GPU's tensor cores, as PyTorch does, so that either may be faster."""
    return capability >= _FIRST_WITH_CORES

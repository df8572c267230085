"""Autocast, as for PyTorch's `conv_transpose2d`: an operation of the lower-precision list.

Called by routing.py and compile/tracing.py if autocast is on for the operands' device. Autograd records the casts, so
the gradient of a float32 leaf is float32. An eager call casts a float32 leaf that requires a gradient once per autocast
region, and PyTorch caches the result as for its own operator (`at::autocast::cached_cast`,
kernels/binding/autocast.cpp).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.compiler import is_compiling

from . import ops

# Dtypes that are cast; float64 keeps its precision, and complex has no lower one.
_CAST = frozenset({torch.float16, torch.bfloat16, torch.float32})

# Target dtypes of autocast, and whether each is float16.
_IS_HALF = {torch.float16: True, torch.bfloat16: False}


def dtype_of(tensor: Tensor, device_type: str) -> torch.dtype:
    """Returns the dtype of an operand after autocast."""
    return torch.get_autocast_dtype(device_type) if tensor.dtype in _CAST else tensor.dtype


def cast(input: Tensor, weight: Tensor, bias: Tensor | None, device_type: str) -> tuple[Tensor, Tensor, Tensor | None]:
    """Casts the operands to autocast's dtype for that device type; returns other tensors unchanged."""
    dtype = torch.get_autocast_dtype(device_type)
    return _cast(input, dtype), _cast(weight, dtype), None if bias is None else _cast(bias, dtype)


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    if tensor.dtype is dtype or tensor.dtype not in _CAST:
        return tensor
    half = _IS_HALF.get(dtype)
    # PyTorch caches none of these; compilers remove repeated casts themselves.
    if half is None or ops.autocast is None or not tensor.requires_grad or is_compiling():
        return tensor.to(dtype)
    result = ops.autocast(tensor, half)
    # PyTorch caches one cast of a leaf. It may have the dtype of another region, and before torch 2.13 it may have been
    # made under no_grad, without a graph.
    if result.dtype is not dtype or (not result.requires_grad and torch.is_grad_enabled()):
        return tensor.to(dtype)
    return result

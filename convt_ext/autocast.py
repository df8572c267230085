"""Autocast, as PyTorch treats its own `conv_transpose2d`: an operation of the lower-precision list.

Called by routing.py and compile/tracing.py where autocast is on for the operands' device. The casts are recorded by
autograd, so the gradient of a float32 leaf is float32. An eager call casts a float32 leaf that requires a gradient once
per autocast region, and PyTorch keeps the result as it keeps those of its own operator (`at::autocast::cached_cast`,
kernels/binding/autocast.cpp).
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import ops

# What is cast: float64 is as exact as somebody wanted it, complex has no lower precision.
_CAST = frozenset({torch.float16, torch.bfloat16, torch.float32})

# What autocast lowers to, and whether it is float16.
_IS_HALF = {torch.float16: True, torch.bfloat16: False}


def dtype_of(tensor: Tensor, device_type: str) -> torch.dtype:
    """The dtype in which an operand takes part."""
    return torch.get_autocast_dtype(device_type) if tensor.dtype in _CAST else tensor.dtype


def traced_cast(
    input: Tensor, weight: Tensor, bias: Tensor | None, device_type: str
) -> tuple[Tensor, Tensor, Tensor | None]:
    """As `cast`, for a tracer, which has no region at run time: compilers remove repeated casts themselves."""
    return (
        input.to(dtype_of(input, device_type)),
        weight.to(dtype_of(weight, device_type)),
        None if bias is None else bias.to(dtype_of(bias, device_type)),
    )


def cast(input: Tensor, weight: Tensor, bias: Tensor | None, device_type: str) -> tuple[Tensor, Tensor, Tensor | None]:
    """The operands in autocast's dtype for that kind of device; what is not cast is the same tensor."""
    dtype = torch.get_autocast_dtype(device_type)
    return _cast(input, dtype), _cast(weight, dtype), None if bias is None else _cast(bias, dtype)


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    if tensor.dtype is dtype or tensor.dtype not in _CAST:
        return tensor
    half = _IS_HALF.get(dtype)
    if half is None or ops.autocast is None or not tensor.requires_grad:  # PyTorch keeps none of these
        return tensor.to(dtype)
    result = ops.autocast(tensor, half)
    # PyTorch keeps one cast of a leaf: its dtype may be that of another region, and before torch 2.13 one that was made
    # under no_grad, without a graph.
    if result.dtype is not dtype or (not result.requires_grad and torch.is_grad_enabled()):
        return tensor.to(dtype)
    return result

"""Autocast, as PyTorch treats its own `conv_transpose2d`: an operation of the lower-precision list.

Called by routing.py and compiled.py where autocast is on for the operands' device. The casts are recorded by
autograd, so the gradient of a float32 leaf is float32. (PyTorch, `cached_cast` in ATen/autocast_mode.h.)
"""

from __future__ import annotations

import torch
from torch import Tensor

# What is cast: float64 is as exact as somebody wanted it, complex has no lower precision.
_CAST = frozenset({torch.float16, torch.bfloat16, torch.float32})


def dtype_of(tensor: Tensor, device_type: str) -> torch.dtype:
    """The dtype in which an operand takes part."""
    return torch.get_autocast_dtype(device_type) if tensor.dtype in _CAST else tensor.dtype


def cast(input: Tensor, weight: Tensor, bias: Tensor | None, device_type: str) -> tuple[Tensor, Tensor, Tensor | None]:
    """The operands in autocast's dtype for that kind of device; what is not cast is the same tensor."""
    return (
        input.to(dtype_of(input, device_type)),
        weight.to(dtype_of(weight, device_type)),
        None if bias is None else bias.to(dtype_of(bias, device_type)),
    )

"""Converts a user's arguments to those of the op: pairs of ints, or None.

Called by routing.py. Every function returns None if PyTorch's operator has to check the argument: the operator raises
its own error, and the messages differ between releases.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from .geometry import Size2, Size4, output_size, surely

# The kernels hold one coordinate in 32 bits and add a few of them; offsets into tensors have 64 bits.
_LIMIT = 2**29

# The limit of PyTorch itself.
NO_LIMIT = 2**63

# Maximum number of elements of a result: no storage is larger, and PyTorch raises its own error.
_MAX_ELEMENTS = 2**60


def integer(value: Any) -> int | None:
    """Returns `value` as an int if PyTorch accepts it: int, numpy integer or 0-d integer tensor; never a bool."""
    if type(value) is int:
        return value
    if isinstance(value, (bool, float, str, torch.SymInt)):
        return None
    if isinstance(value, torch.Tensor) and (value.dim() != 0 or value.is_meta):
        return None
    if str(getattr(value, "dtype", None)) in ("bool", "torch.bool"):  # operator.index accepts these bools
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def pair(value: Any) -> Size2 | None:
    """Returns (height, width) from an int, a 0-d integer tensor, a numpy integer, or a sequence of 1 or 2 of them.

    Example:
        >>> pair(2), pair([3]), pair((1, 2)), pair(True)
        ((2, 2), (3, 3), (1, 2), None)
    """
    if type(value) is int:
        return (value, value)
    if type(value) is tuple and len(value) == 2 and type(value[0]) is int and type(value[1]) is int:
        return value
    if isinstance(value, (tuple, list)):
        if len(value) not in (1, 2):
            return None
        parts = [integer(part) for part in value]
        if None in parts:
            return None
        return (parts[0], parts[-1])  # type: ignore[return-value]
    single = integer(value)
    return None if single is None else (single, single)


def row(value: Any, height: int) -> Size2 | None:
    """Returns (height, length) from the length of a one-dimensional call: an integer or a sequence of one.

    Example:
        >>> row(2, 1), row([3], 0), row((1, 2), 0)
        ((1, 2), (0, 3), None)
    """
    if type(value) is int:
        return (height, value)
    if isinstance(value, (tuple, list)) and len(value) != 1:
        return None
    lengths = pair(value)
    return None if lengths is None else (height, lengths[1])


def pairs(
    dims: int, stride: Any, padding: Any, output_padding: Any, groups: Any, dilation: Any
) -> tuple[Any, Any, Any, Any, Any]:
    """Returns the arguments of the two-dimensional problem, which has height 1 if `dims` is 1: stride, padding,
    output_padding, groups and dilation. Those that PyTorch has to check are None."""
    if type(groups) is not int:
        groups = integer(groups)
    if dims == 1:
        return row(stride, 1), row(padding, 0), row(output_padding, 0), groups, row(dilation, 1)
    return pair(stride), pair(padding), pair(output_padding), groups, pair(dilation)


def as_2d(dims: int, input: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the operands of the two-dimensional problem, with a batch axis.

    As PyTorch does, `view4d` and `input.contiguous()` in ATen/native/Convolution.cpp: a transposed one-dimensional
    input does not make the result channels_last.
    """
    if dims == 1:
        input, weight = input.contiguous(), weight.unsqueeze(2)
        return (input.unsqueeze(2) if input.dim() == 3 else input.unsqueeze(1).unsqueeze(0)), weight
    return (input.unsqueeze(0) if input.dim() == 3 else input), weight


def as_result(dims: int, result: torch.Tensor, is_batched: bool) -> torch.Tensor:
    """Returns the result of the call from that of the two-dimensional problem."""
    if dims == 1:
        return result.squeeze(2) if is_batched else result.squeeze((0, 2))
    return result if is_batched else result.squeeze(0)


def legal_output_size(
    input_size, weight_size, bias_size, stride: Size2, padding: Size2, output_padding: Size2, groups: int,
    dilation: Size2, limit: int = _LIMIT,
) -> Size4 | None:  # fmt: skip
    """Returns the size of the result of a problem that PyTorch accepts and that is not empty; None otherwise.

    `input_size` has 4 elements. None covers PyTorch's errors, empty batches and empty results (PyTorch returns these
    at no cost, in its own memory format), and sizes and steps along an axis of `limit` or more; the default is the
    limit of the kernels. Sizes that are unknown to a tracer count as legal; the op itself checks them.
    """
    for axis in (0, 1):
        if not (
            0 < stride[axis] < limit
            and 0 <= padding[axis] < limit
            and 0 < dilation[axis] < limit
            and 0 <= output_padding[axis] < max(stride[axis], dilation[axis])
        ):
            return None
    if len(weight_size) != 4 or groups <= 0:
        return None
    _, c_in, h_in, w_in = input_size
    c_in_of_weight, _, k_h, k_w = weight_size
    if surely(c_in_of_weight != c_in) or surely(c_in % groups != 0):
        return None
    if any(surely(size == 0) for size in (*input_size, *weight_size)):
        return None
    result = output_size(input_size, weight_size, stride, padding, output_padding, groups, dilation)
    batch, c_out, height, width = result
    if bias_size is not None and (len(bias_size) != 1 or surely(bias_size[0] != c_out)):
        return None
    if surely(height <= 0) or surely(width <= 0):
        return None
    lengths = (*result, c_in, h_in, w_in, (k_h - 1) * dilation[0], (k_w - 1) * dilation[1])
    if any(surely(length >= limit) for length in lengths):
        return None
    if surely(batch * c_out * height * width > _MAX_ELEMENTS):
        return None
    return result

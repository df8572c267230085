"""Converts a user's arguments to those of the op: tuples of ints, or None.

Called by routing.py. Every function returns None if PyTorch's operator has to check the argument: the operator raises
its own error, and the messages differ between releases.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch

from .geometry import Sizes, output_size, surely

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


def sequence(value: Any, dims: int) -> Sizes | None:
    """Returns `dims` ints from an int, a 0-d integer tensor, a numpy integer, or a sequence of 1 or `dims` of them.

    Example:
        >>> sequence(2, 2), sequence([3], 3), sequence((1, 2), 2), sequence(True, 2)
        ((2, 2), (3, 3, 3), (1, 2), None)
    """
    if type(value) is int:
        return (value,) * dims
    are_ints = type(value) is tuple and len(value) == dims and type(value[0]) is int and type(value[-1]) is int
    if are_ints and (dims < 3 or type(value[1]) is int):
        return value
    if isinstance(value, (tuple, list)):
        if len(value) not in (1, dims):
            return None
        parts = [integer(part) for part in value]
        return None if None in parts else tuple(parts) * (dims // len(parts))  # type: ignore[return-value, arg-type]
    single = integer(value)
    return None if single is None else (single,) * dims


def row(value: Any, height: int) -> Sizes | None:
    """Returns (height, length) from the length of a one-dimensional call: an integer or a sequence of one.

    Example:
        >>> row(2, 1), row([3], 0), row((1, 2), 0)
        ((1, 2), (0, 3), None)
    """
    if type(value) is int:
        return (height, value)
    if isinstance(value, (tuple, list)) and len(value) != 1:
        return None
    lengths = sequence(value, 1)
    return None if lengths is None else (height, *lengths)


def pairs(
    dims: int, stride: Any, padding: Any, output_padding: Any, groups: Any, dilation: Any
) -> tuple[Any, Any, Any, Any, Any]:
    """Returns the arguments of the problem: stride, padding, output_padding, groups and dilation. A one-dimensional
    problem has height 1. Those that PyTorch has to check are None."""
    if type(groups) is not int:
        groups = integer(groups)
    if dims == 1:
        return row(stride, 1), row(padding, 0), row(output_padding, 0), groups, row(dilation, 1)
    return (
        sequence(stride, dims), sequence(padding, dims), sequence(output_padding, dims), groups,
        sequence(dilation, dims),
    )  # fmt: skip


def as_problem(dims: int, input: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the operands of the problem, which has two or three dimensions, with a batch axis.

    As PyTorch does, `view4d` and `input.contiguous()` in ATen/native/Convolution.cpp: a transposed one-dimensional
    input does not make the result channels_last.
    """
    if dims == 1:
        input, weight = input.contiguous(), weight.unsqueeze(2)
        return (input.unsqueeze(2) if input.dim() == 3 else input.unsqueeze(1).unsqueeze(0)), weight
    return (input.unsqueeze(0) if input.dim() == dims + 1 else input), weight


def as_result(dims: int, result: torch.Tensor, is_batched: bool) -> torch.Tensor:
    """Returns the result of the call from that of the problem."""
    if dims == 1:
        return result.squeeze(2) if is_batched else result.squeeze((0, 2))
    return result if is_batched else result.squeeze(0)


def legal_output_size(
    input_size, weight_size, bias_size, stride: Sizes, padding: Sizes, output_padding: Sizes, groups: int,
    dilation: Sizes, limit: int = _LIMIT,
) -> Sizes | None:  # fmt: skip
    """Returns the size of the result of a problem that PyTorch accepts and that is not empty; None otherwise.

    None covers PyTorch's errors, empty batches and empty results (PyTorch returns these
    at no cost, in its own memory format), and sizes and steps along an axis of `limit` or more; the default is the
    limit of the kernels. Sizes that are unknown to a tracer count as legal; the op itself checks them.
    """
    for step, border, extra, distance in zip(stride, padding, output_padding, dilation, strict=True):
        if not (0 < step < limit and 0 <= border < limit and 0 < distance < limit and 0 <= extra < max(step, distance)):
            return None
    if len(weight_size) != len(input_size) or groups <= 0:
        return None
    c_in, kernel = input_size[1], weight_size[2:]
    if surely(weight_size[0] != c_in) or surely(c_in % groups != 0):
        return None
    if any(surely(size == 0) for size in (*input_size, *weight_size)):
        return None
    result = output_size(input_size, weight_size, stride, padding, output_padding, groups, dilation)
    if bias_size is not None and (len(bias_size) != 1 or surely(bias_size[0] != result[1])):
        return None
    if any(surely(length <= 0) for length in result[2:]):
        return None
    windows = ((length - 1) * distance for length, distance in zip(kernel, dilation, strict=True))
    if any(surely(length >= limit) for length in (*result, *input_size[1:], *windows)):
        return None
    if surely(math.prod(result) > _MAX_ELEMENTS):
        return None
    return result

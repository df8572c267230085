"""Autocast, as PyTorch treats its own `conv_transpose2d`: an operation of the lower-precision list.

Called by routing.py and compiled.py where autocast is on for the operands' device. The casts are recorded by
autograd, so the gradient of a float32 leaf is float32. (PyTorch, `cached_cast` in ATen/autocast_mode.h.)

Eager calls cast a float32 leaf that requires a gradient once per autocast region, as PyTorch does. PyTorch's cache
cannot be read from Python. The casts are therefore kept in a dictionary that PyTorch's cache owns: it is stored in the
metadata of the autograd node of a cast in that cache. PyTorch clears its cache at the end of a region and destroys the
node, and the dictionary with it, so our casts never outlive PyTorch's.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import _torch

# What is cast: float64 is as exact as somebody wanted it, complex has no lower precision.
_CAST = frozenset({torch.float16, torch.bfloat16, torch.float32})


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
    is_cached = (
        tensor.dtype is torch.float32
        and tensor.requires_grad
        and tensor.is_leaf
        and not tensor._is_view()
        and torch.is_autocast_cache_enabled()
    )
    return _cast_once(tensor, dtype) if is_cached else tensor.to(dtype)


class _Cast(NamedTuple):
    source: weakref.ref[Tensor]
    writes: int  # to the source when it was cast
    result: Tensor


class _Casts(dict[int, _Cast]):
    """The casts of one region by the ids of their sources. Unlike a plain dict it can be referred to weakly."""


def _no_casts() -> _Casts | None:
    return None


_casts_of_region: Callable[[], _Casts | None] = _no_casts

# Empty float32 leaves, one per device: the leaf whose cast in PyTorch's cache owns the dictionary.
_sentinels: dict[torch.device, Tensor] = {}

_KEY = "convt_ext_casts"


def _cast_once(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The cast of a leaf, made by the first call in this region."""
    casts = _casts_of_region()
    if casts is None:
        casts = _begin_region(tensor.device, dtype)
    found = casts.get(id(tensor))
    if (
        found is not None
        and found.source() is tensor
        and found.writes == tensor._version
        and found.result.dtype is dtype  # regions of two dtypes can be nested
        and (found.result.requires_grad or not torch.is_grad_enabled())  # a cast under no_grad has no graph
    ):
        return found.result
    result = tensor.to(dtype)
    casts[id(tensor)] = _Cast(weakref.ref(tensor), tensor._version, result)
    return result


def _begin_region(device: torch.device, dtype: torch.dtype) -> _Casts:
    """The dictionary that lives until PyTorch clears its cache; empty and short-lived where PyTorch caches nothing."""
    global _casts_of_region
    # Hidden from modes that watch the calls. `addmm` saves none of these tensors, so no saved-tensor hook sees them.
    with torch.inference_mode(False), torch.enable_grad(), _torch.DisableTorchDispatch():
        sentinel = _sentinels.get(device)
        if sentinel is None:
            sentinel = torch.empty((0, 0), dtype=torch.float32, device=device, requires_grad=True)
            sentinel = _sentinels.setdefault(device, sentinel)
        other = torch.empty((0, 0), dtype=dtype, device=device)
        node: Any = torch.addmm(sentinel, other, other).grad_fn.next_functions[0][0]  # type: ignore[union-attr]
    if hasattr(node, "variable"):  # the sentinel itself: PyTorch's autocast is not for this device
        return _Casts()
    casts: _Casts = node.metadata.setdefault(_KEY, _Casts())
    _casts_of_region = weakref.ref(casts)
    return casts

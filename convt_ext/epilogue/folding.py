"""Folds a BatchNorm in eval mode into weight and bias of the transposed convolution before it.

Called by chain.py. Folds on every call, because PyTorch does not count all writes to parameters and running statistics.
For a frozen weight, the folded weight is kept until PyTorch counts a write; see `freeze`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dispatch import geometry, routing
from ..dispatch.frozen import FrozenWeight, num_uncounted_writes, stream_of
from ..environment import _torch

_HALVES = (torch.float16, torch.bfloat16)


class Fold(NamedTuple):
    """A folded weight and bias, and their sources."""

    # Kept alive with their memory, so that no other tensor and no new memory is mistaken for them.
    tensors: tuple[Tensor | None, ...]
    memory: tuple[torch.UntypedStorage, ...]
    state: tuple[Any, ...]
    weight: Tensor
    bias: Tensor
    copies: FrozenWeight  # of the folded weight
    stream: int  # the stream that owns their memory; 0 on the CPU


def can_fold(conv: Any, norm: Any, input: Tensor) -> bool:
    """Returns whether folding computes the same as PyTorch's BatchNorm after this call, in less time.

    True in eval mode, without gradients, if the weight is not larger than the result or is frozen.
    """
    mean, variance = norm.running_mean, norm.running_var
    if norm.training or mean is None or variance is None or variance.shape != (conv.weight.shape[1] * conv.groups,):
        return False
    weight = conv.weight
    known = {weight.dtype, torch.float32} if weight.dtype in _HALVES else {weight.dtype}
    operands = [one for one in (mean, variance, norm.weight, norm.bias) if one is not None]
    if any(one.dtype not in known or type(one) not in routing.PLAIN for one in operands):
        return False
    if torch.is_grad_enabled() and _torch.any_requires_grad(input, weight, conv.bias, norm.weight, norm.bias):
        return False
    return _is_frozen(conv) or weight.numel() <= math.prod(result_size(conv, input))


def result_size(conv: Any, input: Tensor) -> geometry.Sizes:
    return geometry.output_size(
        input.shape, conv.weight.shape, conv.stride, conv.padding, conv.output_padding, conv.groups, conv.dilation
    )


def folded(conv: Any, norm: Any) -> tuple[Tensor, Tensor]:
    """Returns weight and bias of conv with norm folded into them.

    With scale = norm.weight / sqrt(running_var + eps): weight * scale, and (bias - running_mean) * scale + norm.bias.
    """
    return _kept(conv, norm) if _is_frozen(conv) else _fold(conv, norm)


def _is_frozen(conv: Any) -> bool:
    return conv._frozen is not None and conv._frozen.weight is conv.weight


def _kept(conv: Any, norm: Any) -> tuple[Tensor, Tensor]:
    tensors = (
        conv.weight, conv.bias, norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.num_batches_tracked,
    )  # fmt: skip
    present = tuple(tensor for tensor in tensors if tensor is not None)
    weight = tensors[0]
    # Replays of a CUDA graph fold again, so that they see new weights. Writes to inference tensors are not counted.
    if (weight.is_cuda and torch.cuda.is_current_stream_capturing()) or any(map(torch.is_inference, present)):
        return _fold(conv, norm)
    # Writes to the running statistics are not counted, but training counts its batches.
    state = (
        num_uncounted_writes(), norm.eps, weight.stride(),
        *((tensor._version, tensor.data_ptr()) for tensor in present),
    )  # fmt: skip
    kept = conv._frozen.fold
    if kept is not None and state == kept.state and all(a is b for a, b in zip(tensors, kept.tensors, strict=True)):
        if kept.stream != stream_of(kept.weight):
            current = torch.cuda.current_stream(kept.weight.device)
            kept.weight.record_stream(current)
            kept.bias.record_stream(current)
        return kept.weight, kept.bias
    with torch.inference_mode(False), torch.no_grad():
        made = _fold(conv, norm)
    if weight.is_cuda:  # other streams may now read it
        torch.cuda.current_stream(weight.device).synchronize()
    memory = tuple(tensor.untyped_storage() for tensor in present)
    copies = FrozenWeight(made[0], is_copy=True)
    conv._frozen.fold = Fold(tensors, memory, state, *made, copies, stream_of(weight))
    return made


def _fold(conv: Any, norm: Any) -> tuple[Tensor, Tensor]:
    """Folds with PyTorch's batch_norm on the weight and on the bias: at least in float32, rounded to their dtype once.

    This costs three kernels on a GPU (and two copies of the weight for some groups); elementary operations would cost
    six, and nine in half precision. Factor and addend of each channel as steps of the epilogue would cost four kernels,
    and in half precision more roundings than docs/numerics.md allows.
    """
    weight, bias, groups = conv.weight, conv.bias, conv.groups
    mean, variance, eps = norm.running_mean, norm.running_var, norm.eps
    zero = torch.zeros_like(mean)  # type: ignore[arg-type]
    if bias is None:
        bias = zero.to(weight.dtype)
    shift = F.batch_norm(bias[None], mean, variance, norm.weight, norm.bias, eps=eps)[0]
    if groups == 1:
        scaled = F.batch_norm(weight, zero, variance, norm.weight, eps=eps)
    else:  # batch_norm needs the result's channels on the second axis
        by_channel = weight.unflatten(0, (groups, -1)).transpose(0, 1).flatten(1, 2)
        scaled = F.batch_norm(by_channel, zero, variance, norm.weight, eps=eps)
        scaled = scaled.unflatten(1, (groups, -1)).transpose(0, 1).flatten(0, 1)
    if scaled.stride() != weight.stride():  # the strides determine the layout of the result
        scaled = torch.empty_like(weight).copy_(scaled)
    return scaled, shift

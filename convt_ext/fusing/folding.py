"""A BatchNorm2d in eval mode as another weight and bias of the transposed convolution before it.

Called by chain.py. What was folded is kept until one of the tensors that it came from has changed, which PyTorch's
count of writes and the address tell, as for `freeze_weights`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..frozen import num_uncounted_writes, see_uncounted_writes

_HALVES = (torch.float16, torch.bfloat16)


class Fold(NamedTuple):
    """A folded weight and bias, and what they were made of."""

    # Held alive, and their memory too: so that no other tensor and no new memory is taken for them.
    tensors: tuple[Tensor | None, ...]
    memory: tuple[torch.UntypedStorage, ...]
    state: tuple[Any, ...]
    weight: Tensor
    bias: Tensor
    stream: int  # that their memory belongs to; 0 on the CPU


def can_fold(conv: nn.ConvTranspose2d, norm: nn.BatchNorm2d, input: Tensor) -> bool:
    """Whether folding computes what PyTorch's BatchNorm computes behind this call: in eval mode, without gradients."""
    mean, variance = norm.running_mean, norm.running_var
    if norm.training or mean is None or variance is None or variance.shape != (conv.out_channels,):
        return False
    weight = conv.weight
    known = {weight.dtype, torch.float32} if weight.dtype in _HALVES else {weight.dtype}
    if any(t is not None and t.dtype not in known for t in (mean, variance, norm.weight, norm.bias)):
        return False
    return not (
        torch.is_grad_enabled() and torch._C._any_requires_grad(input, weight, conv.bias, norm.weight, norm.bias)
    )


def folded(conv: Any, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """Weight and bias of conv with norm behind it: computed when first needed, then kept on the convolution.

    With scale = norm.weight / sqrt(running_var + eps): weight * scale, and (bias - running_mean) * scale + norm.bias.
    """
    tensors = (
        conv.weight, conv.bias, norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.num_batches_tracked,
    )  # fmt: skip
    present = tuple(tensor for tensor in tensors if tensor is not None)
    weight = tensors[0]
    # A graph's replays fold again, so that they see new weights. Writes to inference tensors are not counted.
    if (weight.is_cuda and torch.cuda.is_current_stream_capturing()) or any(map(torch.is_inference, present)):
        return _fold(conv, norm)
    # Training counts its batches, while the writes to the running statistics themselves are not counted.
    state = (
        num_uncounted_writes(), norm.eps, weight.stride(),
        *((tensor._version, tensor.data_ptr()) for tensor in present),
    )  # fmt: skip
    kept = conv._fold
    if kept is not None and state == kept.state and all(a is b for a, b in zip(tensors, kept.tensors, strict=True)):
        if kept.stream != _stream(kept.weight):
            current = torch.cuda.current_stream(kept.weight.device)
            kept.weight.record_stream(current)
            kept.bias.record_stream(current)
        return kept.weight, kept.bias
    see_uncounted_writes()
    made = _fold(conv, norm)
    if weight.is_cuda:  # other streams may read it from now on
        torch.cuda.current_stream(weight.device).synchronize()
    conv._fold = Fold(tensors, tuple(t.untyped_storage() for t in present), state, *made, _stream(weight))
    return made


def _stream(tensor: Tensor) -> int:
    return torch._C._cuda_getCurrentRawStream(tensor.get_device()) if tensor.is_cuda else 0


def _fold(conv: Any, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """In float32 at least, and rounded to the weight's dtype once."""
    with torch.inference_mode(False), torch.no_grad():
        weight = conv.weight
        dtype = torch.promote_types(weight.dtype, torch.float32)
        scale = (norm.running_var.to(dtype) + norm.eps).rsqrt()  # type: ignore[union-attr]
        if norm.weight is not None:
            scale = scale * norm.weight
        shift = -norm.running_mean.to(dtype)  # type: ignore[union-attr]
        if conv.bias is not None:
            shift = shift + conv.bias
        shift = shift * scale
        if norm.bias is not None:
            shift = shift + norm.bias
        groups = conv.groups
        of_groups = weight.unflatten(0, (groups, weight.shape[0] // groups)) * scale.view(groups, 1, -1, 1, 1)
        return of_groups.flatten(0, 1).to(weight.dtype), shift.to(weight.dtype)

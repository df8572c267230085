"""A transposed convolution and what follows it: how much of that runs in its epilogue, decided on each call.

Called by sequential.py and graph.py. What cannot be taken runs as it would without fusing, in the same order. Must not
know where the followers come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.compiler import is_compiling
from torch.nn.modules import module as nn_module
from torch.overrides import has_torch_function_unary

from .. import epilogue, routing
from ..functional import conv_transpose2d
from ..modules import ConvTranspose2d
from .folding import can_fold, folded

# Exact types, as in epilogue.py. In eval mode they give back their input.
_DROPOUTS = frozenset({nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout})
_NORMS = frozenset({nn.BatchNorm2d, nn.SyncBatchNorm})
_TAKEN = frozenset(epilogue.MODULES) | _DROPOUTS | _NORMS

# Why a chain ends. Of another module there is nothing to say.
OTHER = "it is another module"
HOOKS = "it has hooks, or its forward was replaced or compiled on the object"
SUBCLASS = "it is of a subclass, which may compute something else"
NO_STATISTICS = "it has no running statistics"
NOT_FIRST = "it does not directly follow the convolution, so it cannot be folded"


def obstacle(follower: Any, is_first: bool) -> str | None:
    """Why no convolution takes this follower, whatever mode it is in; None where one does.

    Args:
        follower: a module, or an entry of an epilogue.
        is_first: whether everything between the convolution and this gives back its input.
    """
    if not isinstance(follower, nn.Module):
        return None
    kind = type(follower)
    if kind not in _TAKEN:
        return SUBCLASS if isinstance(follower, tuple(_TAKEN)) else OTHER
    if not is_bare(follower):
        return HOOKS
    if kind in _NORMS:
        if not is_first:
            return NOT_FIRST
        if follower.running_mean is None or follower.running_var is None:
            return NO_STATISTICS
    return None


def gives_back_its_input(follower: Any) -> bool:
    """Whether it does nothing in eval mode."""
    return type(follower) is nn.Identity or type(follower) in _DROPOUTS


def is_bare(module: nn.Module) -> bool:
    """Whether calling the module runs the forward of its class and nothing else."""
    return not (
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or module._compiled_call_impl is not None
        or "forward" in vars(module)
    )


def run(conv: Any, followers: Sequence[Any], input: Any) -> Any:
    """`epilogue.apply(conv(input), followers)`, with as many followers as possible in the convolution's epilogue.

    A BatchNorm2d is folded where it is in eval mode and no gradient is recorded.
    """
    if not _may_fuse(conv, input):
        return epilogue.apply(conv(input), followers)
    norm, entries, num_taken = _take(conv, followers, input)
    if norm is None and not entries:
        return epilogue.apply(conv(input), followers[num_taken:])
    weight, bias = (conv.weight, conv.bias) if norm is None else folded(conv, norm)
    result = conv_transpose2d(
        input, weight, bias, conv.stride, conv.padding, conv.output_padding, conv.groups, conv.dilation,
        precision=conv.precision, epilogue=(*conv.epilogue, *entries),
    )  # fmt: skip
    return epilogue.apply(result, followers[num_taken:])


def _take(conv: Any, followers: Sequence[Any], input: Tensor) -> tuple[Any, list[Any], int]:
    """The BatchNorm to fold, the entries of the epilogue, and how many followers these are."""
    norm: Any = None
    entries: list[Any] = []
    for num_taken, follower in enumerate(followers):
        is_first = norm is None and not entries and not conv.epilogue
        if obstacle(follower, is_first) is not None:
            return norm, entries, num_taken
        kind = type(follower)
        if kind in _NORMS:
            if not can_fold(conv, follower, input):
                return norm, entries, num_taken
            norm = follower
        elif kind in _DROPOUTS:
            if follower.training:
                return norm, entries, num_taken
        elif kind is not nn.Identity:
            entries.append(follower)
    return norm, entries, len(followers)


def _may_fuse(conv: Any, input: Any) -> bool:
    """Whether this is an ordinary call: what traces or transforms it has to see PyTorch's modules."""
    return (
        not is_compiling()
        and isinstance(conv, ConvTranspose2d)
        and type(conv).forward is ConvTranspose2d.forward
        and type(input) in routing.PLAIN
        and input.dim() == 4
        and type(conv.weight) in routing.PLAIN
        and is_bare(conv)
        and conv._word is None
        and not nn_module._has_any_global_hook()
        and torch._C._get_tracing_state() is None
        and not torch._C._are_functorch_transforms_active()
        and forward_ad._current_level < 0
        and torch._C._len_torch_dispatch_stack() == 0
        and (not has_torch_function_unary(input) or routing.only_default_device_modes())
    )

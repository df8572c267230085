"""A transposed convolution and its followers: decides on each call how many of them run in its epilogue.

Called by sequential.py and graph.py. The other followers run unfused, in the same order. Must not know where the
followers come from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from ..dispatch import autocast, routing
from ..environment import _torch
from ..environment._torch import forward_ad, has_torch_function_unary
from ..functional import FUNCTIONS, conv_transpose_then
from ..modules import ConvTransposeMixin
from .folding import can_fold, folded, result_size
from .functions import Call
from .steps import MODULES, apply_after, steps_of

# A follower of a convolution: a module, or a call in a graph.
Follower = nn.Module | Call


@dataclass(eq=False)
class Functional:
    """A call of one of `FUNCTIONS` in a graph, with a module's interface: `torch.fx` records modules as such calls."""

    # Attributes of the module.
    _frozen: ClassVar[None] = None
    _requested: ClassVar[None] = None

    weight: Any
    bias: Any
    stride: Any
    padding: Any
    output_padding: Any
    groups: int
    dilation: Any
    precision: str | None
    backend: str | None

    def forward(self, input: Any) -> Any:
        return FUNCTIONS[len(self.stride)](
            input, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation,
            precision=self.precision, backend=self.backend,
        )  # fmt: skip

    __call__ = forward


# Exact types, as in steps.py. In eval mode they return their input.
_DROPOUTS = frozenset({nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout})
_NORMS = frozenset({nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm})
# By the number of dimensions.
_TAKEN = {
    dims: frozenset({norm, nn.SyncBatchNorm, *MODULES}) | _DROPOUTS
    for dims, norm in ((1, nn.BatchNorm1d), (2, nn.BatchNorm2d), (3, nn.BatchNorm3d))
}

# Why a chain ends. OTHER is not reported.
OTHER = "it is another module"
HOOKS = "it has hooks, or its forward was replaced or compiled on the object"
SUBCLASS = "it is a subclass, which may compute something else"
NO_STATISTICS = "it has no running statistics"
NOT_FIRST = "it does not directly follow the convolution, so it cannot be folded"


def obstacle(follower: Any, is_first: bool, dims: int) -> str | None:
    """Returns why this follower of a convolution of `dims` dimensions cannot be fused in any mode; None if it can.
    `is_first`: all modules between the convolution and this one return their input."""
    if not isinstance(follower, nn.Module):
        return None
    kind = type(follower)
    if kind not in _TAKEN[dims]:
        return SUBCLASS if isinstance(follower, tuple(_TAKEN[dims])) else OTHER
    if not is_bare(follower):
        return HOOKS
    if kind in _NORMS:
        if not is_first:
            return NOT_FIRST
        if follower.running_mean is None or follower.running_var is None:
            return NO_STATISTICS
    return None


def gives_back_its_input(follower: Any) -> bool:
    """Returns whether the follower returns its input in eval mode."""
    return type(follower) is nn.Identity or type(follower) in _DROPOUTS


def is_bare(module: Any) -> bool:
    """Returns whether calling the module runs only the forward of its class."""
    return isinstance(module, Functional) or not (
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or module._compiled_call_impl is not None
        or "forward" in vars(module)
    )


def run(conv: Any, followers: Sequence[Follower], input: Any) -> Any:
    """Runs conv and its followers in order, with as many as possible in the convolution's epilogue.

    Folds a BatchNorm in eval mode if no gradient is recorded.
    """
    if not _may_fuse(conv, input):
        return _apply_after(partial(conv, input), followers)
    norm, entries, num_taken = _take(conv, followers, input)
    if norm is None and not entries:
        return _apply_after(partial(conv, input), followers[num_taken:])
    weight, bias = (conv.weight, conv.bias) if norm is None else folded(conv, norm)
    arguments = input, weight, bias, conv.stride, conv.padding, conv.output_padding, conv.groups, conv.dilation
    keywords = {"precision": conv.precision, "backend": conv.backend}
    run = partial(conv_transpose_then, len(conv.stride), *arguments, **keywords, epilogue=entries)
    return _apply_after(run, followers[num_taken:])


def _apply_after(compute: Callable[[], Any], followers: Sequence[Follower]) -> Any:
    """Applies the followers to the result of `compute`, one after the other."""
    return apply_after(compute, [_as_entry(follower) for follower in followers])


def _as_entry(follower: Follower) -> Any:
    if not isinstance(follower, Call):
        return follower
    return (partial(follower.function, **follower.keywords), *follower.arguments)


def _take(conv: Any, followers: Sequence[Follower], input: Tensor) -> tuple[Any, list[Any], int]:
    """Returns the BatchNorm to fold, the entries of the epilogue, and the number of followers that they replace."""
    norm: Any = None
    entries: list[Any] = []
    for num_taken, follower in enumerate(followers):
        is_first = norm is None and not entries
        if obstacle(follower, is_first, len(conv.stride)) is not None:
            return norm, entries, num_taken
        kind = type(follower)
        if kind in _NORMS:
            if not can_fold(conv, follower, input):  # type: ignore[arg-type]
                return norm, entries, num_taken
            norm = follower
        elif kind in _DROPOUTS:
            if follower.training:  # type: ignore[union-attr]
                return norm, entries, num_taken
        elif kind is not nn.Identity:
            entry = _entry(follower, conv, input)
            if entry is None:
                return norm, entries, num_taken
            entries.append(entry)
    return norm, entries, len(followers)


def _entry(follower: Follower, conv: Any, input: Tensor) -> Any:
    """Returns the epilogue entry for a follower; None if the entry may compute something else with these operands."""
    entry: Any = follower
    if isinstance(follower, Call):
        for operand in follower.operands:
            if isinstance(operand, Tensor) and not _is_plain(operand, follower, conv, input):
                return None
        entry = (follower.entry, *follower.operands) if follower.operands else follower.entry
    try:
        steps_of((entry,))
    except Exception:  # PyTorch's function accepts it or raises its own error
        return None
    return entry


def _is_plain(operand: Tensor, call: Call, conv: Any, input: Tensor) -> bool:
    """Returns whether an epilogue computes the same as the call with this operand."""
    if type(operand) not in routing.PLAIN or operand.layout is not torch.strided:
        return False
    if call.is_reversed and operand.dim() == 0 and operand.device.type == "cpu":
        return False  # PyTorch rounds such an operand to half precision, except as the second one
    if not call.writes:
        return True
    # The result keeps the convolution's dtype and size; PyTorch rejects wider or larger operands.
    dtype, device = conv.weight.dtype, input.device.type
    if torch.is_autocast_enabled(device):
        dtype = autocast.dtype_of(conv.weight, device)
    if operand.is_complex() or (operand.dim() > 0 and torch.promote_types(operand.dtype, dtype) != dtype):
        return False
    size = result_size(conv, input)
    return operand.dim() <= len(size) and all(
        length in (1, whole) for length, whole in zip(reversed(operand.shape), reversed(size), strict=False)
    )


def _may_fuse(conv: Any, input: Any) -> bool:
    """Returns whether this is an ordinary call; tracers and transforms must see PyTorch's modules."""
    return (
        not is_compiling()
        and isinstance(conv, (ConvTransposeMixin, Functional))
        and type(conv).forward in (ConvTransposeMixin.forward, Functional.forward)
        and type(input) in routing.PLAIN
        and input.dim() == len(conv.stride) + 2
        and type(conv.weight) in routing.PLAIN
        and conv.weight.is_floating_point()
        and is_bare(conv)
        and conv._requested is None
        and not _torch.has_any_global_hook()
        and _torch.tracing_state() is None
        and not _torch.transforms_active()
        and forward_ad._current_level < 0
        and _torch.num_dispatch_modes() == 0
        and (not has_torch_function_unary(input) or routing.only_default_device_modes())
    )

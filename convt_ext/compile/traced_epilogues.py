"""The ops of compiled functions with pointwise steps on the result before it is stored (epilogue/steps.py).

`convt_ext::conv_transpose2d_then` extends `convt_ext::conv_transpose2d` (traced_ops.py), which decides when it runs,
and `convt_ext::forward_then` extends `convt_ext::forward`, which has an explicit precision. Each step has one number in
`operations`, + 256 if its operand is the next of `tensors`, and two in `scalars`.

Made by fusion.py, which finds the steps in a graph. The first op has gradients if they follow from its result, as in
eager calls (epilogue/fused.py); the gradient of a clamp at its bounds is 0, as for relu and hardtanh. The second op
has none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..dispatch import autograd, ops
from ..dispatch.directions import NativeConv
from ..environment import _torch
from ..epilogue import fused
from ..epilogue.steps import Step, lists_of, steps_in
from . import traced_ops

_STEPS = "int[] operations, float[] scalars, Tensor[] tensors"


def run_forward_then(input, weight, bias, numbers, channels_last, operations, scalars, tensors) -> Tensor:
    """Implements the first op, below autograd, for untraced tensors."""
    steps = steps_in(operations, scalars, tensors)
    return traced_ops.run_forward(input, weight, bias, numbers, channels_last, steps)


class _Traced(traced_ops.Traced):
    """The base class with steps after the forward pass."""

    __slots__ = ()

    def forward_then(self, input: Tensor, weight: Tensor, bias: Tensor | None, steps: Sequence[Step]) -> Tensor:
        with _torch.AutoDispatchBelowAutograd():
            return forward_then(input, weight, bias, self.numbers, None, *lists_of(steps))


def _record_forward_then(input, weight, bias, numbers, channels_last, operations, scalars, tensors) -> Tensor:
    arguments = (input, weight, bias, numbers, channels_last, operations, scalars, tensors)
    steps = [step._replace(open_interval=True) for step in steps_in(operations, scalars, tensors)]
    records = torch.is_grad_enabled() and _torch.any_requires_grad(input, weight, bias, *tensors)
    if not records or not fused.are_differentiable(steps):
        return _without_gradient(run_forward_then, "conv_transpose2d_then", "conv_transpose2d")(*arguments)
    autograd.refuse_tangents("conv_transpose2d_then", input, weight, bias, *tensors)
    return fused.Then.apply(input, weight, bias, _Traced(numbers), steps, *(step.tensor for step in steps))


def _run_by_name(input, weight, bias, *others) -> Tensor:
    *arguments, operations, scalars, tensors = others
    directions = _named_directions(tuple(tuple(one) if isinstance(one, (list, tuple)) else one for one in arguments))
    return directions.forward_then(input, weight, bias, steps_in(operations, scalars, tensors))


_named_directions = functools.lru_cache(256)(NativeConv)


def _fake(input, weight, bias, numbers, channels_last, operations, scalars, tensors) -> Tensor:
    return traced_ops.fake_forward(input, weight, bias, numbers, channels_last)


def _fake_by_name(*arguments: Any) -> Tensor:
    return ops.fake_forward(*arguments[:-3])


def _without_gradient(run: Callable[..., Tensor], name: str, instead: str) -> Callable[..., Tensor]:
    """Returns the autograd kernel of an op that is not for training."""

    def record(input, weight, bias, *others) -> Tensor:
        tensors = input, weight, bias, *others[-1]
        if traced_ops.only_runs(*tensors):
            return run(input, weight, bias, *others)
        autograd.refuse_tangents(name, *tensors)
        if torch.is_grad_enabled() and _torch.any_requires_grad(*tensors):
            raise NotImplementedError(f"convt_ext::{name} has no gradient: use convt_ext::{instead}")
        with _torch.AutoDispatchBelowAutograd():
            return getattr(torch.ops.convt_ext, name).default(input, weight, bias, *others)

    return record


forward_then = traced_ops.define(
    "conv_transpose2d_then",
    f"(Tensor input, Tensor weight, Tensor? bias, int[] numbers, bool? channels_last, {_STEPS}) -> Tensor",
    run_forward_then, _fake, _record_forward_then, ops.forward_flops,
)  # fmt: skip
forward_then_by_name = traced_ops.define(
    "forward_then",
    "(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] output_padding, int groups, "
    f"int[] dilation, int precision, bool channels_last, {_STEPS}) -> Tensor",
    _run_by_name, _fake_by_name, _without_gradient(_run_by_name, "forward_then", "forward"), ops.forward_flops,
)  # fmt: skip

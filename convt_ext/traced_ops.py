"""The ops of compiled functions without an explicit precision: made of Python, they decide each time they run.

    convt_ext::conv_transpose2d(Tensor input, Tensor weight, Tensor? bias, ..., bool channels_last) -> Tensor
    convt_ext::conv_transpose2d_grad_input(Tensor grad_output, Tensor input, Tensor weight, ...) -> Tensor
    convt_ext::conv_transpose2d_grad_weight(Tensor grad_output, Tensor input, Tensor weight, ...) -> Tensor

Called by compiled.py while tracing, by the compiled program afterwards. When one runs, PyTorch's switches and the
estimates choose, as in an eager call with `precision=None`. The memory format was chosen while tracing, because
the code around a result is compiled for its strides. A gradient reads the switches when it runs, as PyTorch's own
does: a graph has no place for the class that its forward ran in.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from . import autograd, ops, routing
from .directions import ByTorch, Directions, arguments_of_weight
from .geometry import memory_format, output_size
from .precision import use_precision

_ARGUMENTS = (
    "SymInt[2] stride, SymInt[2] padding, SymInt[2] output_padding, SymInt groups, SymInt[2] dilation, "
    "bool channels_last"
)


class Traced(Directions):
    """The three directions as these ops; `arguments` as they take them."""

    __slots__ = ()
    by_name = False

    def forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        with torch._C._AutoDispatchBelowAutograd():
            return forward(input, weight, bias, *self.arguments)

    def grad_input(self, grad_output: Tensor, input: Tensor | None, weight: Tensor) -> Tensor:
        with torch._C._AutoDispatchBelowAutograd():
            return grad_input(grad_output, input, weight, *self.arguments)

    def grad_weight(self, grad_output: Tensor, input: Tensor, weight: Tensor | None) -> Tensor:
        with torch._C._AutoDispatchBelowAutograd():
            return grad_weight(grad_output, input, weight, *arguments_of_weight(self.arguments, input))

    def grad_bias(self, grad_output: Tensor) -> Tensor:
        with torch._C._AutoDispatchBelowAutograd():
            return grad_output.sum((0, 2, 3))  # which Inductor fuses with its neighbours


def _directions_now(input: Tensor, weight: Tensor, bias: Tensor | None, arguments: tuple[Any, ...]) -> Directions:
    """Who serves the three directions as PyTorch's switches are now."""
    with use_precision(None):  # a context that is open while the program runs was not open while it was traced
        stride, padding, output_padding, groups, dilation, _ = arguments
        decision = routing.route(
            input, weight, bias, stride, padding, output_padding, groups, dilation, None, lowers=False
        )  # fmt: skip
    return ByTorch(arguments) if isinstance(decision, routing.Reason) else decision[3]


def _run_forward(input, weight, bias, *arguments: Any) -> Tensor:
    result = _directions_now(input, weight, bias, arguments).forward(input, weight, bias)
    return result.contiguous(memory_format=memory_format(arguments[-1]))


def _run_grad_input(grad_output, input, weight, *arguments: Any) -> Tensor:
    result = _directions_now(input, weight, None, arguments).grad_input(grad_output, input, weight)
    return result.contiguous(memory_format=memory_format(arguments[-1]))


def _run_grad_weight(grad_output, input, weight, *arguments: Any) -> Tensor:
    result = _directions_now(input, weight, None, arguments).grad_weight(grad_output, input, weight)
    return result.contiguous(memory_format=memory_format(arguments[-1]))


def _fake_forward(input, weight, bias, stride, padding, output_padding, groups, dilation, channels_last) -> Tensor:
    size = output_size(input.shape, weight.shape, stride, padding, output_padding, groups, dilation)
    return ops.empty(size, input, channels_last)


def _fake_grad_input(grad_output, input, weight, *arguments: Any) -> Tensor:
    return ops.empty(input.shape, input, arguments[-1])


def _fake_grad_weight(grad_output, input, weight, *arguments: Any) -> Tensor:
    return ops.empty(weight.shape, weight, arguments[-1])


def _record_forward(input, weight, bias, *arguments: Any) -> Tensor:
    autograd.refuse_tangents("conv_transpose2d", input, weight, bias)
    return autograd.forward(input, weight, bias, Traced(arguments))


def _record_grad_input(grad_output, input, weight, *arguments: Any) -> Tensor:
    autograd.refuse_tangents("conv_transpose2d_grad_input", grad_output, weight)
    return autograd.grad_input(grad_output, input, weight, Traced(arguments))


def _record_grad_weight(grad_output, input, weight, *arguments: Any) -> Tensor:
    autograd.refuse_tangents("conv_transpose2d_grad_weight", grad_output, input)
    return autograd.grad_weight(grad_output, input, weight, Traced(arguments))


def _grad_input_flops(grad_output_shape, input_shape, weight_shape, *args, **kwargs) -> int:
    return ops.forward_flops(input_shape, weight_shape, out_shape=grad_output_shape)


_library = torch.library.Library("convt_ext", "FRAGMENT")


def _define(name: str, operands: str, run, fake, record, flops) -> Any:
    """Define one op: what it does, what it says of its result, how it is recorded, what it costs."""
    _library.define(f"{name}({operands}, {_ARGUMENTS}) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
    _library.impl(name, run, "CompositeExplicitAutograd")
    _library.impl(name, record, "Autograd")
    torch.library.register_fake(f"convt_ext::{name}", fake, lib=_library)
    packet = getattr(torch.ops.convt_ext, name)
    register_flop_formula(packet)(flops)
    return packet.default


forward = _define(
    "conv_transpose2d", "Tensor input, Tensor weight, Tensor? bias", _run_forward, _fake_forward, _record_forward,
    ops.forward_flops,
)  # fmt: skip
grad_input = _define(
    "conv_transpose2d_grad_input", "Tensor grad_output, Tensor input, Tensor weight", _run_grad_input,
    _fake_grad_input, _record_grad_input, _grad_input_flops,
)  # fmt: skip
grad_weight = _define(
    "conv_transpose2d_grad_weight", "Tensor grad_output, Tensor input, Tensor weight", _run_grad_weight,
    _fake_grad_weight, _record_grad_weight, _grad_input_flops,
)  # fmt: skip

"""The three directions of one problem: forward, gradient of the input, gradient of the weight; and the bias's gradient.

`Directions` runs the compiled ops with fixed arguments, `ByTorch` PyTorch's operator; chosen.py mixes both. routing.py
makes them, autograd.py differentiates what they compute. Everything here lies below autograd: nothing is recorded. The
precision class was resolved before and stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import ops
from .geometry import grad_weight_is_channels_last

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]  # of input, weight and bias

_below_autograd = torch._C._AutoDispatchBelowAutograd

_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)
_AUTOCAST = _AUTOCAST | torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

_convolution = torch.ops.aten.convolution.default
_convolution_backward = torch.ops.aten.convolution_backward.default


class Directions:
    """What our ops compute of one problem.

    Args:
        arguments: (stride, padding, output_padding, groups, dilation, precision code, channels_last) of the ops.
    """

    __slots__ = ("arguments",)

    # Whether somebody asked for the class; where nobody did, PyTorch's operator may serve a derivative.
    by_name = True

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        self.arguments = arguments

    def forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        with _below_autograd():
            return ops.forward(input, weight, bias, *self.arguments)

    def grad_input(self, grad_output: Tensor, input: Tensor | None, weight: Tensor) -> Tensor:
        """The gradient of an input of the size of `input`, which our op derives from the other sizes."""
        with _below_autograd():
            return ops.grad_input(grad_output, weight, *self.arguments)

    def grad_weight(self, grad_output: Tensor, input: Tensor, weight: Tensor | None) -> Tensor:
        """The gradient of a weight of the size of `weight`, which our op derives from the other sizes."""
        with _below_autograd():
            return ops.grad_weight(grad_output, input, *arguments_of_weight(self.arguments, input))

    def grad_bias(self, grad_output: Tensor) -> Tensor:
        with _below_autograd():
            return ops.grad_bias(grad_output)

    def gradients(self, grad_output: Tensor, input: Tensor, weight: Tensor, wanted: Sequence[bool]) -> Gradients:
        """Those of the gradients of input, weight and bias that are `wanted`: what one backward asks for, at once."""
        return (
            self.grad_input(grad_output, input, weight) if wanted[0] else None,
            self.grad_weight(grad_output, input, weight) if wanted[1] else None,
            self.grad_bias(grad_output) if wanted[2] else None,
        )

    @property
    def candidates(self) -> tuple[int, ...]:
        """Of forward pass and gradients of input and weight, the plan preferred to the planner's choice, or 0."""
        return 0, 0, 0

    def left_to_torch(self, direction: int) -> bool:
        """Whether PyTorch's operator computes that direction, where it is the only one of a backward that is wanted."""
        return False

    def is_torchs(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
        """Whether an eager call is known to be PyTorch's own, and its casts under autocast too, which PyTorch keeps."""
        return False

    def serves(self, input: Tensor, weight: Tensor, bias: Tensor | None, wanted: int) -> bool:
        """Whether an eager call is better here than as PyTorch's own.

        Args:
            wanted: as `wanted_gradients` says.
        """
        return True


def wanted_gradients(input: Tensor, weight: Tensor, bias: Tensor | None) -> int:
    """What the backward of an eager call will compute: 1 of the input, 2 of the weight, 4 of the bias, or the sum."""
    if not torch.is_grad_enabled():
        return 0
    return input.requires_grad + 2 * weight.requires_grad + (4 if bias is not None and bias.requires_grad else 0)


def arguments_of_weight(arguments: tuple[Any, ...], input: Tensor) -> tuple[Any, ...]:
    """The arguments with the memory format of the weight's gradient, which is the last of them."""
    channels_last = arguments[-1]
    if not channels_last or grad_weight_is_channels_last(channels_last, input.shape, input.stride()):
        return arguments
    return (*arguments[:-1], False)


class Eager(Directions):
    """As `Directions`, for calls that nothing traces: an op reads one list of numbers 6 us faster than four.

    Args:
        candidates: of forward pass and gradients of input and weight, the plan preferred to the planner's choice.
    """

    __slots__ = ("numbers",)

    def __init__(self, arguments: tuple[Any, ...], candidates: Sequence[int] = (0, 0, 0)) -> None:
        super().__init__(arguments)
        self.numbers = self.numbers_of(candidates)

    @property
    def candidates(self) -> tuple[int, ...]:
        return self.numbers[-3:]

    def numbers_of(self, candidates: Sequence[int]) -> tuple[int, ...]:
        """The list that an op reads."""
        stride, padding, output_padding, groups, dilation, code, channels_last = self.arguments
        return (*stride, *padding, *output_padding, groups, *dilation, code, channels_last, *candidates)

    def forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return ops.run_forward(input, weight, bias, self.numbers)

    def grad_input(self, grad_output: Tensor, input: Tensor | None, weight: Tensor) -> Tensor:
        if input is None:
            return super().grad_input(grad_output, input, weight)
        return self.gradients(grad_output, input, weight, (True, False, False))[0]  # type: ignore[return-value]

    def grad_weight(self, grad_output: Tensor, input: Tensor, weight: Tensor | None) -> Tensor:
        if weight is None:
            return super().grad_weight(grad_output, input, weight)
        return self.gradients(grad_output, input, weight, (False, True, False))[1]  # type: ignore[return-value]

    def gradients(self, grad_output: Tensor, input: Tensor, weight: Tensor, wanted: Sequence[bool]) -> Gradients:
        return ops.run_gradients(grad_output, input, weight, self.numbers, self.bits(input, wanted))

    def bits(self, input: Tensor, wanted: Sequence[bool]) -> int:
        """Which gradients an op computes, and the memory format of the weight's."""
        bits = wanted[0] + 2 * wanted[1] + 4 * wanted[2]
        channels_last = self.arguments[-1]
        if channels_last and grad_weight_is_channels_last(channels_last, input.shape, input.stride()):
            bits += 8
        return bits


class ByTorch(Directions):
    """The same by PyTorch's operator; of `arguments` it takes those before the precision."""

    __slots__ = ()
    by_name = False

    def forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        with _below_autograd():
            return torch_forward(input, weight, bias, self.arguments)

    def grad_input(self, grad_output: Tensor, input: Tensor | None, weight: Tensor) -> Tensor:
        assert input is not None
        with _below_autograd():
            return torch_grad_input(grad_output, input, weight, self.arguments)

    def grad_weight(self, grad_output: Tensor, input: Tensor, weight: Tensor | None) -> Tensor:
        assert weight is not None
        with _below_autograd():
            return torch_grad_weight(grad_output, input, weight, self.arguments)

    def grad_bias(self, grad_output: Tensor) -> Tensor:
        with _below_autograd():
            return grad_output.sum((0, 2, 3))

    def gradients(self, grad_output: Tensor, input: Tensor, weight: Tensor, wanted: Sequence[bool]) -> Gradients:
        with _below_autograd():
            of_operands = [wanted[0], wanted[1], False]
            found = torch_gradients(grad_output, input, weight, self.arguments, of_operands) if any(wanted[:2]) else ()
            grad_input, grad_weight = (found[i] if wanted[i] else None for i in (0, 1))
            return grad_input, grad_weight, grad_output.sum((0, 2, 3)) if wanted[2] else None


def torch_forward(input: Tensor, weight: Tensor, bias: Tensor | None, arguments: tuple[Any, ...]) -> Tensor:
    """PyTorch's transposed convolution in the operands' own dtype; of `arguments` the first five count."""
    stride, padding, output_padding, groups, dilation = arguments[:5]
    with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
        return _convolution(input, weight, bias, stride, padding, dilation, True, output_padding, groups)


def torch_grad_input(grad_output: Tensor, input: Tensor, weight: Tensor, arguments: tuple[Any, ...]) -> Tensor:
    """PyTorch's gradient of the input."""
    return torch_gradients(grad_output, input, weight, arguments, [True, False, False])[0]


def torch_grad_weight(grad_output: Tensor, input: Tensor, weight: Tensor, arguments: tuple[Any, ...]) -> Tensor:
    """PyTorch's gradient of the weight."""
    return torch_gradients(grad_output, input, weight, arguments, [False, True, False])[1]


def torch_gradients(grad_output, input, weight, arguments, output_mask) -> tuple[Any, ...]:
    """PyTorch's gradients of input and weight, those that `output_mask` names; its third is that of a bias."""
    stride, padding, output_padding, groups, dilation = arguments[:5]
    return _convolution_backward(
        grad_output, input, weight, None, stride, padding, dilation, True, output_padding, groups, output_mask
    )

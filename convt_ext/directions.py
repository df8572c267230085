"""The three directions of one problem: forward, gradient of the input, gradient of the weight; and the bias's gradient.

`Directions` runs the compiled ops with fixed arguments; `Chosen` leaves to PyTorch's operator what that one is
estimated to do faster. routing.py makes them, autograd.py differentiates what they compute. Everything
here lies below autograd: nothing is recorded. The precision class was resolved before and stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import ops, planner
from . import precision as precisions
from .geometry import grad_weight_is_channels_last

FORWARD, GRAD_INPUT, GRAD_WEIGHT = 0, 1, 2

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]  # of input, weight and bias

NO_TILE = "no kernel of ours has a tile that fits this problem"

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
            return ops.run_forward(input, weight, bias, *self.arguments)

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

    def left_to_torch(self, direction: int) -> bool:
        """Whether PyTorch's operator computes that gradient."""
        return False


def arguments_of_weight(arguments: tuple[Any, ...], input: Tensor) -> tuple[Any, ...]:
    """The arguments with the memory format of the weight's gradient, which is the last of them."""
    channels_last = arguments[-1]
    if not channels_last or grad_weight_is_channels_last(channels_last, input.shape, input.stride()):
        return arguments
    return (*arguments[:-1], False)


class Chosen(Directions):
    """As `Directions`, where nobody asked for a precision: PyTorch computes what it is faster at, or what ours cannot.

    Each direction is judged by itself, by the planner's estimates, once, when it is first asked for. Where memory is
    too short for ours, PyTorch's operator, which has algorithms of its own for that, has the last word.
    """

    __slots__ = ("_left", "problem")
    by_name = False

    def __init__(self, arguments: tuple[Any, ...], problem: planner.Problem) -> None:
        super().__init__(arguments)
        self.problem = problem
        self._left: dict[int, bool] = {}

    def forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        with _below_autograd():
            try:
                return ops.run_forward(input, weight, bias, *self.arguments)
            except torch.OutOfMemoryError:
                return torch_forward(input, weight, bias, self.arguments)

    def grad_input(self, grad_output: Tensor, input: Tensor | None, weight: Tensor) -> Tensor:
        if input is None or not self._torch_keeps_the_class():
            return super().grad_input(grad_output, input, weight)
        if not self.left_to_torch(GRAD_INPUT):
            try:
                return super().grad_input(grad_output, input, weight)
            except torch.OutOfMemoryError:
                pass
        return torch_grad_input(grad_output, input, weight, self.arguments)

    def grad_weight(self, grad_output: Tensor, input: Tensor, weight: Tensor | None) -> Tensor:
        if weight is None or not self._torch_keeps_the_class():
            return super().grad_weight(grad_output, input, weight)
        if not self.left_to_torch(GRAD_WEIGHT):
            try:
                return super().grad_weight(grad_output, input, weight)
            except torch.OutOfMemoryError:
                pass
        return torch_grad_weight(grad_output, input, weight, self.arguments)

    def gradients(self, grad_output: Tensor, input: Tensor, weight: Tensor, wanted: Sequence[bool]) -> Gradients:
        if not self._torch_keeps_the_class():
            return super().gradients(grad_output, input, weight, wanted)
        by_torch = [wanted[0] and self.left_to_torch(GRAD_INPUT), wanted[1] and self.left_to_torch(GRAD_WEIGHT), False]
        if not all(by_torch[:2]):
            return super().gradients(grad_output, input, weight, wanted)
        # Both in one call, which prepares grad_output and input once.
        with _below_autograd():
            found = _torch_gradients(grad_output, input, weight, self.arguments, by_torch)
        return found[0], found[1], self.grad_bias(grad_output) if wanted[2] else None

    def why_torch(self, direction: int) -> str | None:
        """Why PyTorch's operator is to compute that direction; None where ours is."""
        if ops.plan is None:
            return None
        choice = planner.choice(self.problem, direction)
        if choice is None:
            return NO_TILE
        if 0 < choice.torch_us < choice.estimate_us:
            return f"estimated {choice.estimate_us:.0f} us here, PyTorch about {choice.torch_us:.0f} us"
        return None

    def left_to_torch(self, direction: int) -> bool:
        found = self._left.get(direction)
        if found is None:
            found = self._left[direction] = self.why_torch(direction) is not None
        return found

    def _torch_keeps_the_class(self) -> bool:
        """Whether PyTorch would compute in the class of the forward pass: it reads its switches when it runs."""
        now = precisions.class_by_switches(self.problem.dtype, planner.capability(self.problem.device))
        return precisions.CODES.get(now) == self.arguments[5]


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
            found = _torch_gradients(grad_output, input, weight, self.arguments, of_operands) if any(wanted[:2]) else ()
            grad_input, grad_weight = (found[i] if wanted[i] else None for i in (0, 1))
            return grad_input, grad_weight, grad_output.sum((0, 2, 3)) if wanted[2] else None


def torch_forward(input: Tensor, weight: Tensor, bias: Tensor | None, arguments: tuple[Any, ...]) -> Tensor:
    """PyTorch's transposed convolution in the operands' own dtype; of `arguments` the first five count."""
    stride, padding, output_padding, groups, dilation = arguments[:5]
    with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
        return _convolution(input, weight, bias, stride, padding, dilation, True, output_padding, groups)


def torch_grad_input(grad_output: Tensor, input: Tensor, weight: Tensor, arguments: tuple[Any, ...]) -> Tensor:
    """PyTorch's gradient of the input."""
    return _torch_gradients(grad_output, input, weight, arguments, [True, False, False])[0]


def torch_grad_weight(grad_output: Tensor, input: Tensor, weight: Tensor, arguments: tuple[Any, ...]) -> Tensor:
    """PyTorch's gradient of the weight."""
    return _torch_gradients(grad_output, input, weight, arguments, [False, True, False])[1]


def _torch_gradients(grad_output, input, weight, arguments, output_mask) -> tuple[Any, ...]:
    stride, padding, output_padding, groups, dilation = arguments[:5]
    return _convolution_backward(
        grad_output, input, weight, None, stride, padding, dilation, True, output_padding, groups, output_mask
    )

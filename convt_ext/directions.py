"""The three directions of one problem: forward, gradient of the input, gradient of the weight; and the bias's gradient.

`Directions` runs the compiled ops with fixed arguments; `Chosen` leaves to PyTorch's operator what that one is
estimated to do faster. routing.py makes them, autograd.py differentiates what they compute. Everything
here lies below autograd: nothing is recorded. The precision class was resolved before and stays.
"""

from __future__ import annotations

import math
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

    def left_to_torch(self, direction: int) -> bool:
        """Whether PyTorch's operator computes that gradient, where it is the only one that is wanted."""
        return False

    def both_left_to_torch(self) -> tuple[bool, bool]:
        """Whether PyTorch's operator computes the gradient of the input, and of the weight, where both are wanted."""
        return False, False

    def is_worth_recording(self) -> bool:
        """Whether a call that records gradients is better here than as PyTorch's operator with its own backward."""
        return True


def arguments_of_weight(arguments: tuple[Any, ...], input: Tensor) -> tuple[Any, ...]:
    """The arguments with the memory format of the weight's gradient, which is the last of them."""
    channels_last = arguments[-1]
    if not channels_last or grad_weight_is_channels_last(channels_last, input.shape, input.stride()):
        return arguments
    return (*arguments[:-1], False)


class Eager(Directions):
    """As `Directions`, for calls that nothing traces: an op reads one list of numbers 6 us faster than four."""

    __slots__ = ("numbers",)

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        super().__init__(arguments)
        stride, padding, output_padding, groups, dilation, code, channels_last = arguments
        self.numbers = (*stride, *padding, *output_padding, groups, *dilation, code, channels_last)

    def forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return ops.run_forward(input, weight, bias, self.numbers)

    def gradients(self, grad_output: Tensor, input: Tensor, weight: Tensor, wanted: Sequence[bool]) -> Gradients:
        bits = wanted[0] + 2 * wanted[1] + 4 * wanted[2]
        channels_last = self.arguments[-1]
        if channels_last and grad_weight_is_channels_last(channels_last, input.shape, input.stride()):
            bits += 8
        return ops.run_gradients(grad_output, input, weight, self.numbers, bits)


# What the host takes to issue both gradients, in microseconds: ours, PyTorch's, one of each; and what it takes more
# where a backward of ours calls PyTorch's than where PyTorch's own backward does (docs/measuring.md).
_OURS_HOST_US, _TORCH_HOST_US, _MIXED_HOST_US, _DETOUR_HOST_US = 50, 100, 120, 70


class Chosen(Eager):
    """As `Eager`, where nobody asked for a precision: PyTorch computes what it is faster at, or what ours cannot.

    Each direction is judged by itself, by the planner's estimates, once, when it is first asked for; the two gradients
    of one backward together, because of small ones the host is what takes long, and two calls cost it more than one.
    Where memory is too short for ours, PyTorch's operator, which has algorithms of its own for that, has the last word.
    """

    __slots__ = ("_choices", "_is_worth_recording", "_together", "problem")
    by_name = False

    def __init__(self, arguments: tuple[Any, ...], problem: planner.Problem) -> None:
        super().__init__(arguments)
        self.problem = problem
        self._choices: dict[int, planner.Choice | None] = {}
        self._together: tuple[bool, bool] | None = None
        self._is_worth_recording: bool | None = None

    def forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        try:
            return ops.run_forward(input, weight, bias, self.numbers)
        except torch.OutOfMemoryError:
            with _below_autograd():
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
        by_torch = [False, False, False]
        if self._torch_keeps_the_class():
            if wanted[0] and wanted[1]:
                by_torch = [*self.both_left_to_torch(), False]
            else:
                by_torch = [
                    wanted[0] and self.left_to_torch(GRAD_INPUT), wanted[1] and self.left_to_torch(GRAD_WEIGHT), False
                ]  # fmt: skip
        ours: Gradients = (None, None, None)
        if by_torch != list(wanted):
            left = [wanted[i] and not by_torch[i] for i in range(3)]
            try:
                ours = super().gradients(grad_output, input, weight, left)
            except torch.OutOfMemoryError:  # one by one they need less, and PyTorch has algorithms that need little
                ours = Directions.gradients(self, grad_output, input, weight, left)
        if not (by_torch[0] or by_torch[1]):
            return ours
        # Both in one call, which prepares grad_output and input once.
        with _below_autograd():
            theirs = _torch_gradients(grad_output, input, weight, self.arguments, by_torch)
        return theirs[0] if by_torch[0] else ours[0], theirs[1] if by_torch[1] else ours[1], ours[2]

    def why_torch(self, direction: int) -> str | None:
        """Why PyTorch's operator is to compute that direction; None where ours is."""
        if not self.left_to_torch(direction):
            return None
        choice = self._choice(direction)
        if choice is None:
            return NO_TILE
        return f"estimated {choice.estimate_us:.0f} us here, PyTorch about {choice.torch_us:.0f} us"

    def left_to_torch(self, direction: int) -> bool:
        if ops.plan is None:
            return False
        choice = self._choice(direction)
        return choice is None or 0 < choice.torch_us < choice.estimate_us

    def _choice(self, direction: int) -> planner.Choice | None:
        if direction not in self._choices:
            self._choices[direction] = planner.choice(self.problem, direction)
        return self._choices[direction]

    def both_left_to_torch(self) -> tuple[bool, bool]:
        if self._together is None:
            alone = self.left_to_torch(GRAD_INPUT), self.left_to_torch(GRAD_WEIGHT)
            self._together = self._cheapest(alone) if alone[0] != alone[1] else alone
        return self._together

    def is_worth_recording(self) -> bool:
        found = self._is_worth_recording
        if found is None:
            found = self._is_worth_recording = not any(self.both_left_to_torch()) or self._gain_us() > _DETOUR_HOST_US
        return found

    def _gain_us(self) -> float:
        """How much longer PyTorch's operator takes than ours at what is ours of a training step; in doubt, much."""
        ours = [FORWARD, *(GRAD_INPUT + i for i, left in enumerate(self.both_left_to_torch()) if not left)]
        choices = [choice for one in ours if (choice := self._choice(one)) is not None]
        if any(choice.torch_us == 0 for choice in choices):
            return math.inf
        return sum(choice.torch_us - choice.estimate_us for choice in choices)

    def _cheapest(self, alone: tuple[bool, bool]) -> tuple[bool, bool]:
        """Of both by one of the two and each by the one that is faster at it: what ends first, on GPU and host."""
        known = [choice for one in (GRAD_INPUT, GRAD_WEIGHT) if (choice := self._choice(one)) is not None]
        if len(known) < 2 or any(choice.torch_us == 0 for choice in known):
            return alone
        costs = {
            (False, False): max(sum(choice.estimate_us for choice in known), _OURS_HOST_US),
            (True, True): max(sum(choice.torch_us for choice in known), _TORCH_HOST_US),
            alone: max(sum(min(choice.estimate_us, choice.torch_us) for choice in known), _MIXED_HOST_US),
        }
        return min(costs, key=costs.__getitem__)

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

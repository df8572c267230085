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

from . import _torch, ops
from .epilogue import Step, apply_steps, lists_of
from .geometry import grad_weight_is_channels_last
from .planner import EXACT_CODES

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]  # of input, weight and bias

_below_autograd = _torch.AutoDispatchBelowAutograd

_AUTOCAST = _torch.autocast_keys

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
    # Of forward pass and gradients of input and weight, the plan preferred to the planner's choice, or 0.
    candidates: tuple[int, ...] = (0, 0, 0)

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
        """Whether PyTorch's operator computes that direction, where it is the only one of a backward that is wanted."""
        return False

    def is_torchs(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
        """Whether an eager call is known to be PyTorch's own, and its casts under autocast too, which PyTorch keeps."""
        return False

    def count(self, calls: bool, backward: bool) -> None:
        """Counts a call, its backward or both, where benchmarks wait for them; `serves` counts eager calls itself."""

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
    """As `Directions`, for calls that nothing traces, with their arguments by a number that the binary remembers.

    Args:
        candidates: of forward pass and gradients of input and weight, the plan preferred to the planner's choice.
        weight_channels_last: the memory format of the weight's gradient.
        by_torch: 1 where the forward pass is by PyTorch's operator, 2 the gradient of the input, 4 of the weight,
            added up.
        by_name: somebody asked for the class. Where nobody did, PyTorch's operator, which has algorithms of its own for
            that, has the last word where memory is too short for ours.
        is_light: what the call and its backward ask for is far from what a GPU has. Then an autograd node of PyTorch's
            may record it, whose failures have their words but not PyTorch's types.
    """

    __slots__ = ("by_name", "call", "candidates", "is_light", "weight_channels_last")

    def __init__(
        self,
        arguments: tuple[Any, ...],
        candidates: Sequence[int] = (0, 0, 0),
        weight_channels_last: bool = False,
        by_torch: int = 0,
        by_name: bool = True,
        is_light: bool = False,
    ) -> None:
        super().__init__(arguments)
        self.weight_channels_last = weight_channels_last
        self.by_name = by_name
        self.is_light = is_light
        self.candidates = tuple(candidates)
        self.call = self.call_of(candidates, by_torch)

    @classmethod
    def remembered(cls, call: int) -> Eager:
        """Those that a call's number stands for."""
        *_, weight_channels_last, first, second, third, by_torch, by_name = ops.remembered(call)
        candidates = first, second, third
        return cls(ops.arguments_of(call), candidates, bool(weight_channels_last), by_torch, bool(by_name))

    def call_of(self, candidates: Sequence[int], by_torch: int) -> int:
        """The number of this call with these plans."""
        stride, padding, output_padding, groups, dilation, code, channels_last = self.arguments
        return ops.remember(
            (*stride, *padding, *output_padding, groups, *dilation, code, int(channels_last),
             int(self.weight_channels_last), *candidates, by_torch, int(self.by_name))
        )  # fmt: skip

    def is_recorded_by_torch(self, wanted: int) -> bool:
        """Whether PyTorch's node may record the call and these gradients of it."""
        return self.is_light

    @property
    def by_torch(self) -> int:
        return ops.remembered(self.call)[15]

    def forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        try:
            return ops.run_forward(input, weight, bias, self.call)
        except RuntimeError as error:
            if not self.is_torchs_to_try(error, 1):
                raise
        with _below_autograd():
            return torch_forward(input, weight, bias, self.arguments)

    def forward_then(self, input: Tensor, weight: Tensor, bias: Tensor | None, steps: Sequence[Step]) -> Tensor:
        """As `forward`, with the steps of an epilogue: in the kernel where it fuses them, else in a pass in place.

        Args:
            steps: their tensors broadcast to the result, and have its dtype and device.
        """
        lists = lists_of(steps)
        try:
            return ops.run_forward_then(input, weight, bias, self.call, *lists)
        except RuntimeError as error:
            if not self.is_torchs_to_try(error, 1):
                raise
        with _below_autograd():
            result = torch_forward(input, weight, bias, self.arguments)
        ops.finish(result, self.arguments[5] in EXACT_CODES, *lists)
        return result

    def is_torchs_to_try(self, error: RuntimeError, directions: int) -> bool:
        """Whether PyTorch's operator has the last word after this failure of an op.

        Args:
            directions: what the op computed, added up as in `by_torch`. Of what PyTorch computed for it nothing is told
                but that it failed.
        """
        missing = isinstance(error, torch.OutOfMemoryError) and not self.by_name
        return missing or self.by_torch & directions != 0

    def grad_input(self, grad_output: Tensor, input: Tensor | None, weight: Tensor) -> Tensor:
        if input is None:
            return super().grad_input(grad_output, input, weight)
        return self.gradients(grad_output, input, weight, (True, False, False))[0]  # type: ignore[return-value]

    def grad_weight(self, grad_output: Tensor, input: Tensor, weight: Tensor | None) -> Tensor:
        if weight is None:
            return super().grad_weight(grad_output, input, weight)
        return self.gradients(grad_output, input, weight, (False, True, False))[1]  # type: ignore[return-value]

    def gradients(self, grad_output: Tensor, input: Tensor, weight: Tensor, wanted: Sequence[bool]) -> Gradients:
        try:
            return ops.run_gradients(grad_output, input, weight, self.call, wanted[0] + 2 * wanted[1] + 4 * wanted[2])
        except RuntimeError as error:
            missing = isinstance(error, torch.OutOfMemoryError)
            if not missing and not self.is_torchs_to_try(error, 2 * wanted[0] + 4 * wanted[1]):
                raise
        # One by one: each alone needs less, and PyTorch has what needs little.
        found: list[Tensor | None] = [None, None, None]
        for one in (0, 1, 2):
            if not wanted[one]:
                continue
            try:
                found[one] = ops.run_gradients(grad_output, input, weight, self.call, 1 << one)[one]
            except RuntimeError as error:
                if one == 2 or not self.is_torchs_to_try(error, 2 << one):
                    raise
                with _below_autograd():
                    mask = [one == 0, one == 1, False]
                    found[one] = torch_gradients(grad_output, input, weight, self.arguments, mask)[one]
        return found[0], found[1], found[2]


class ByTorch(Directions):
    """The same by PyTorch's operator; of `arguments` it takes those before the precision."""

    __slots__ = ()
    by_name = False

    def forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        with _below_autograd():
            return torch_forward(input, weight, bias, self.arguments)

    def forward_then(self, input: Tensor, weight: Tensor, bias: Tensor | None, steps: Sequence[Step]) -> Tensor:
        """The steps by PyTorch's functions too: our kernels may not run here."""
        with _below_autograd():
            return apply_steps(torch_forward(input, weight, bias, self.arguments), steps)

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
    with _torch.ExcludeDispatchKeyGuard(_AUTOCAST):
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

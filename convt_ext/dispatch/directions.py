"""The three directions of one problem: forward, gradient of the input, gradient of the weight; and the bias gradient.

`Directions` runs the compiled ops with fixed arguments, `AtenConv` runs PyTorch's operator; auto_dispatch.py mixes
both. routing.py makes them, autograd.py differentiates them. All code here runs below autograd: nothing is recorded.
The precision class is fixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..environment import _torch
from ..epilogue.steps import Step, apply_steps, lists_of
from . import ops
from .geometry import grad_weight_is_channels_last
from .planner import EXACT_CODES

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]  # of input, weight and bias

_below_autograd = _torch.AutoDispatchBelowAutograd

_AUTOCAST = _torch.autocast_keys

_convolution = torch.ops.aten.convolution.default
_convolution_backward = torch.ops.aten.convolution_backward.default


class Directions:
    """Runs the compiled ops of one problem.

    Args:
        arguments: (stride, padding, output_padding, groups, dilation, precision code, channels_last) of the ops.
    """

    __slots__ = ("arguments",)

    # Whether the precision is explicit or a kernel requested; if not, PyTorch's operator may compute a derivative.
    by_name = True
    # For forward pass and gradients of input and weight: the plan preferred to the planner's choice, or 0.
    candidates: tuple[int, ...] = (0, 0, 0)

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        self.arguments = arguments

    def forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        with _below_autograd():
            return ops.forward(input, weight, bias, *self.arguments)

    def grad_input(self, grad_output: Tensor, input: Tensor | None, weight: Tensor) -> Tensor:
        """Returns the gradient of the input; the op derives the size of `input` from the other sizes."""
        with _below_autograd():
            return ops.grad_input(grad_output, weight, *self.arguments)

    def grad_weight(self, grad_output: Tensor, input: Tensor, weight: Tensor | None) -> Tensor:
        """Returns the gradient of the weight; the op derives the size of `weight` from the other sizes."""
        *arguments, channels_last = self.arguments
        channels_last = grad_weight_is_channels_last(channels_last, input.shape, input.stride())
        with _below_autograd():
            return ops.grad_weight(grad_output, input, *arguments, channels_last)

    def grad_bias(self, grad_output: Tensor) -> Tensor:
        with _below_autograd():
            return ops.grad_bias(grad_output)

    def gradients(self, grad_output: Tensor, input: Tensor, weight: Tensor, needs_grad: Sequence[bool]) -> Gradients:
        """Returns those gradients of input, weight and bias that `needs_grad` selects."""
        return (
            self.grad_input(grad_output, input, weight) if needs_grad[0] else None,
            self.grad_weight(grad_output, input, weight) if needs_grad[1] else None,
            self.grad_bias(grad_output) if needs_grad[2] else None,
        )

    def left_to_torch(self, direction: int) -> bool:
        """Returns whether PyTorch's operator computes that direction, if a backward requests only that one."""
        return False

    def is_aten_call(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
        """Returns whether PyTorch's operator runs an eager call, including its cached casts under autocast."""
        return False

    def count(self, calls: bool, backward: bool) -> None:
        """Counts a call, its backward or both for pending benchmarks; `serves` counts eager calls itself."""

    def serves(self, input: Tensor, weight: Tensor, bias: Tensor | None, needs_grad_mask: int) -> bool:
        """Returns whether to run an eager call here rather than with PyTorch's operator."""
        return True


def grad_mask_of(input: Tensor, weight: Tensor, bias: Tensor | None) -> int:
    """Returns the gradients that the backward of an eager call will compute: 1 input | 2 weight | 4 bias."""
    if not torch.is_grad_enabled():
        return 0
    return input.requires_grad + 2 * weight.requires_grad + (4 if bias is not None and bias.requires_grad else 0)


class JointGradients(Directions):
    """`Directions` that compute single gradients as `gradients` does."""

    __slots__ = ()

    def grad_input(self, grad_output: Tensor, input: Tensor | None, weight: Tensor) -> Tensor:
        assert input is not None
        return self.gradients(grad_output, input, weight, (True, False, False))[0]  # type: ignore[return-value]

    def grad_weight(self, grad_output: Tensor, input: Tensor, weight: Tensor | None) -> Tensor:
        assert weight is not None
        return self.gradients(grad_output, input, weight, (False, True, False))[1]  # type: ignore[return-value]


class NativeConv(JointGradients):
    """`Directions` for untraced calls. The binary stores their arguments under a number.

    Args:
        candidates: for forward pass and gradients of input and weight, the plan preferred to the planner's choice.
        weight_channels_last: memory format of the weight gradient.
        by_torch: directions that PyTorch's operator computes: 1 forward | 2 gradient of the input | 4 of the weight.
        by_name: whether the call has an explicit precision or requests a kernel. If not, PyTorch's operator runs when
            memory is too short for convt_ext, because it has algorithms that need less.
        fits_light_path: the call and its backward need far less memory than a GPU has. An autograd node of PyTorch may
            then record it (the light path). Errors have the usual messages, but not PyTorch's exception types.
    """

    __slots__ = ("by_name", "call", "candidates", "fits_light_path", "weight_channels_last")

    def __init__(
        self,
        arguments: tuple[Any, ...],
        candidates: Sequence[int] = (0, 0, 0),
        weight_channels_last: bool = False,
        by_torch: int = 0,
        by_name: bool = True,
        fits_light_path: bool = False,
    ) -> None:
        super().__init__(arguments)
        self.weight_channels_last = weight_channels_last
        self.by_name = by_name
        self.fits_light_path = fits_light_path
        self.candidates = tuple(candidates)
        self.call = self.call_of(candidates, by_torch)

    @classmethod
    def remembered(cls, call: int) -> NativeConv:
        """Returns the directions with this number."""
        *_, weight_channels_last, first, second, third, by_torch, by_name = ops.remembered(call)
        candidates = first, second, third
        return cls(ops.arguments_of(call), candidates, bool(weight_channels_last), by_torch, bool(by_name))

    def call_of(self, candidates: Sequence[int], by_torch: int) -> int:
        """Returns the number of this call with these plans."""
        stride, padding, output_padding, groups, dilation, code, channels_last = self.arguments
        return ops.remember(
            (*stride, *padding, *output_padding, groups, *dilation, code, int(channels_last),
             int(self.weight_channels_last), *candidates, by_torch, int(self.by_name))
        )  # fmt: skip

    def is_recorded_by_torch(self, needs_grad_mask: int) -> bool:
        """Returns whether PyTorch's node may record the call and these gradients."""
        return self.fits_light_path

    @property
    def by_torch(self) -> int:
        return ops.remembered(self.call)[-2]

    def forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        try:
            return ops.run_forward(input, weight, bias, self.call)
        except RuntimeError as error:
            if not self.falls_back_to_aten(error, 1):
                raise
        with _below_autograd():
            return torch_forward(input, weight, bias, self.arguments)

    def forward_then(self, input: Tensor, weight: Tensor, bias: Tensor | None, steps: Sequence[Step]) -> Tensor:
        """Computes `forward` and the steps of an epilogue: in the kernel if it fuses them, else in an in-place pass.
        Tensors of steps broadcast to the result and have its dtype and device."""
        lists = lists_of(steps)
        try:
            return ops.run_forward_then(input, weight, bias, self.call, *lists)
        except RuntimeError as error:
            if not self.falls_back_to_aten(error, 1):
                raise
        with _below_autograd():
            result = torch_forward(input, weight, bias, self.arguments)
        ops.finish(result, self.arguments[5] in EXACT_CODES, *lists)
        return result

    def falls_back_to_aten(self, error: RuntimeError, directions: int) -> bool:
        """Returns whether PyTorch's operator must run after this failure of an op.

        Args:
            directions: the directions that the op computed, as in `by_torch`. If PyTorch computed one of them, the op
                reports only that it failed.
        """
        missing = isinstance(error, torch.OutOfMemoryError) and not self.by_name
        return missing or self.by_torch & directions != 0

    def gradients(self, grad_output: Tensor, input: Tensor, weight: Tensor, needs_grad: Sequence[bool]) -> Gradients:
        try:
            return ops.run_gradients(
                grad_output, input, weight, self.call, needs_grad[0] + 2 * needs_grad[1] + 4 * needs_grad[2]
            )
        except RuntimeError as error:
            missing = isinstance(error, torch.OutOfMemoryError)
            if not missing and not self.falls_back_to_aten(error, 2 * needs_grad[0] + 4 * needs_grad[1]):
                raise
        # One by one: each needs less memory, and PyTorch has algorithms that need little.
        found: list[Tensor | None] = [None, None, None]
        for one in (0, 1, 2):
            if not needs_grad[one]:
                continue
            try:
                found[one] = ops.run_gradients(grad_output, input, weight, self.call, 1 << one)[one]
            except RuntimeError as error:
                if one == 2 or not self.falls_back_to_aten(error, 2 << one):
                    raise
                with _below_autograd():
                    mask = [one == 0, one == 1, False]
                    found[one] = torch_gradients(grad_output, input, weight, self.arguments, mask)[one]
        return found[0], found[1], found[2]


class AtenConv(JointGradients):
    """`Directions` by PyTorch's operator; uses the `arguments` before the precision."""

    __slots__ = ()
    by_name = False

    def forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        with _below_autograd():
            return torch_forward(input, weight, bias, self.arguments)

    def forward_then(self, input: Tensor, weight: Tensor, bias: Tensor | None, steps: Sequence[Step]) -> Tensor:
        """Computes the steps with PyTorch's functions too: convt_ext kernels may not run here."""
        with _below_autograd():
            return apply_steps(torch_forward(input, weight, bias, self.arguments), steps)

    def grad_bias(self, grad_output: Tensor) -> Tensor:
        with _below_autograd():
            return grad_output.sum((0, *range(2, grad_output.dim())))

    def gradients(self, grad_output: Tensor, input: Tensor, weight: Tensor, needs_grad: Sequence[bool]) -> Gradients:
        of_input = of_weight = None
        if needs_grad[0] or needs_grad[1]:
            with _below_autograd():
                mask = [*needs_grad[:2], False]
                of_input, of_weight, _ = torch_gradients(grad_output, input, weight, self.arguments, mask)
        return of_input, of_weight, self.grad_bias(grad_output) if needs_grad[2] else None


def torch_forward(input: Tensor, weight: Tensor, bias: Tensor | None, arguments: tuple[Any, ...]) -> Tensor:
    """Computes PyTorch's transposed convolution in the operands' dtype; uses the first five `arguments`."""
    stride, padding, output_padding, groups, dilation = arguments[:5]
    with _torch.ExcludeDispatchKeyGuard(_AUTOCAST):
        return _convolution(input, weight, bias, stride, padding, dilation, True, output_padding, groups)


def torch_gradients(grad_output, input, weight, arguments, output_mask) -> tuple[Any, ...]:
    """Computes PyTorch's gradients of input, weight and bias that `output_mask` selects."""
    stride, padding, output_padding, groups, dilation = arguments[:5]
    return _convolution_backward(
        grad_output, input, weight, None, stride, padding, dilation, True, output_padding, groups, output_mask
    )

"""Eager calls with an epilogue: runs its steps in the kernel, or in one pass after it, if the result does not change.

Called by functional.py, which otherwise calls PyTorch's functions one after the other: if a tensor changes dtype or
size of the result, or if a gradient does not follow from the saved tensors.

Gradients of a recorded call: y = f(conv(x, w, b)) saves x, w and, if the derivative of the last step is a function of
y, also y. The last step may be ReLU, hardtanh, leaky ReLU, tanh or sigmoid; earlier steps must be additions,
subtractions, multiplications or divisions, and only tensors of the first two may require a gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ..dispatch import autocast, autograd, frozen, routing
from ..dispatch.arguments import as_result
from ..dispatch.directions import grad_mask_of
from ..dispatch.geometry import output_size
from ..environment import _torch
from .steps import ADD, CLAMP, DIVIDE, LEAKY_RELU, MULTIPLY, SIGMOID, SOFTPLUS, SUBTRACT, TANH, Step, steps_of

# A recorded call with a smaller result keeps PyTorch's separate operations if PyTorch's node records the convolution:
# a pass over the result costs less than an autograd node in Python.
_SMALL_BYTES = 1 << 25

_LINEAR = frozenset({ADD, SUBTRACT, MULTIPLY, DIVIDE})
_aten = torch.ops.aten


def conv_transpose(
    dims, input, weight, bias, stride, padding, output_padding, groups, dilation, requested, epilogue: Sequence[Any]
) -> Tensor | None:
    """Returns the result, or None if the caller must apply PyTorch's functions one after the other."""
    asked = steps_of(epilogue)
    if asked is None:
        return None
    copies = frozen.copies_for(input, weight, bias) if frozen.registry else None
    operand = weight if copies is None else copies.weight
    decision = routing.route(
        input, operand, bias, stride, padding, output_padding, groups, dilation, requested, None, dims
    )
    if isinstance(decision, routing.Reason):
        return None
    batched, weight, bias, directions = decision
    is_watched = torch.is_grad_enabled() and _torch.saved_tensors_hooks(True) is not None
    if is_watched and torch.is_autocast_enabled(routing.DEVICE_TYPE):  # operands for PyTorch's operator are not cast
        batched, weight, bias = autocast.cast(batched, weight, bias, routing.DEVICE_TYPE)
    size = output_size(batched.shape, weight.shape, *directions.arguments[:5])
    of_user = (*size[:2], *size[-dims:])
    steps = _ready(asked, of_user[dims + 2 - input.dim() :], batched, dims)
    if steps is None:
        return None
    tensors = [step.tensor for step in steps]
    if not torch.is_grad_enabled() or not _torch.any_requires_grad(batched, weight, bias, *tensors):
        if not directions.serves(batched, weight, bias, 0):
            return None
        if copies is None:
            result = directions.forward_then(batched, weight, bias, steps)
        else:
            result = copies.run(batched, weight, bias, directions, steps)
    else:
        if not are_differentiable(steps):
            return None
        # Checkpointing compares the tensors that a call and its recomputation save. The known times may differ between
        # the two, so with saved-tensor hooks a call is always recorded here, and `directions` choose inside it.
        if not is_watched:
            needs_grad_mask = grad_mask_of(batched, weight, bias)
            if not directions.serves(batched, weight, bias, needs_grad_mask):
                return None
            is_small = batched.element_size() * math.prod(size) < _SMALL_BYTES
            if is_small and directions.is_recorded_by_torch(needs_grad_mask):
                return None
        result = Then.apply(batched, weight, bias, directions, steps, *tensors)
    return as_result(dims, result, input.dim() == dims + 2)


def _ready(steps: Sequence[Step], size: Sequence[int], input: Tensor, dims: int) -> Sequence[Step] | None:
    """Returns the steps with tensors of the result's dtype, on the axes of the problem; None if one changes the dtype
    or device of the result (those of `input`), or its size (as the user sees it)."""
    ready = []
    for step in steps:
        if step.tensor is not None:
            step = _ready_step(step, step.tensor, size, input, dims)  # type: ignore[assignment]
            if step is None:
                return None
        elif step.operation == SOFTPLUS and torch.is_autocast_enabled(routing.DEVICE_TYPE):
            return None  # autocast computes it in float32
        ready.append(step)
    return ready


def _ready_step(step: Step, tensor: Tensor, size: Sequence[int], input: Tensor, dims: int) -> Step | None:
    if type(tensor) not in routing.PLAIN or tensor.layout is not torch.strided or tensor.is_complex():
        return None
    if tensor.dim() == 0 and tensor.device.type == "cpu" and step.operation != LEAKY_RELU and not tensor.requires_grad:
        return step._replace(first=float(tensor), tensor=None)  # PyTorch treats such a tensor as a number
    if tensor.device != input.device or tensor.dim() > len(size):
        return None
    if step.operation == LEAKY_RELU and tensor.numel() > 1:
        # prelu's slopes are those of the second axis, which is not the channel axis of an unbatched result.
        if len(size) == dims + 1 or len(tensor) != size[1]:
            return None
        if dims == 3:
            tensor = tensor.unsqueeze(-1)
    else:
        axes = size[len(size) - tensor.dim() :]
        if any(length not in (1, whole) for length, whole in zip(tensor.shape, axes, strict=True)):
            return None
        if dims == 1 and tensor.dim() > 0:
            tensor = tensor.unsqueeze(-2)
        if dims == 3 and not _joins_planes(tensor, *size[-3:-1]):
            return None
    if tensor.dtype is not input.dtype:
        can_cast = tensor.dim() == 0 or torch.promote_types(tensor.dtype, input.dtype) == input.dtype
        if step.operation == LEAKY_RELU or not can_cast:
            return None
        tensor = tensor.to(input.dtype)
    return step._replace(tensor=tensor)


def _joins_planes(tensor: Tensor, planes: int, rows: int) -> bool:
    """Returns whether the rows of all planes have one stride in the tensor, as kernels need; `planes` and `rows` are
    those of the result."""
    in_plane, between = (
        tensor.stride(-axis) if tensor.dim() >= axis and tensor.shape[-axis] > 1 else 0 for axis in (2, 3)
    )
    return planes == 1 or rows == 1 or between == rows * in_plane


def are_differentiable(steps: Sequence[Step]) -> bool:
    """Returns whether the gradients follow from operands and result."""
    *before, last = steps or (Step(ADD),)
    if not all(is_linear(step) for step in before):
        return False
    return is_linear(last) or (
        last.operation in (TANH, SIGMOID)
        or (last.operation == CLAMP and last.open_interval)
        or (last.operation == LEAKY_RELU and last.tensor is None and last.first >= 0)
    )


def is_linear(step: Step) -> bool:
    needs_result = step.operation in (MULTIPLY, DIVIDE) and step.tensor is not None and step.tensor.requires_grad
    return step.operation in _LINEAR and not needs_result


def _before(step: Step, grad: Tensor, result: Tensor) -> Tensor:
    """Computes the gradient of a step's input from that of its result; recorded as PyTorch records it."""
    by = step.first if step.tensor is None else step.tensor
    if step.operation == MULTIPLY:
        return grad * by
    if step.operation == DIVIDE:
        return grad / by
    if step.operation == TANH:
        return _aten.tanh_backward(grad, result)
    if step.operation == SIGMOID:
        return _aten.sigmoid_backward(grad, result)
    if step.operation == LEAKY_RELU:
        return _aten.leaky_relu_backward(grad, result, step.first, True)
    if step.operation == CLAMP and step.second == math.inf:
        return _aten.threshold_backward(grad, result, step.first)
    if step.operation == CLAMP:
        return _aten.hardtanh_backward(grad, result, step.first, step.second)
    return grad


class Then(Function):
    """Autograd node of a recorded call, also of traced ops (compile/traced_epilogues.py)."""

    @staticmethod
    def forward(ctx, input, weight, bias, directions: Any, steps: Sequence[Step], *tensors):
        result = directions.forward_then(input, weight, bias, steps)
        needs_result = bool(steps) and not is_linear(steps[-1])
        factors = [step.tensor if step.operation in (MULTIPLY, DIVIDE) else None for step in steps]
        ctx.save_for_backward(input, weight, result if needs_result else None, *factors)
        ctx.directions = directions
        ctx.steps = [step._replace(tensor=None) for step in steps]
        ctx.sizes = [None if tensor is None else tensor.shape for tensor in tensors]
        return result

    @staticmethod
    def backward(ctx, grad):
        input, weight, result, *factors = ctx.saved_tensors
        of_tensors: list[Any] = [None] * len(ctx.steps)
        needed = ctx.needs_input_grad[5:]
        for i in reversed(range(len(ctx.steps))):
            if needed[i]:
                of_one = grad.sum_to_size(ctx.sizes[i])
                of_tensors[i] = -of_one if ctx.steps[i].operation == SUBTRACT else of_one
            grad = _before(ctx.steps[i]._replace(tensor=factors[i]), grad, result)
        needs_grad = autograd.requested(ctx, 3)
        return (*autograd.gradients(grad, input, weight, ctx.directions, needs_grad), None, None, *of_tensors)

"""Gradients of the operator, of every order.

Each direction is linear in each of its two operands, so the derivatives of any one are the other two:

    of y = forward(x, w):          g -> grad_input(g, w) of x,    grad_weight(g, x) of w,    grad_bias(g) of the bias
    of gx = grad_input(g, w):      v -> forward(v, w) of g,       grad_weight(g, v) of w
    of gw = grad_weight(g, x):     v -> forward(x, v) of g,       grad_input(g, v) of x
    of gb = grad_bias(g):          v -> v, repeated

A backward computes only the requested gradients: `autograd.grad(y, x)` computes one of three.

Called by functional.py with routing.py's `Directions`, and by the dispatcher for the raw ops. The functions here have
`forward(ctx, ...)`, because `setup_context` costs 40 us more per call. torch.func's transforms require `setup_context`
and run PyTorch's operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ..environment import _torch
from ..environment._torch import forward_ad
from . import ops, routing
from .directions import Directions, Gradients, NativeConv, grad_mask_of, torch_forward, torch_gradients
from .precision import CLASSES, request_for

_any_requires_grad = _torch.any_requires_grad
_transforms_active = _torch.transforms_active
_num_dispatch_modes = _torch.num_dispatch_modes
_will_execute = _torch.will_engine_execute_node


def call(input: Tensor, weight: Tensor, bias: Tensor | None, directions: NativeConv) -> Tensor | None:
    """Runs an eager call outside of torch.func's transforms: computes `forward`; returns None if PyTorch's operator is
    faster, which the caller must call."""
    needs_grad_mask = grad_mask_of(input, weight, bias)
    if directions.serves(input, weight, bias, needs_grad_mask):
        if not needs_grad_mask:
            return directions.forward(input, weight, bias)
        if not directions.is_recorded_by_torch(needs_grad_mask) or _num_dispatch_modes() > 0:
            return _apply_forward(input, weight, bias, directions)
        try:
            return ops.run_recorded(input, weight, bias, (), (), (), True, (), directions.call)
        except RuntimeError as error:
            if not directions.falls_back_to_aten(error, 1):
                raise
    return None


def forward(input: Tensor, weight: Tensor, bias: Tensor | None, directions: Directions) -> Tensor:
    """Computes the result; records it if a gradient is required."""
    if torch.is_grad_enabled() and _any_requires_grad(input, weight, bias):
        return _Forward.apply(input, weight, bias, directions)
    return directions.forward(input, weight, bias)


def grad_input(grad_output: Tensor, input: Tensor | None, weight: Tensor, directions: Directions) -> Tensor:
    """Computes the gradient of `input`, which only provides its size; records it if a gradient of it is required."""
    if input is not None and _only_torch_can(directions):
        return torch_gradients(grad_output, input, weight, directions.arguments, [True, False, False])[0]
    if torch.is_grad_enabled() and _any_requires_grad(grad_output, weight):
        return _GradInput.apply(grad_output, weight, input, directions)
    return directions.grad_input(grad_output, input, weight)


def grad_weight(grad_output: Tensor, input: Tensor, weight: Tensor | None, directions: Directions) -> Tensor:
    """Computes the gradient of `weight`, which only provides its size; records it if a gradient of it is required."""
    if weight is not None and _only_torch_can(directions):
        return torch_gradients(grad_output, input, weight, directions.arguments, [False, True, False])[1]
    if torch.is_grad_enabled() and _any_requires_grad(grad_output, input):
        return _GradWeight.apply(grad_output, input, weight, directions)
    return directions.grad_weight(grad_output, input, weight)


def grad_bias(grad_output: Tensor, directions: Directions) -> Tensor:
    """Computes the gradient of the bias; records it if a gradient of it is required."""
    if _only_torch_can(directions):
        return grad_output.sum((0, *range(2, grad_output.dim())))
    if torch.is_grad_enabled() and _any_requires_grad(grad_output):
        return _GradBias.apply(grad_output, directions)
    return directions.grad_bias(grad_output)


def gradients(
    grad_output: Tensor, input: Tensor, weight: Tensor, directions: Directions, needs_grad: Sequence[bool]
) -> Gradients:
    """Computes those gradients of input, weight and bias that `needs_grad` selects; records them if required."""
    if not torch.is_grad_enabled() and not _transforms_active() and forward_ad._current_level < 0:
        return directions.gradients(grad_output, input, weight, needs_grad)
    return (
        grad_input(grad_output, input, weight, directions) if needs_grad[0] else None,
        grad_weight(grad_output, input, weight, directions) if needs_grad[1] else None,
        grad_bias(grad_output, directions) if needs_grad[2] else None,
    )


def _forward_again(input: Tensor, weight: Tensor, directions: Directions) -> Tensor:
    """Computes `forward` inside a backward."""
    if _only_torch_can(directions):
        return torch_forward(input, weight, None, directions.arguments)
    return forward(input, weight, None, directions)


def _only_torch_can(directions: Directions) -> bool:
    """Returns whether a backward runs in a context that only PyTorch's operator supports; raises a RuntimeError if it
    does and the forward pass has an explicit precision."""
    if _transforms_active():  # such as vmap; is_grads_batched=True is none, and runs the op for each batch element
        reason = routing.BACKWARD_IN_TRANSFORM
    elif forward_ad._current_level >= 0:
        reason = routing.BACKWARD_IN_DUAL_LEVEL
    else:
        return False
    if directions.by_name and directions.arguments:  # the raw op of the bias has no arguments and no class
        routing.refuse(reason, request_for(CLASSES[directions.arguments[5]]))
    return True


# A sentinel node that no backward pass reaches. If the engine reports that it would execute the node, the backward has
# no list of inputs, and the engine executes every node that it reaches. The package may be imported under any mode
# (inference mode, no_grad, a default device, ...), which a new thread does not inherit.
with ThreadPoolExecutor(max_workers=1) as _thread:
    _stranger: Any = _thread.submit(lambda: torch.zeros((), device="cpu", requires_grad=True).clone().grad_fn).result()


def requested(ctx: Any, count: int) -> Sequence[bool]:
    """Returns whether this backward computes the gradients of `forward`'s first `count` tensors; True in doubt.

    `needs_input_grad` reports only which tensors require gradients. PyTorch's operator also asks the engine.
    """
    if _will_execute(_stranger):
        return ctx.needs_input_grad
    needs_grad = list(ctx.needs_input_grad[:count])
    functions = ctx.next_functions  # each access creates a new tuple
    for index, needed in enumerate(needs_grad):
        if needed:
            # Raised for a leaf that is an input of autograd.grad.
            with suppress(RuntimeError):
                needs_grad[index] = _will_execute(functions[index][0])
    return needs_grad


class _Forward(Function):
    @staticmethod
    def forward(ctx, input, weight, bias, directions):
        ctx.save_for_backward(input, weight)
        ctx.directions = directions
        return directions.forward(input, weight, bias)

    @staticmethod
    def backward(ctx, grad_output):
        input, weight = ctx.saved_tensors
        return (*gradients(grad_output, input, weight, ctx.directions, requested(ctx, 3)), None)


# The implementation of `Function.apply`, without its 2 us check for transforms.
_apply_forward = super(Function, _Forward).apply  # type: ignore[misc]


class _GradInput(Function):
    @staticmethod
    def forward(ctx, grad_output, weight, input, directions):
        ctx.save_for_backward(grad_output, weight)
        ctx.directions = directions
        return directions.grad_input(grad_output, input, weight)

    @staticmethod
    def backward(ctx, grad):
        grad_output, weight = ctx.saved_tensors
        needs_grad = requested(ctx, 2)
        return (
            _forward_again(grad, weight, ctx.directions) if needs_grad[0] else None,
            grad_weight(grad_output, grad, weight, ctx.directions) if needs_grad[1] else None,
            None,
            None,
        )


class _GradWeight(Function):
    @staticmethod
    def forward(ctx, grad_output, input, weight, directions):
        ctx.save_for_backward(grad_output, input)
        ctx.directions = directions
        return directions.grad_weight(grad_output, input, weight)

    @staticmethod
    def backward(ctx, grad):
        grad_output, input = ctx.saved_tensors
        needs_grad = requested(ctx, 2)
        return (
            _forward_again(input, grad, ctx.directions) if needs_grad[0] else None,
            grad_input(grad_output, input, grad, ctx.directions) if needs_grad[1] else None,
            None,
            None,
        )


class _GradBias(Function):
    @staticmethod
    def forward(ctx, grad_output, directions):
        ctx.size = grad_output.shape
        return directions.grad_bias(grad_output)

    @staticmethod
    def backward(ctx, grad):
        return grad.view(-1, *[1] * (len(ctx.size) - 2)).expand(ctx.size), None


def refuse_tangents(name: str, *tensors: Tensor | None) -> None:
    """Rejects dual tensors: an op without a forward-mode formula would silently return zero tangents."""
    if forward_ad._current_level < 0:
        return
    if any(tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
        raise NotImplementedError(
            f"convt_ext::{name} has no forward-mode derivative: call convt_ext.conv_transpose2d, which has one"
        )


def _raw_forward(input, weight, bias, *arguments: Any) -> Tensor:
    refuse_tangents("forward", input, weight, bias)
    return forward(input, weight, bias, Directions(arguments))


def _raw_grad_input(grad_output, weight, *arguments: Any) -> Tensor:
    refuse_tangents("grad_input", grad_output, weight)
    return grad_input(grad_output, None, weight, Directions(arguments))


def _raw_grad_weight(grad_output, input, *arguments: Any) -> Tensor:
    refuse_tangents("grad_weight", grad_output, input)
    return grad_weight(grad_output, input, None, Directions(arguments))


def _raw_grad_bias(grad_output) -> Tensor:
    refuse_tangents("grad_bias", grad_output)
    return grad_bias(grad_output, Directions(()))


def _gradients_again(
    grad_output: Tensor, input: Tensor, weight: Tensor, call: int, needs_grad_mask: int
) -> tuple[Tensor | None, ...]:
    """Computes the backward of a call that PyTorch's node recorded if its fast path does not apply: second derivatives,
    dual tensors, little memory. Returns failures as text, because the calling binary cannot pass on exceptions."""
    try:
        asked = [bool(needs_grad_mask & bit) for bit in (1, 2, 4)]
        return (*gradients(grad_output, input, weight, NativeConv.remembered(call), asked), None)
    except Exception as error:
        words = str(error) or type(error).__name__
        return None, None, None, torch.frombuffer(bytearray(words.encode()), dtype=torch.uint8)


def _batched_recorded(
    grad_output, input, weight, stride, padding, dilation, transposed, output_padding, call, mask
) -> tuple[Tensor | None, ...]:
    """Computes `_gradients_again` for a batch of backwards, under vmap."""
    return gradients(grad_output, input, weight, NativeConv.remembered(call), mask)


def _batched_gradients(*arguments: Any) -> tuple[Tensor | None, ...]:
    """For autograd.grad's is_grads_batched, which runs an op per batch element only if it returns one tensor."""
    return ops.one_by_one((ops.grad_input, ops.grad_weight, ops.grad_bias), *arguments)


_library: Any = None
_aten: Any = None
if ops.forward is not None:
    _library = torch.library.Library("convt_ext", "IMPL")
    _library.impl("forward", _raw_forward, "Autograd")
    _library.impl("grad_input", _raw_grad_input, "Autograd")
    _library.impl("grad_weight", _raw_grad_weight, "Autograd")
    _library.impl("grad_bias", _raw_grad_bias, "Autograd")
    # Eager calls run these below autograd: a guard around each call would cost 1 us.
    for _name in ("_forward", "_forward_then", "_forward_packed", "_finish", "_gradients"):
        _library.impl(_name, torch.library.fallthrough_kernel, "Autograd")
    _library.impl("_gradients", _batched_gradients, "Batched")
    _library.impl("_gradients_again", _gradients_again, "CompositeImplicitAutograd")
    _aten = torch.library.Library("aten", "IMPL")
    for _key in ("Batched", "FuncTorchBatched"):
        _aten.impl("convolution_backward_overrideable", _batched_recorded, _key)

"""Handles of the compiled ops, and their registrations in PyTorch: fake kernels and FLOP counts.

Called by directions.py (forward and gradients) and planner.py (plan, explain, device). Without a binary the handles
are None and nothing is registered. Makes no decisions; routing.py does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..environment import _extension
from ..environment._torch import conv_flop_count, disable_current_modes, register_flop_formula
from .geometry import input_length, kernel_length, memory_format, output_size


def _raising(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the function of an op so that it raises PyTorch's exception types.

    The stable ABI passes only messages. The message identifies the failure, and an equal request to PyTorch raises
    PyTorch's own error.
    """

    def run_or_raise(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        except RuntimeError as error:
            failure = error
        try:
            # Outside of the handler, so that PyTorch's error has no context: a message about memory would mislead if
            # another thread's capture caused the failure.
            if not _raise_as_torch(str(failure)):
                raise failure
        finally:
            # Its traceback refers to this frame and its callers, which would keep their tensors alive.
            del failure
        try:  # PyTorch's allocation succeeded, so this should too, unless other threads allocate meanwhile
            return run(*args, **kwargs)
        except RuntimeError as error:
            raise torch.OutOfMemoryError(str(error)) if _MISSING.match(str(error)) else error from None

    return run_or_raise


# The binary's message: kernels/binding/call.cpp.
_MISSING = re.compile(r"CUDA out of memory\. .*\((\d+) bytes on GPU (\d+),")


def _raise_as_torch(words: str) -> bool:
    """Raises PyTorch's error if memory is short or an earlier kernel failed; else returns whether a retry may help."""
    missing = _MISSING.match(words)
    if missing is not None:
        torch.empty(int(missing[1]), dtype=torch.uint8, device=torch.device("cuda", int(missing[2])))
        return True
    if words.startswith("CUDA error: "):
        torch.cuda.synchronize()
    return False


def _op(name: str) -> Any:
    """Returns an op of the binary, None without a binary."""
    return None if _extension.load_error is not None else getattr(torch.ops.convt_ext, name).default


def _raises_as_torch(op: Any) -> Any:
    """Makes an op, if it is not None, raise PyTorch's exception types, for all calls from Python, also in compiled
    programs."""
    if op is not None:
        op._op = _raising(op._op)
    return op


def _raising_function(name: str) -> Any:
    """Returns the function that such an op calls, without 0.2 us of Python in between."""
    op = _raises_as_torch(_op(name))
    return None if op is None else op._op


forward = _raises_as_torch(_op("forward"))
grad_input = _raises_as_torch(_op("grad_input"))
grad_weight = _raises_as_torch(_op("grad_weight"))
grad_bias = _raises_as_torch(_op("grad_bias"))
run_forward = _raising_function("_forward")  # for eager calls: `forward` with its arguments by number, below autograd
run_forward_then = _raising_function("_forward_then")  # `run_forward` with the steps of an epilogue (epilogue/steps.py)
run_forward_packed = _raising_function("_forward_packed")  # `run_forward_then` with memory for the packed weight
finish = _raising_function("_finish")  # the steps of an epilogue, in place, below autograd
run_gradients = _raising_function("_gradients")  # for eager backwards: the gradients that a mask selects, in one call
# For eager calls: `run_forward_then`, recorded by an autograd node of PyTorch (kernels/binding/eager.cpp).
run_recorded: Any = None
autocast: Any = None  # a cast that PyTorch's autocast caches, if this PyTorch exports the function
plan = _op("plan")
plan_ahead = _op("plan_ahead")
explain = _op("explain")
contenders = _op("contenders")
device = _op("device")


# The arguments of eager calls by their number in the binary, and the reverse.
_numbers_of: dict[int, tuple[int, ...]] = {}
_calls: dict[tuple[int, ...], int] = {}


def remember(numbers: tuple[int, ...]) -> int:
    """Returns the number of a call's arguments (listed in kernels/binding/library.cpp), equal for equal arguments; -1
    without a binary. They are stored until the process ends."""
    call = _calls.get(numbers, -1)
    if call < 0 and forward is not None:
        with disable_current_modes():
            call = torch.ops.convt_ext._remember(numbers)
        _numbers_of[call] = numbers  # first, because another thread looks up every call that it finds
        _calls[numbers] = call
    return call


def remembered(call: int) -> tuple[int, ...]:
    """Returns the arguments that were passed to `remember`."""
    return _numbers_of[call]


def empty(size, like: torch.Tensor, channels_last: bool) -> torch.Tensor:
    """Allocates a dense result with this size and memory format, and dtype and device of `like`."""
    format = memory_format(channels_last, len(size) - 2)
    return torch.empty(size, dtype=like.dtype, device=like.device, memory_format=format)


def fake_forward(
    input, weight, bias, stride, padding, output_padding, groups, dilation, precision, channels_last, candidate=0
) -> torch.Tensor:
    """Returns an empty result with the size and strides of the CUDA kernel's result; supports symbolic sizes."""
    size = output_size(input.shape, weight.shape, stride, padding, output_padding, groups, dilation)
    return empty(size, input, channels_last)


def fake_run_forward(input, weight, bias, call, *others) -> torch.Tensor:
    """As `fake_forward`, for the ops of eager calls; an epilogue changes neither size nor format."""
    return fake_forward(input, weight, bias, *arguments_of(call))


def fake_run_gradients(grad_output, input, weight, call, needs_grad_mask) -> tuple[torch.Tensor | None, ...]:
    """As `fake_grad_input`, for the three gradients."""
    by = fake_grad_input, fake_grad_weight, fake_grad_bias
    return one_by_one(by, grad_output, input, weight, call, needs_grad_mask)


def one_by_one(
    by: Sequence[Callable[..., torch.Tensor]], grad_output, input, weight, call, needs_grad_mask
) -> tuple[torch.Tensor | None, ...]:
    """Computes `_gradients` with functions that have the arguments of grad_input, grad_weight and grad_bias."""
    of_input, of_weight, of_bias = by
    arguments = arguments_of(call)
    of_weights = (*arguments[:-1], bool(remembered(call)[-6]))
    return (
        of_input(grad_output, weight, *arguments) if needs_grad_mask & 1 else None,
        of_weight(grad_output, input, *of_weights) if needs_grad_mask & 2 else None,
        of_bias(grad_output) if needs_grad_mask & 4 else None,
    )


def arguments_of(call: int) -> tuple[Any, ...]:
    """Returns the arguments of `forward` after its tensors."""
    numbers = remembered(call)
    dims = (len(numbers) - 9) // 4
    stride, padding, output_padding = (numbers[i * dims : (i + 1) * dims] for i in range(3))
    groups, *dilation, code, channels_last = numbers[3 * dims : -6]
    return stride, padding, output_padding, groups, tuple(dilation), code, bool(channels_last)


def fake_grad_input(
    grad_output, weight, stride, padding, output_padding, groups, dilation, precision, channels_last, candidate=0
) -> torch.Tensor:
    """As `fake_forward`, for the gradient of the input."""
    batch, _, *lengths = grad_output.shape
    c_in, _, *kernel = weight.shape
    axes = zip(lengths, kernel, stride, padding, output_padding, dilation, strict=True)
    size = [input_length(*axis) for axis in axes]
    return empty((batch, c_in, *size), weight, channels_last)


def fake_grad_weight(
    grad_output, input, stride, padding, output_padding, groups, dilation, precision, channels_last, candidate=0
) -> torch.Tensor:
    """As `fake_forward`, for the gradient of the weight."""
    _, c_out, *lengths = grad_output.shape
    _, c_in, *sizes = input.shape
    axes = zip(lengths, sizes, stride, padding, output_padding, dilation, strict=True)
    kernel = [kernel_length(*axis) for axis in axes]
    return empty((c_in, c_out // groups, *kernel), input, channels_last)


def fake_grad_bias(grad_output) -> torch.Tensor:
    """As `fake_forward`, for the gradient of the bias."""
    return grad_output.new_empty((grad_output.shape[1],))


# Each direction has the same count: two FLOPs per pair of an input element and a weight, as PyTorch counts its own.


def forward_flops(input_shape, weight_shape, *args, out_shape=None, **kwargs) -> int:
    return conv_flop_count(input_shape, weight_shape, out_shape, transposed=True)


def grad_input_flops(grad_output_shape, weight_shape, *args, out_shape=None, **kwargs) -> int:
    return conv_flop_count(out_shape, weight_shape, grad_output_shape, transposed=True)


def grad_weight_flops(grad_output_shape, input_shape, *args, out_shape=None, **kwargs) -> int:
    return conv_flop_count(input_shape, out_shape, grad_output_shape, transposed=True)


def gradients_flops(grad_output_shape, input_shape, weight_shape, call, needs_grad_mask, *args, **kwargs) -> int:
    one = conv_flop_count(input_shape, weight_shape, grad_output_shape, transposed=True)
    return one * ((needs_grad_mask & 1) + (needs_grad_mask >> 1 & 1))


if _extension.load_error is None:
    run_recorded = _raising(torch.ops.aten.convolution_overrideable.default._op)
    if _extension.has_autocast():
        autocast = torch.ops.convt_ext._autocast.default._op
    _registered: tuple[tuple[str, Any, Any], ...] = (
        ("forward", fake_forward, forward_flops),
        ("grad_input", fake_grad_input, grad_input_flops),
        ("grad_weight", fake_grad_weight, grad_weight_flops),
        ("grad_bias", fake_grad_bias, None),
        ("_forward", fake_run_forward, forward_flops),
        ("_forward_then", fake_run_forward, forward_flops),
        ("_forward_packed", fake_run_forward, forward_flops),
        ("_finish", lambda *arguments: None, None),
        ("_gradients", fake_run_gradients, gradients_flops),
    )
    for _name, _fake, _flops in _registered:
        torch.library.register_fake(f"convt_ext::{_name}", _fake)
        if _flops is not None:
            register_flop_formula(getattr(torch.ops.convt_ext, _name))(_flops)

"""The operator under torch.compile and torch.export: Dynamo traces this module instead of routing.py.

Called by functional.py while tracing. A call with an explicit precision or backend="convt_ext", or in an export,
becomes the compiled op `convt_ext::forward`: the class is part of the program. Other calls become
`convt_ext::conv_transpose2d` (traced_ops.py), which decides each time it runs, as an eager call does. If only PyTorch's
operator can run, that operator is traced, because Inductor supports it best. Exports trace it too if PyTorch uses
tensor cores, because a program for other machines cannot decide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling, is_exporting

from ..dispatch import autocast, ops, planner, request, routing, scopes
from ..dispatch import precision as precisions
from ..dispatch.arguments import as_problem, as_result, legal_output_size, pairs
from ..dispatch.geometry import result_is_channels_last
from ..environment import _extension, _torch
from . import mode, traced_ops

# Types of tensors during tracing.
_PLAIN = routing.PLAIN | {_torch.FakeTensor, _torch.FunctionalTensor}


def conv_transpose(dims: int, call: tuple[Any, ...], requested: str | None, is_frozen: bool = False) -> Tensor:
    """Traces `convt_ext.conv_transpose1d`, `conv_transpose2d` or `conv_transpose3d`; `call` is input to dilation,
    `requested` and `is_frozen` as in functional.py."""
    input = call[0]
    decision = _route(*call, requested, is_frozen, dims)  # type: ignore[call-arg]
    if isinstance(decision, routing.Reason):
        if decision.remedy is not None and input.dtype in routing.DTYPES:
            by_switches = _class_by_switches(input.dtype, input.get_device(), _is_exporting())
            routing.refuse_if_requested(decision, input.dtype, requested, scopes.traced_request(), by_switches)
        if isinstance(decision, routing.Unavailable):
            _warn_once(decision.text, decision.remedy)
        return _torch.CONV_TRANSPOSE[dims](*call)
    op, arguments = decision
    return as_result(dims, op(*arguments), input.dim() == dims + 2)


def _route(input, weight, bias, stride, padding, output_padding, groups, dilation, requested, is_frozen, dims):
    """As `routing.route`, for symbolic sizes too: returns an op and its arguments, or why PyTorch's operator runs."""
    if type(input) not in _PLAIN or type(weight) not in _PLAIN or (bias is not None and type(bias) not in _PLAIN):
        return routing.NOT_PLAIN
    if input.device.type != routing.DEVICE_TYPE or weight.device.type != routing.DEVICE_TYPE:
        return routing.NOT_CUDA
    reason = _reason_by_context()
    if reason is not None:
        return reason
    was_float32 = input.dtype is torch.float32
    uncast_weight = weight
    if torch.is_autocast_enabled(routing.DEVICE_TYPE):
        input, weight, bias = autocast.cast(input, weight, bias, routing.DEVICE_TYPE)
    dtype = input.dtype
    reason = routing.reason_by_layout(input, weight, bias)
    if reason is not None:
        return reason
    index = input.get_device()
    exporting = _is_exporting()
    asked = request.merged(requested, scopes.traced_request())
    selected = precisions.select(asked, dtype, _class_by_switches(dtype, index, exporting), was_float32)
    if selected.backend == "torch":
        return routing.BACKEND
    # An op that chooses when it runs follows the switches of that moment, which an explicit precision must not.
    chooses = selected.backend == "auto" and not selected.is_explicit
    if chooses and not _may_be_ours(selected.served, index, exporting):
        return routing.TENSOR_CORES
    if chooses and exporting and dims == 3:
        return routing.EXPORTED_VOLUME

    if not all(_is_constant(value) for value in (stride, padding, output_padding, groups, dilation)):
        return routing.RUN_TIME_ARGUMENTS
    arguments = pairs(dims, stride, padding, output_padding, groups, dilation)
    if None in arguments or input.dim() not in (dims + 1, dims + 2) or weight.dim() != dims + 2:
        return routing.ARGUMENTS
    input, weight = as_problem(dims, input, weight)
    if legal_output_size(input.shape, weight.shape, None if bias is None else bias.shape, *arguments) is None:
        return routing.ARGUMENTS
    stride, padding, output_padding, groups, dilation = arguments
    unsupported = _unsupported_reason(index)
    if unsupported is not None:
        return routing.Unavailable("convt_ext kernels cannot run", unsupported)
    if not exporting:
        _teach_inductor()
    if chooses and not exporting:
        if _is_unknown_compiler():
            return routing.COMPILER
        numbers = [*stride, *padding, *output_padding, groups, *dilation, _version()]
        if is_frozen and dims > 1:  # the op finds the copies by the parameter, and a one-dimensional call views it
            return traced_ops.forward, (input, uncast_weight, bias, [*numbers, traced_ops.FROZEN], None)
        return traced_ops.forward, (input, weight, bias, numbers, None)
    channels_last = result_is_channels_last(
        input.shape, input.stride(), weight.shape, weight.stride(), dtype, stride, output_padding,
        exporting or _cudnn_enabled(),
    )  # fmt: skip
    return ops.forward, (input, weight, bias, *arguments, precisions.CODES[selected.served], channels_last)


def _is_constant(value):
    """Returns whether an argument is a number or a sequence of numbers; `pair` and PyTorch check type and length."""
    if isinstance(value, (tuple, list)):
        return all(isinstance(part, (int, float, str)) for part in value)
    return value is None or isinstance(value, (int, float, str))


def _reason_by_context():
    if is_dynamo_compiling() and not routing.only_default_device_modes():  # torch.export without it has its own modes
        return routing.MODE
    if _extension.DISABLED:
        return routing.DISABLED
    if _torch.transforms_active():
        return routing.TRANSFORM
    if _torch.forward_ad._current_level >= 0:
        return routing.FORWARD_AD
    if _exports_to_onnx():
        return routing.ONNX
    return None


# Functions that a tracer cannot follow or must call only once. Their results are constants of the program.


def constant(function: Callable[..., Any]) -> Callable[..., Any]:
    """Sets the mark of `torch.compiler.assume_constant_result`, without its import of torch._dynamo (one second)."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@constant
def _class_by_switches(dtype: torch.dtype, index: int, exporting: bool) -> str:
    return precisions.class_by_switches(dtype, planner.capability(planner.device_numbers(index)), exporting)


@constant
def _may_be_ours(served: str, index: int, exporting: bool) -> bool:
    """Returns whether convt_ext may run a call that chooses; in an export only one of an exact class."""
    if exporting:
        return served in precisions.EXACT_CLASSES
    return routing.may_run_convt_ext(served, planner.device_numbers(index))


@constant
def _teach_inductor() -> None:
    try:
        from . import fusion, inductor  # imports torch._inductor, which only compiled programs need

        inductor.teach()
        fusion.install()
    except (ImportError, AttributeError) as error:  # a name that this release of PyTorch lacks
        mode.give_up(error)


@constant
def _warn_once(text: str, remedy: str) -> None:
    """Warns as an eager call does, while tracing."""
    from .. import functional  # imports this module

    functional.warn_once(routing.Unavailable(text, remedy))


_cudnn_enabled = constant(lambda: precisions.cudnn_enabled())
_is_unknown_compiler = constant(lambda: mode.has_failed())
_version = constant(lambda: traced_ops.version())
_unsupported_reason = constant(lambda index: _extension.unsupported_reason(index))
_is_exporting = constant(lambda: is_exporting())  # in traced code it is always True in torch 2.10
_exports_to_onnx = constant(lambda: torch.onnx.is_in_onnx_export())

"""Decides for each call whether convt_ext kernels may run it, or only PyTorch's operator, and why.

Called by functional.py and compile/tracing.py, which follow the decision, and by explain.py, which reports it. With
backend="auto", `AutoDispatch` (auto_dispatch.py) selects the faster implementation. The decision is made on every call
and costs a few microseconds: the part that depends only on sizes, strides and arguments is cached. Launches only the
casts of autocast. `requested` is a request as one string (request.py).
"""

from __future__ import annotations

import functools
import operator
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor
from torch.nn import Parameter

from ..environment import _extension, _torch
from ..environment._torch import forward_ad, has_torch_function_unary
from ..tuning import benchmark, choices, files
from . import autocast, planner, request, scopes
from . import precision as precisions
from .arguments import NO_LIMIT, as_problem, legal_output_size, pairs
from .auto_dispatch import AutoDispatch, AutoDispatchInClass
from .directions import NativeConv
from .geometry import grad_weight_is_channels_last, result_is_channels_last


class Reason(NamedTuple):
    """Why PyTorch's operator runs a call.

    With a `remedy`, a request for a kernel of convt_ext raises an error that states the remedy; without one, PyTorch's
    operator runs under every precision.
    """

    text: str
    remedy: str | None = None


class Unavailable(Reason):
    """A reason for one warning: this installation cannot run its kernels."""


NOT_PLAIN = Reason("an argument is a tensor subclass or not a tensor")
MODE = Reason("a __torch_function__ mode is active")
NOT_CUDA = Reason("the input is not on a CUDA GPU")
NOT_STRIDED = Reason("a tensor is not strided")
NESTED = Reason("a tensor is nested")
NO_DTYPE = Reason("convt_ext kernels support float16, bfloat16, float32 and float64")
MIXED = Reason("the tensors differ in dtype or device, which PyTorch's operator checks")
DISABLED = Reason("CONVT_EXT_DISABLE is set")
ARGUMENTS = Reason("the arguments are invalid or the result is empty, which PyTorch's operator checks")
TENSOR_CORES = Reason(
    "PyTorch uses tensor cores here, and convt_ext has estimates for tensor cores only on Hopper (compute capability "
    "9.0): torch.backends.cudnn.benchmark = True or convt_ext.tuning.tune() measures (8.0 or newer); "
    'backend="convt_ext" runs its tensor-core kernels, precision="exact" its exact kernels'
)
BACKEND = Reason('backend="torch" is set')
RUN_TIME_ARGUMENTS = Reason(
    "an argument is neither an int nor a pair of ints: a tracer treats numpy integers and tensors as run-time values",
    "pass plain ints, such as int(stride)",
)
EXPORTED_VOLUME = Reason("an export cannot choose the faster implementation of a three-dimensional layer when it runs")
COMPILER = Reason("this release of torch's compiler is not supported")
TOO_LARGE = Reason("convt_ext kernels need sizes and steps below 2^29 per axis", "split the input along that axis")
TRACING = Reason("torch.jit.trace is tracing", "call it outside of the traced function")
ONNX = Reason("torch.onnx is exporting, which supports only PyTorch's operator")
TRANSFORM = Reason("a torch.func transform (vmap, grad, jvp, ...) is active", "call it outside of the transform")
FORWARD_AD = Reason("forward-mode automatic differentiation is active", "call it outside of the dual level")
BACKWARD_IN_TRANSFORM = Reason(
    "its backward runs inside of a torch.func transform (vmap, ...)",
    "run the backward outside of it (autograd.grad's is_grads_batched=True is supported)",
)
BACKWARD_IN_DUAL_LEVEL = Reason(
    "its backward runs while forward-mode automatic differentiation is active",
    "run the backward outside of the dual level",
)

_transforms_active = _torch.transforms_active
_tracing_state = _torch.tracing_state

# Exact types: a kernel would ignore the semantics of a subclass.
PLAIN = frozenset({Tensor, Parameter})
DTYPES = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})

# The device type of the kernels, and whether a tensor is on such a device.
DEVICE_TYPE = "cuda"
on_gpu = operator.attrgetter("is_cuda")

# Maximum bytes of operands and result of a call that PyTorch's autograd node may record (directions.py).
_LIGHT_BYTES = 1 << 27

# Capacity of the cache of decisions, 2 to 3 KiB each.
_NUM_DECISIONS = 4096


def route(
    input, weight, bias, stride, padding, output_padding, groups, dilation, requested, lowers=None, dims=2
) -> Reason | tuple[Tensor, Tensor, Tensor | None, NativeConv]:
    """Returns operands and directions of a call that convt_ext runs, or the reason why PyTorch's operator runs it.

    Not for traced code (see compile/tracing.py). The returned operands are those of `as_problem`. They
    are cast if autocast is on; `lowers` overrides whether it is. Raises the errors of `precision.select`.
    """
    if type(input) not in PLAIN or type(weight) not in PLAIN or (bias is not None and type(bias) not in PLAIN):
        return NOT_PLAIN
    if has_torch_function_unary(input) and not only_default_device_modes():
        return MODE
    if not on_gpu(input):
        return NOT_CUDA
    if _is_surrounded():
        return _reason_by_context()  # type: ignore[return-value]
    if lowers is None:
        lowers = torch.is_autocast_enabled(DEVICE_TYPE)
    index = input.get_device()
    key = None
    is_nested = input.is_nested or weight.is_nested or (bias is not None and bias.is_nested)
    if type(groups) is int and not is_nested and precisions.cudnn_enabled():
        arguments = pairs(dims, stride, padding, output_padding, groups, dilation)
        key = _key(input, weight, bias, arguments, requested, lowers, index)
        known = _known.get(key)
        if known is not None:
            if lowers and not known.is_aten_call(input, weight, bias):  # PyTorch casts for its own call
                input, weight, bias = autocast.cast(input, weight, bias, DEVICE_TYPE)
            if dims != 2 or input.dim() != 4:
                input, weight = as_problem(dims, input, weight)
            return input, weight, bias, known
    decision = op_call(
        input, weight, bias, stride, padding, output_padding, groups, dilation, requested,
        planner.device_numbers(index), lowers, dims,
    )  # fmt: skip
    if type(decision) is tuple:
        unsupported = _extension.unsupported_reason(index)
        if unsupported is not None:
            return Unavailable("convt_ext kernels cannot run", unsupported)
        if key is not None:
            _known.put(key, decision[3])  # type: ignore[misc]
    return decision


def known(input, weight, bias, arguments: tuple[Any, ...]) -> NativeConv | None:
    """Returns the cached decision of `route` for a call without a request and without autocast; None if the caller
    must call `route`. The tensors must be plain and on one GPU, and the arguments a result of `pairs`."""
    if _is_surrounded() or not precisions.cudnn_enabled():
        return None
    return _known.get(_key(input, weight, bias, arguments, None, False, input.get_device()))


class _Known:
    """Cache of decisions, which most calls hit. The key contains all inputs of the decision.

    Recently used decisions stay. A full newer half becomes the older half, and a hit in the older half moves to the
    newer one, so a hit in the newer half costs nothing more.
    """

    def __init__(self) -> None:
        self._newer: dict[tuple[Any, ...], NativeConv] = {}
        self._older: dict[tuple[Any, ...], NativeConv] = {}

    def get(self, key: tuple[Any, ...]) -> NativeConv | None:
        found = self._newer.get(key)
        if found is None:
            found = self._older.get(key)
            if found is not None:
                self.put(key, found)
        return found

    def put(self, key: tuple[Any, ...], decision: NativeConv) -> None:
        if len(self._newer) >= _NUM_DECISIONS // 2:
            self._newer, self._older = {}, self._newer
        self._newer[key] = decision

    def clear(self) -> None:
        self._newer, self._older = {}, {}


_known = _Known()


def _key(input, weight, bias, arguments, requested, lowers, index) -> tuple[Any, ...]:
    """Returns all inputs of a decision while cuDNN is enabled."""
    dtype = input.dtype
    return (
        input.shape, input.stride() if input.layout is torch.strided else None, dtype, weight.shape,
        weight.stride() if weight.layout is torch.strided else None, weight.dtype, weight.get_device() - index,
        None if bias is None else (bias.shape, bias.dtype, bias.get_device() - index, bias.layout), arguments, index,
        requested, scopes.now().requested, torch.get_autocast_dtype(DEVICE_TYPE) if lowers else None,
        precisions.tf32_switch(), benchmark.is_enabled(),
    )  # fmt: skip


def forget() -> None:
    """Clears all cached decisions, after a change of the measurements."""
    decide.cache_clear()
    _known.clear()


def op_call(
    input, weight, bias, stride, padding, output_padding, groups, dilation, requested, device, lowers, dims=2
) -> Reason | tuple[Tensor, Tensor, Tensor | None, NativeConv]:
    """Decides as `route` does, for plain tensors, as if on the GPU with these numbers (a tuple)."""
    dtype = autocast.dtype_of(input, DEVICE_TYPE) if lowers else input.dtype
    if dtype not in DTYPES:
        return NO_DTYPE
    if input.is_nested or weight.is_nested or (bias is not None and bias.is_nested):
        return NESTED  # nested tensors have no sizes
    selected = selection(dtype, requested, planner.capability(device), input.dtype is torch.float32)
    if selected.backend == "torch":
        return BACKEND
    chooses = selected.backend == "auto"
    if chooses and not may_run_convt_ext(selected.served, device):
        return TENSOR_CORES

    arguments = pairs(dims, stride, padding, output_padding, groups, dilation)
    if None in arguments or input.dim() not in (dims + 1, dims + 2) or weight.dim() != dims + 2:
        return ARGUMENTS
    if lowers:
        input, weight, bias = autocast.cast(input, weight, bias, DEVICE_TYPE)
    reason = reason_by_layout(input, weight, bias)
    if reason is not None:
        return reason
    input, weight = as_problem(dims, input, weight)
    decision = decide(
        input.shape, input.stride(), weight.shape, weight.stride(), None if bias is None else bias.shape, arguments,
        dtype, selected, chooses and benchmark.is_enabled(), precisions.cudnn_enabled(), device,
    )  # fmt: skip
    return decision if isinstance(decision, Reason) else (input, weight, bias, decision)


def may_run_convt_ext(served: str, device: tuple[int, ...]) -> bool:
    """Returns whether convt_ext may run a call of this class with backend="auto" on the GPU with these numbers: whether
    estimates or measurements exist."""
    capability = planner.capability(device)
    return precisions.has_estimates(served, capability) or (
        precisions.may_be_measured(capability) and (benchmark.is_enabled() or files.speak_of(device))
    )


def selection(
    dtype: torch.dtype, requested: str | None, capability: tuple[int, int], was_float32: bool = False
) -> precisions.Selection:
    """Returns class and implementations of a call on a GPU of that capability, outside of traced code."""
    by_switches = precisions.class_by_switches(dtype, capability)
    return precisions.select(request.merged(requested, scopes.now().requested), dtype, by_switches, was_float32)


@functools.lru_cache(maxsize=_NUM_DECISIONS)
def decide(
    input_size, input_stride, weight_size, weight_stride, bias_size, arguments, dtype, selected, benchmarks,
    cudnn_enabled, device,
) -> Reason | NativeConv:  # fmt: skip
    """Decides what runs a problem: a pure function of its hashable arguments and the tuning files in force."""
    stride, padding, output_padding, groups, dilation = arguments
    problem = input_size, weight_size, bias_size, stride, padding, output_padding, groups, dilation
    if legal_output_size(*problem) is None:
        return ARGUMENTS if legal_output_size(*problem, limit=NO_LIMIT) is None else TOO_LARGE
    layouts = input_size, input_stride, weight_size, weight_stride
    channels_last = result_is_channels_last(*layouts, dtype, stride, output_padding, cudnn_enabled)
    code = precisions.CODES[selected.served]
    asked = planner.Problem(
        *layouts, bias_size is not None, stride, padding, output_padding, groups, dilation, dtype, code, channels_last,
        device,
    )  # fmt: skip
    arguments = (*arguments, code, channels_last)
    weight_channels_last = grad_weight_is_channels_last(channels_last, input_size, input_stride)
    fits_light_path = asked.tensor_bytes() <= _LIGHT_BYTES
    if selected.backend == "auto":
        kind = AutoDispatchInClass if selected.is_explicit else AutoDispatch
        return kind(arguments, asked, benchmarks, weight_channels_last, fits_light_path)
    found = [choices.of_files(asked, direction) for direction in range(3)]
    candidates = [0 if choice is None else choice.candidate for choice in found]
    return NativeConv(arguments, candidates, weight_channels_last, fits_light_path=fits_light_path)


def reason_by_layout(input, weight, bias) -> Reason | None:
    """Returns a reason if dtypes, devices or layouts are unsupported or differ; else None."""
    dtype = input.dtype
    if dtype not in DTYPES:
        return NO_DTYPE
    if input.layout is not torch.strided or weight.layout is not torch.strided:
        return NOT_STRIDED
    index = input.get_device()
    if weight.dtype is not dtype or weight.get_device() != index:
        return MIXED
    if bias is not None:
        if bias.dtype is not dtype or bias.get_device() != index:
            return MIXED
        if bias.layout is not torch.strided:
            return NOT_STRIDED
    return None


def _is_surrounded() -> bool:
    """Returns whether `_reason_by_context` returns a reason; runs on every call."""
    return _extension.DISABLED or _transforms_active() or forward_ad._current_level >= 0 or _tracing_state() is not None


def _reason_by_context() -> Reason | None:
    """Returns a reason if the call is inside a context that only PyTorch's operator supports; else None."""
    if _extension.DISABLED:
        return DISABLED
    if _transforms_active():
        return TRANSFORM
    if forward_ad._current_level >= 0:
        return FORWARD_AD
    if _tracing_state() is not None:
        return ONNX if torch.onnx.is_in_onnx_export() else TRACING
    return None


def only_default_device_modes() -> bool:
    """Returns whether all active modes are those of torch.set_default_device, which do not affect this operator."""
    return all(type(mode) is _torch.DeviceContext for mode in _torch.function_modes())


def refuse_eager(reason: Reason, dtype: torch.dtype, requested: str | None, device: tuple[int, ...]) -> None:
    """Calls `refuse_if_requested` outside of traced code, for operands of `dtype` on the GPU with these numbers."""
    if dtype in DTYPES:
        by_switches = precisions.class_by_switches(dtype, planner.capability(device))
        refuse_if_requested(reason, dtype, requested, scopes.now().requested, by_switches)


def refuse_if_requested(
    reason: Reason, dtype: torch.dtype, keywords: str | None, in_force: str | None, by_switches: str
) -> None:
    """Raises if the encoded requests of the call's keywords or of `flags` ask for a kernel of convt_ext, which `reason`
    (with a remedy) prevents. `by_switches` is the class in which PyTorch's operator would compute."""
    asked = request.merged(keywords, in_force)
    if precisions.select(asked, dtype, by_switches).backend == "convt_ext":
        refuse(reason, asked.precision, asked.backend)


def refuse(reason: Reason, precision: str | None, backend: str | None = None) -> NoReturn:
    """Raises a RuntimeError, because `reason` (which has a remedy) prevents what a call requests."""
    asked = request.keywords_of(precision, backend)
    raise RuntimeError(
        f"{asked} asks for a kernel of convt_ext, which cannot run this call: {reason.text}. "
        f'Remedy: {reason.remedy}; or leave precision=None and backend="auto", which uses PyTorch\'s operator'
    )

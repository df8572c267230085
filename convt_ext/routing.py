"""Who may serve a call: our kernels, and which of them, or PyTorch's operator alone, and why.

Called by functional.py and compile/tracing.py, which follow the decision, and by explain.py, which reports it. Without
an explicit precision `Chosen` (chosen.py) picks the faster implementation. The decision is made on every call and costs
a few microseconds: what depends on sizes, strides and arguments alone is decided once and looked up afterwards.
Launches nothing but the casts of autocast.
"""

from __future__ import annotations

import functools
import operator
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor
from torch.nn import Parameter

from . import _extension, _torch, autocast, planner, scopes
from . import precision as precisions
from ._torch import forward_ad, has_torch_function_unary
from .arguments import NO_LIMIT, integer, legal_output_size, pair
from .chosen import Chosen
from .directions import Eager
from .geometry import grad_weight_is_channels_last, result_is_channels_last
from .tuning import files, race, verdicts


class Reason(NamedTuple):
    """Why PyTorch's operator serves a call.

    With a `remedy` an explicit precision is refused for this reason, and the remedy says what to do
    instead; without one PyTorch's operator is the right answer under every precision.
    """

    text: str
    remedy: str | None = None


class Unavailable(Reason):
    """The reason that a user should hear of once: an installation that cannot do what it was installed for."""


NOT_PLAIN = Reason("an argument is a tensor subclass or no tensor at all")
MODE = Reason("a __torch_function__ mode is active")
NOT_CUDA = Reason("the input is not on a CUDA GPU")
NOT_STRIDED = Reason("a tensor is not strided")
NESTED = Reason("a tensor is nested")
NO_DTYPE = Reason("our kernels take float16, bfloat16, float32 and float64")
MIXED = Reason("the tensors differ in dtype or device, which PyTorch's operator judges")
DISABLED = Reason("CONVT_EXT_DISABLE is set")
ARGUMENTS = Reason("the arguments are illegal or leave nothing to compute, which PyTorch's operator judges")
TENSOR_CORES = Reason(
    "PyTorch uses tensor cores here, and on other GPUs than Hopper (compute capability 9.0) only a measurement says "
    "who is faster: torch.backends.cudnn.benchmark = True or convt_ext.tuning.tune() measures (from 8.0 on); "
    'precision="tf32" or "half" asks for convt_ext\'s kernels there, "ieee" for its exact ones'
)
RUN_TIME_ARGUMENTS = Reason(
    "an argument is neither an int nor a pair of ints: a tracer takes numpy integers and tensors for values of the run",
    "pass plain ints, such as int(stride)",
)
COMPILER = Reason("this release of torch's compiler is not known")
TOO_LARGE = Reason("our kernels hold sizes and steps along one axis below 2^29", "split the input along that axis")
TRACING = Reason("torch.jit.trace is tracing", "call it outside of the traced function")
ONNX = Reason("torch.onnx is exporting, which knows PyTorch's operator")
TRANSFORM = Reason("a torch.func transform (vmap, grad, jvp, ...) is active", "call it outside of the transform")
FORWARD_AD = Reason("forward-mode automatic differentiation is active", "call it outside of the dual level")
BACKWARD_IN_TRANSFORM = Reason(
    "its backward runs inside of a torch.func transform (vmap, ...)",
    "run the backward outside of it (autograd.grad's is_grads_batched=True is none)",
)
BACKWARD_IN_DUAL_LEVEL = Reason(
    "its backward runs while forward-mode automatic differentiation is active",
    "run the backward outside of the dual level",
)

_transforms_active = _torch.transforms_active
_tracing_state = _torch.tracing_state

# Exact types: a subclass may carry a meaning that a kernel would lose.
PLAIN = frozenset({Tensor, Parameter})
DTYPES = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})

# The kind of device whose tensors our kernels take, and whether a tensor is on one.
DEVICE_TYPE = "cuda"
on_gpu = operator.attrgetter("is_cuda")

# What operands and result of a call take at most that PyTorch's autograd node may record (directions.py).
_LIGHT_BYTES = 1 << 27

# Problems whose decision is remembered, per process: 2 to 3 KiB each.
_NUM_DECISIONS = 4096


def route(
    input, weight, bias, stride, padding, output_padding, groups, dilation, precision, lowers=None
) -> Reason | tuple[Tensor, Tensor, Tensor | None, Eager]:
    """Operands and directions of the call that our kernels serve, or the reason why PyTorch's operator serves it.

    Not for traced code (see compile/tracing.py). The input among the operands is 4-D. Where autocast is on they are
    cast; `lowers` overrules whether it is.

    Raises:
        ValueError: a word that is no precision, or a word that the dtype cannot have.
    """
    if precision is not None:
        precisions.checked_word(precision)
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
        key = _key(
            input, weight, bias, pair(stride), pair(padding), pair(output_padding), groups, pair(dilation), precision,
            lowers, index,
        )  # fmt: skip
        known = _known.get(key)
        if known is not None:
            if input.dim() == 3:
                input = input.unsqueeze(0)
            if lowers and not known.is_torchs(input, weight, bias):  # PyTorch casts for its own call
                input, weight, bias = autocast.cast(input, weight, bias, DEVICE_TYPE)
            return input, weight, bias, known
    decision = op_call(
        input, weight, bias, stride, padding, output_padding, groups, dilation, precision,
        planner.device_numbers(index), lowers,
    )  # fmt: skip
    if type(decision) is tuple:
        unsupported = _extension.unsupported_reason(index)
        if unsupported is not None:
            return Unavailable("our kernels cannot run", unsupported)
        if key is not None:
            _known.put(key, decision[3])  # type: ignore[misc]
    return decision


def known(input, weight, bias, stride, padding, output_padding, groups, dilation) -> Eager | None:
    """What `route` has found before for such a call without a precision, where autocast casts nothing: for a caller who
    has plain tensors on one GPU and arguments that are pairs. None says to ask `route`."""
    if _is_surrounded() or not precisions.cudnn_enabled():
        return None
    index = input.get_device()
    key = _key(input, weight, bias, stride, padding, output_padding, groups, dilation, None, False, index)
    return _known.get(key)


class _Known:
    """Decisions by all that they read: most calls are found here.

    Decisions that were used recently stay. A call that is found in the newer half pays nothing for that: a full half
    becomes the older one, and what is found in the older one moves to the newer.
    """

    def __init__(self) -> None:
        self._newer: dict[tuple[Any, ...], Eager] = {}
        self._older: dict[tuple[Any, ...], Eager] = {}

    def get(self, key: tuple[Any, ...]) -> Eager | None:
        found = self._newer.get(key)
        if found is None:
            found = self._older.get(key)
            if found is not None:
                self.put(key, found)
        return found

    def put(self, key: tuple[Any, ...], decision: Eager) -> None:
        if len(self._newer) >= _NUM_DECISIONS // 2:
            self._newer, self._older = {}, self._newer
        self._newer[key] = decision

    def clear(self) -> None:
        self._newer, self._older = {}, {}


_known = _Known()


def _key(
    input, weight, bias, stride, padding, output_padding, groups, dilation, precision, lowers, index
) -> tuple[Any, ...]:
    """All that a decision depends on while cuDNN is enabled; legal arguments are ints by now."""
    dtype = input.dtype
    return (
        input.shape, input.stride() if input.layout is torch.strided else None, dtype, weight.shape,
        weight.stride() if weight.layout is torch.strided else None, weight.dtype, weight.get_device() - index,
        None if bias is None else (bias.shape, bias.dtype, bias.get_device() - index, bias.layout), stride, padding,
        output_padding, groups, dilation, index, precision, scopes.now().word,
        torch.get_autocast_dtype(DEVICE_TYPE) if lowers else None, precisions.tf32_switch(), race.is_wanted(),
    )  # fmt: skip


def forget() -> None:
    """Has every call decided again: after a change of what is measured or known."""
    decide.cache_clear()
    _known.clear()


def op_call(
    input, weight, bias, stride, padding, output_padding, groups, dilation, precision, device, lowers
) -> Reason | tuple[Tensor, Tensor, Tensor | None, Eager]:
    """As `route`, for plain tensors, as if on the GPU with these numbers (a tuple)."""
    dtype = autocast.dtype_of(input, DEVICE_TYPE) if lowers else input.dtype
    if dtype not in DTYPES:
        return NO_DTYPE
    if input.is_nested or weight.is_nested or (bias is not None and bias.is_nested):
        return NESTED  # such a tensor has no sizes to ask for
    capability = planner.capability(device)
    served, by_switches = served_class(dtype, precision, capability, input.dtype is torch.float32)
    if by_switches and not may_be_ours(served, device):
        return TENSOR_CORES

    stride, padding, output_padding, dilation = pair(stride), pair(padding), pair(output_padding), pair(dilation)
    if type(groups) is not int:
        groups = integer(groups)
    if stride is None or padding is None or output_padding is None or dilation is None or groups is None:
        return ARGUMENTS
    dims = input.dim()
    if dims == 3:
        input = input.unsqueeze(0)
    elif dims != 4:
        return ARGUMENTS
    if lowers:
        input, weight, bias = autocast.cast(input, weight, bias, DEVICE_TYPE)
    reason = reason_by_layout(input, weight, bias)
    if reason is not None:
        return reason
    decision = decide(
        input.shape, input.stride(), weight.shape, weight.stride(), None if bias is None else bias.shape, stride,
        padding, output_padding, groups, dilation, dtype, served, by_switches, by_switches and race.is_wanted(),
        precisions.cudnn_enabled(), device,
    )  # fmt: skip
    return decision if isinstance(decision, Reason) else (input, weight, bias, decision)


def may_be_ours(served: str, device: tuple[int, ...]) -> bool:
    """Whether a call of this class that names no precision may be ours on the GPU with these numbers: estimates say who
    is faster, or measurements do."""
    capability = planner.capability(device)
    return precisions.has_estimates(served, capability) or (
        precisions.may_be_measured(capability) and (race.is_wanted() or files.speak_of(device))
    )


def served_class(
    dtype: torch.dtype, precision: str | None, capability: tuple[int, int], was_float32: bool = False
) -> tuple[str, bool]:
    """The precision class of a call, and whether PyTorch's switches chose it (nobody asked for one by name)."""
    word = precisions.requested(precision)
    served = None if word is None else precisions.explicit_class(dtype, word, precision is not None, was_float32)
    if served is None:
        return precisions.class_by_switches(dtype, capability), True
    return served, False


@functools.lru_cache(maxsize=_NUM_DECISIONS)
def decide(
    input_size,
    input_stride,
    weight_size,
    weight_stride,
    bias_size,
    stride,
    padding,
    output_padding,
    groups,
    dilation,
    dtype,
    served,
    by_switches,
    races,
    cudnn_enabled,
    device,
) -> Reason | Eager:
    """What serves a 4-D problem of class `served`: a pure function of its arguments, which are all hashable, and of the
    tuning files in force."""
    problem = (input_size, weight_size, bias_size, stride, padding, output_padding, groups, dilation)
    if legal_output_size(*problem) is None:
        return ARGUMENTS if legal_output_size(*problem, limit=NO_LIMIT) is None else TOO_LARGE
    channels_last = result_is_channels_last(
        input_size, input_stride, weight_size, weight_stride, dtype, stride, output_padding, cudnn_enabled
    )
    code = precisions.CODES[served]
    arguments = (stride, padding, output_padding, groups, dilation, code, channels_last)
    asked = planner.Problem(
        input_size, input_stride, weight_size, weight_stride, bias_size is not None, *arguments[:5], dtype, code,
        channels_last, device,
    )  # fmt: skip
    weight_channels_last = grad_weight_is_channels_last(channels_last, input_size, input_stride)
    is_light = asked.tensor_bytes() <= _LIGHT_BYTES
    if by_switches:
        return Chosen(arguments, asked, races, weight_channels_last, is_light)
    found = [verdicts.of_files(asked, direction) for direction in range(3)]
    candidates = [0 if verdict is None else verdict.candidate for verdict in found]
    return Eager(arguments, candidates, weight_channels_last, is_light=is_light)


def reason_by_layout(input, weight, bias) -> Reason | None:
    """The reason that lies in dtypes, devices and layouts that our kernels do not have or that do not agree."""
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
    """Whether `_reason_by_context` has a reason, asked on every call."""
    return _extension.DISABLED or _transforms_active() or forward_ad._current_level >= 0 or _tracing_state() is not None


def _reason_by_context() -> Reason | None:
    """The reason that lies in what surrounds the call: what only PyTorch's operator takes part in."""
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
    """Whether the active modes are those of torch.set_default_device, which say nothing about this operator."""
    return all(type(mode) is _torch.DeviceContext for mode in _torch.function_modes())


def refuse_when_explicit(reason: Reason, dtype: torch.dtype, precision: str | None, word: str | None = None) -> None:
    """Raise when an explicit precision is asked for, because `reason` (which has a remedy) stands in its way.

    `word` is the word in force where the caller knows it.

    Raises:
        RuntimeError: names the precision, the reason and the remedy.
        ValueError: a word that is no precision, or a word that the dtype cannot have.
    """
    word = precisions.requested(precision) if word is None else word
    if word is not None and precisions.explicit_class(dtype, word, precision is not None) is not None:
        refuse(reason, word)


def refuse(reason: Reason, word: str) -> NoReturn:
    """Raise, because `reason` (which has a remedy) stands in the way of the precision that `word` names.

    Raises:
        RuntimeError: names the precision, the reason and the remedy.
    """
    raise RuntimeError(
        f"precision={word!r} asks for a kernel of convt_ext, which cannot serve this call: {reason.text}. "
        f"Remedy: {reason.remedy}; or leave precision=None, which uses PyTorch's operator"
    )

"""Who serves a call: our kernel or PyTorch's operator, and why.

Called by functional.py, which obeys, and by explain.py, which tells. One decision in one place, made
on every call, so it costs a few microseconds: reasons are constants, nothing is formatted or
allocated on the way to a kernel, and what takes an estimate is looked up. Must not launch anything.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter
from torch.overrides import has_torch_function_unary
from torch.utils._device import DeviceContext

from . import _extension, planner
from . import precision as precisions
from .arguments import NO_LIMIT, integer, legal_output_size, pair
from .geometry import result_is_channels_last


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
NOT_CUDA = Reason("the tensors are not on one CUDA GPU")
NOT_STRIDED = Reason("a tensor is not strided")
NO_DTYPE = Reason("our kernels take float16, bfloat16, float32 and float64")
MIXED = Reason("the tensors differ in dtype or device, which PyTorch's operator judges")
DISABLED = Reason("CONVT_EXT_DISABLE is set")
ARGUMENTS = Reason("the arguments are illegal or leave nothing to compute, which PyTorch's operator judges")
TENSOR_CORES = Reason(
    "PyTorch uses tensor cores here and convt_ext has no tensor-core kernel for this precision yet; "
    'precision="ieee" asks for our exact kernel'
)
TOO_LARGE = Reason("our kernels hold sizes and steps along one axis below 2^29", "split the input along that axis")
COMPILING = Reason("torch.compile or torch.export is tracing", "call it outside of the compiled function")
TRACING = Reason("torch.jit.trace is tracing", "call it outside of the traced function")
TRANSFORM = Reason("a torch.func transform (vmap, grad, jvp, ...) is active", "call it outside of the transform")
FORWARD_AD = Reason("forward-mode automatic differentiation is active", "call it outside of the dual level")
AUTOCAST = Reason("autocast is active for CUDA", 'wrap the call in torch.autocast("cuda", enabled=False)')
GRAD = Reason("a gradient is asked for", "wrap the call in torch.no_grad()")

# Exact types: a subclass may carry a meaning that a kernel would lose.
_PLAIN = frozenset({Tensor, Parameter})
_DTYPES = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})

# Problems whose comparison with PyTorch is remembered, per process.
_NUM_COMPARISONS = 4096


def route(
    input, weight, bias, stride, padding, output_padding, groups, dilation, precision
) -> Reason | tuple[Any, ...]:
    """The arguments of the op `convt_ext::forward`, or the reason why PyTorch's operator serves the call.

    Not for traced code (see `refuse_when_explicit`). The input among the op's arguments is 4-D.

    Raises:
        ValueError: a word that is no precision, or a word that the dtype cannot have.
    """
    if precision is not None:
        precisions.checked_word(precision)
    reason = _reason_by_tensors(input, weight, bias) or _reason_by_context(input, weight, bias)
    if reason is not None:
        return reason
    device_index = input.get_device()
    decision = op_call(
        input, weight, bias, stride, padding, output_padding, groups, dilation, precision,
        planner.device_numbers(device_index),
    )  # fmt: skip
    if not isinstance(decision, Reason):
        unsupported = _extension.unsupported_reason(device_index)
        if unsupported is not None:
            return Unavailable("our kernels cannot run", unsupported)
    return decision


def op_call(
    input, weight, bias, stride, padding, output_padding, groups, dilation, precision, device
) -> Reason | tuple[Any, ...]:
    """As `route`, for plain strided tensors of one of our dtypes, as if on the GPU with these numbers (a tuple)."""
    word = precisions.requested(precision)
    dtype = input.dtype
    served = None if word is None else precisions.explicit_class(dtype, word, precision is not None)
    by_switches = served is None
    if served is None:
        served = precisions.class_by_switches(dtype, planner.capability(device))
        if served not in precisions.CLASSES_WITH_KERNEL:
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
    input_size, weight_size = input.shape, weight.shape
    bias_size = None if bias is None else bias.shape
    problem = (input_size, weight_size, bias_size, stride, padding, output_padding, groups, dilation)
    if legal_output_size(*problem) is None:
        return ARGUMENTS if legal_output_size(*problem, limit=NO_LIMIT) is None else TOO_LARGE
    input_stride, weight_stride = input.stride(), weight.stride()
    channels_last = result_is_channels_last(
        input_size, input_stride, weight_size, weight_stride, dtype, stride, output_padding,
        precisions.cudnn_enabled(),
    )  # fmt: skip
    if by_switches:
        slower = slower_than_torch(
            input_size, input_stride, weight_size, weight_stride, bias is not None, stride, padding, output_padding,
            groups, dilation, dtype, served, channels_last, device,
        )  # fmt: skip
        if slower is not None:
            return slower
    code = precisions.CODES[served]
    return (input, weight, bias, stride, padding, output_padding, groups, dilation, code, channels_last)


@functools.lru_cache(maxsize=_NUM_COMPARISONS)
def slower_than_torch(
    input_size,
    input_stride,
    weight_size,
    weight_stride,
    has_bias,
    stride,
    padding,
    output_padding,
    groups,
    dilation,
    dtype,
    word,
    channels_last,
    device,
) -> Reason | None:
    """The reason to leave a problem of class `word` to PyTorch: our exact kernel would take longer.

    Estimates against estimates, so an unchanged user is never made slower as far as the planner knows. None
    where ours is not slower and where nothing is known of PyTorch's time. Everything is hashable, and equal
    arguments give an equal answer.
    """
    answer = planner.plan(
        input_size, input_stride, weight_size, weight_stride, has_bias, stride, padding, output_padding, groups,
        dilation, dtype, precisions.CODES[word], channels_last, device,
    )  # fmt: skip
    if answer is None:
        return None
    ours_us, torch_us = answer["plan"]["estimate_us"], answer["torch_us"]
    if not 0 < torch_us < ours_us:
        return None
    return Reason(
        f"estimated {ours_us:.0f} us here, PyTorch about {torch_us:.0f} us; precision='{word}' runs the exact kernels"
    )


def _reason_by_tensors(input, weight, bias) -> Reason | None:
    """The reason that lies in what the arguments are and where they live."""
    if type(input) not in _PLAIN or type(weight) not in _PLAIN or (bias is not None and type(bias) not in _PLAIN):
        return NOT_PLAIN
    if has_torch_function_unary(input) and not _only_default_device_modes():
        return MODE
    if not (input.is_cuda and weight.is_cuda):
        return NOT_CUDA
    return reason_by_layout(input, weight, bias)


def reason_by_layout(input, weight, bias) -> Reason | None:
    """The reason that lies in dtypes, devices and layouts that our kernels do not have or that do not agree."""
    dtype = input.dtype
    if dtype not in _DTYPES:
        return NO_DTYPE
    if input.layout is not torch.strided or weight.layout is not torch.strided:
        return NOT_STRIDED
    device = input.device
    if weight.dtype is not dtype or weight.device != device:
        return MIXED
    if bias is not None:
        if bias.dtype is not dtype or bias.device != device:
            return MIXED
        if bias.layout is not torch.strided:
            return NOT_STRIDED
    return None


def _reason_by_context(input, weight, bias) -> Reason | None:
    """The reason that lies in what surrounds the call: what only PyTorch's operator takes part in so far."""
    if _extension.DISABLED:
        return DISABLED
    if torch.is_grad_enabled() and (
        input.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    ):
        return GRAD
    if torch.is_autocast_enabled("cuda"):
        return AUTOCAST
    if torch._C._are_functorch_transforms_active():
        return TRANSFORM
    if forward_ad._current_level >= 0:
        return FORWARD_AD
    if torch._C._get_tracing_state() is not None:
        return TRACING
    return None


def _only_default_device_modes() -> bool:
    """Whether the active modes are those of torch.set_default_device, which say nothing about this operator."""
    return all(type(mode) is DeviceContext for mode in torch.overrides._get_current_function_mode_stack())


def refuse_when_explicit(reason: Reason, dtype: torch.dtype, precision: str | None) -> None:
    """Raise when an explicit precision is asked for, because `reason` (which has a remedy) stands in its way.

    Raises:
        RuntimeError: names the precision, the reason and the remedy.
        ValueError: a word that is no precision, or a word that the dtype cannot have.
    """
    word = precisions.requested(precision)
    if word is None or precisions.explicit_class(dtype, word, precision is not None) is None:
        return
    raise RuntimeError(
        f"precision={word!r} asks for a kernel of convt_ext, which cannot serve this call: {reason.text}. "
        f"Remedy: {reason.remedy}; or leave precision=None, which uses PyTorch's operator"
    )

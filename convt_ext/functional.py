"""The public operators.

Three steps: dispatch/routing.py selects the implementation (compile/tracing.py while tracing), the op or PyTorch's
operator runs, and added axes are removed: the batch axis of an unbatched input, the height of a one-dimensional call.
Helpers have a parameter `dims`, 1 to 3. Must not know kernels, plans or memory formats.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor
from torch.compiler import is_compiling
from torch.fx import Proxy
from torch.overrides import handle_torch_function

from .compile import tracing
from .dispatch import autograd, frozen, planner, replaced, routing
from .dispatch.arguments import as_result
from .dispatch.replaced import BUILTINS, is_for_tools, torchs_or_a_tools
from .dispatch.request import encode_request
from .environment import _torch
from .epilogue import fused
from .epilogue.steps import apply, apply_after, check_names, following


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
    *,
    precision: str | None = None,
    backend: str | None = None,
    residual: Tensor | None = None,
    activation: str | Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    r"""Computes `torch.nn.functional.conv_transpose2d` with a documented order of accumulation.

    .. math::
        y[n, co, oh, ow] = bias[co] + \sum_{ci, kh, kw} x[n, ci, ih, iw] \cdot w[ci, co, kh, kw]

    over ci of co's group and all taps with ``oh = ih * stride - padding + kh * dilation`` (width likewise);
    ``OH = (H - 1) * stride - 2 * padding + dilation * (kH - 1) + output_padding + 1``.

    Args:
        input: (N, C_in, H, W) or (C_in, H, W); float16, bfloat16, float32 or float64; any strides.
        weight: (C_in, C_out / groups, kH, kW), of the input's dtype and device.
        bias: (C_out,) or None.
        stride, padding, output_padding, dilation: an int or a pair (height, width).
        groups: number of channel groups.
        precision: the arithmetic; None is what PyTorch's switches select. "exact" includes the order of accumulation:
            one chain of fused multiply-adds per output, c_in ascending, then kh, then kw, bias last. "aten" is the
            order of PyTorch's own CUDA algorithm; "ieee", float32 multiply-adds in any order; "tf32x3" and "tf32", at
            least that accurate; "half", tensor cores with float32 accumulation. "exact" and "ieee" support every dtype,
            "half" float16 and bfloat16, the others float32. A gradient has the precision of its forward pass.
        backend: the implementation of a call on CUDA tensors. None is that of the active `flags`, else "auto". "auto"
            is the faster of a convt_ext kernel and PyTorch's operator, chosen by a tuning file or else by a cost model;
            with ``torch.backends.cudnn.benchmark = True``, a shape that is called often is benchmarked once. PyTorch's
            operator is a candidate only if its switches select that precision, and never for "exact" and "aten". On
            GPUs other than Hopper, calls on tensor cores run PyTorch's operator unless a benchmark or a tuning file
            selects convt_ext. "convt_ext" always runs a convt_ext kernel, "torch" PyTorch's operator.
            CPU tensors, other dtypes, tensor subclasses and ``__torch_function__`` modes always run PyTorch's operator.
            If a tool (a profiler, a quantizer) has replaced ``torch.nn.functional.conv_transpose2d``, calls without a
            precision and a backend run the replacement.
        residual: a tensor to add to the result, of any size that broadcasts with it.
        activation: applied last: "relu", "gelu", "silu", "tanh", "sigmoid", "leaky_relu", "hardswish", "mish", or any
            function or module of one tensor. The result is ``activation(conv_transpose2d(...) + residual)``, as
            PyTorch computes it: bitwise in "exact" and "aten" if a step is correctly rounded, else within 4 ulp; in
            tensor-core classes the steps are computed in float32 and rounded once. Kernels fuse the activations above,
            relu6, hardtanh, prelu, softplus, and PyTorch's functions and modules for them, where they can; any other
            activation runs after the kernel. PyTorch's functions record gradients that operands and result do not
            determine.

    Returns:
        (N, C_out, OH, OW), or (C_out, OH, OW) for an unbatched input, in the memory format of PyTorch's result.

    Raises:
        TypeError, RuntimeError, ValueError: the errors of PyTorch's operator for the same arguments.
        ValueError: an unknown precision or backend, or a precision that the dtype does not support or that
            backend="torch" does not compute; an unknown name of an activation.
        TypeError: a residual that is not a tensor; an activation that is neither a name nor callable.
        RuntimeError: precision or backend require a convt_ext kernel, which cannot run here; the message states the
            remedy.

    Determinism:
        Kernels of convt_ext are bitwise reproducible from run to run. In "exact" and "aten" the results are also
        the same on every GPU and for every batch size; in other precisions they may differ. The weight gradient
        depends on the batch size in every precision. PyTorch's operator is as deterministic as PyTorch.
        With backend="auto", the sizes of a call, including the batch size, may select the implementation, and with
        ``torch.backends.cudnn.benchmark = True`` a benchmark may change it once within a run: use "exact" for
        reproducible bits. `convt_ext.explain` reports which implementation runs.

    Example:
        >>> import torch, convt_ext
        >>> x, weight = torch.randn(1, 8, 5, 5), torch.randn(8, 4, 4, 4)
        >>> convt_ext.conv_transpose2d(x, weight, stride=2, padding=1).shape
        torch.Size([1, 4, 10, 10])

    Source of the formula: Dumoulin and Visin, "A guide to convolution arithmetic for deep learning"
    (arXiv:1603.07285), chapter 4; PyTorch's `torch.nn.ConvTranspose2d`.
    """
    if residual is not None or activation is not None:
        arguments = input, weight, bias, stride, padding, output_padding, groups, dilation
        return _call_then(2, arguments, precision, backend, residual, activation)
    return _call(
        2, conv_transpose2d, input, weight, bias, stride, padding, output_padding, groups, dilation, precision,
        backend,
    )  # fmt: skip


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
    *,
    precision: str | None = None,
    backend: str | None = None,
    residual: Tensor | None = None,
    activation: str | Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    r"""Computes `torch.nn.functional.conv_transpose1d` as `conv_transpose2d` with height 1.

    .. math::
        y[n, co, ol] = bias[co] + \sum_{ci, k} x[n, ci, il] \cdot w[ci, co, k]

    over ci of co's group and all taps with ``ol = il * stride - padding + k * dilation``;
    ``OL = (L - 1) * stride - 2 * padding + dilation * (K - 1) + output_padding + 1``.

    Args:
        input: (N, C_in, L) or (C_in, L); dtypes as in `conv_transpose2d`; any strides.
        weight: (C_in, C_out / groups, K), of the input's dtype and device.
        bias: (C_out,) or None.
        stride, padding, output_padding, dilation: an int or a sequence of one.
        groups: number of channel groups.
        precision, backend: as in `conv_transpose2d`.
        residual, activation: as in `conv_transpose2d`.

    Returns:
        (N, C_out, OL), or (C_out, OL) for an unbatched input, with the strides of PyTorch's result.

    Raises:
        TypeError, RuntimeError, ValueError: the errors of PyTorch's operator for the same arguments, and those of
            `conv_transpose2d` about precision, backend, residual and activation.

    Determinism and source of the formula: as `conv_transpose2d`.

    Example:
        >>> import torch, convt_ext
        >>> x, weight = torch.randn(1, 8, 50), torch.randn(8, 4, 16)
        >>> convt_ext.conv_transpose1d(x, weight, stride=8, padding=4).shape
        torch.Size([1, 4, 400])
    """
    if residual is not None or activation is not None:
        arguments = input, weight, bias, stride, padding, output_padding, groups, dilation
        return _call_then(1, arguments, precision, backend, residual, activation)
    return _call(
        1, conv_transpose1d, input, weight, bias, stride, padding, output_padding, groups, dilation, precision,
        backend,
    )  # fmt: skip


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
    *,
    precision: str | None = None,
    backend: str | None = None,
    residual: Tensor | None = None,
    activation: str | Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    r"""Computes `torch.nn.functional.conv_transpose3d`.

    .. math::
        y[n, co, od, oh, ow] = bias[co] + \sum_{ci, kd, kh, kw} x[n, ci, id, ih, iw] \cdot w[ci, co, kd, kh, kw]

    over ci of co's group and all taps with ``od = id * stride - padding + kd * dilation`` (height and width likewise).

    Exact kernels of convt_ext support every layer. On Hopper, tensor-core kernels support layers whose kernel equals
    the stride, and most layers whose kernel and stride along the depth are 1.

    Args:
        input: (N, C_in, D, H, W) or (C_in, D, H, W); dtypes as in `conv_transpose2d`; any strides.
        weight: (C_in, C_out / groups, kD, kH, kW), of the input's dtype and device.
        bias: (C_out,) or None.
        stride, padding, output_padding, dilation: an int or three (depth, height, width).
        groups: number of channel groups.
        precision, backend: as in `conv_transpose2d`.
        residual, activation: as in `conv_transpose2d`. If the kernel is larger than 1 along the depth, one pass over
            the result computes both.

    Returns:
        (N, C_out, OD, OH, OW), or (C_out, OD, OH, OW) for an unbatched input, in the memory format of PyTorch's result.

    Raises:
        TypeError, RuntimeError, ValueError: the errors of PyTorch's operator for the same arguments, and those of
            `conv_transpose2d` about precision, backend, residual and activation.

    Determinism and source of the formula: as `conv_transpose2d`.

    Example:
        >>> import torch, convt_ext
        >>> x, weight = torch.randn(1, 8, 4, 5, 6), torch.randn(8, 4, 2, 2, 2)
        >>> convt_ext.conv_transpose3d(x, weight, stride=2).shape
        torch.Size([1, 4, 8, 10, 12])
    """
    if residual is not None or activation is not None:
        arguments = input, weight, bias, stride, padding, output_padding, groups, dilation
        return _call_then(3, arguments, precision, backend, residual, activation)
    return _call(
        3, conv_transpose3d, input, weight, bias, stride, padding, output_padding, groups, dilation, precision,
        backend,
    )  # fmt: skip


def _call_then(dims: int, arguments: tuple[Any, ...], precision, backend, residual, activation) -> Tensor:
    """Computes a call with a residual or an activation."""
    entries, others = following(residual, activation)
    compute = partial(conv_transpose_then, dims, *arguments, precision=precision, backend=backend, epilogue=entries)
    return apply_after(compute, others)


def _call(
    dims, function, input, weight, bias, stride, padding, output_padding, groups, dilation, precision, backend,
    is_frozen=False,
) -> Tensor:  # fmt: skip
    """Runs or traces a call.

    Args:
        function: the public function that was called; None for a stand-in.
        is_frozen: `freeze` keeps copies of the weight, and the call, which is traced, records no gradient.
    """
    requested = None if precision is None and backend is None else encode_request(precision, backend)
    if function is not None and replaced.current(dims) is not BUILTINS[dims] and is_for_tools(dims, requested):
        return torchs_or_a_tools(dims, input, weight, bias, stride, padding, output_padding, groups, dilation)
    if is_compiling():
        call = input, weight, bias, stride, padding, output_padding, groups, dilation
        return tracing.conv_transpose(dims, call, requested, is_frozen)
    copies = frozen.copies_for(input, weight, bias) if frozen.registry else None
    operand = weight if copies is None else copies.weight
    decision = routing.route(
        input, operand, bias, stride, padding, output_padding, groups, dilation, requested, None, dims
    )
    if isinstance(decision, routing.Reason):
        arguments = input, weight, bias, stride, padding, output_padding, groups, dilation
        if function is None:
            _refuse_or_warn(decision, input, None)
            return BUILTINS[dims](*arguments)
        if decision is routing.NOT_PLAIN and any(isinstance(operand, Proxy) for operand in arguments[:3]):
            # torch.fx.symbolic_trace records `function`, with its keywords
            return handle_torch_function(function, arguments[:3], *arguments, precision=precision, backend=backend)
        _refuse_or_warn(decision, input, requested)
        return torchs_or_a_tools(dims, *arguments)
    result = autograd.call(*decision) if copies is None else copies.call(*decision)
    if result is None:
        return BUILTINS[dims](input, weight, bias, stride, padding, output_padding, groups, dilation)
    return result if dims == 2 and input.dim() == 4 else as_result(dims, result, input.dim() == dims + 2)


# The public functions by the number of dimensions, and those of traced calls of modules with a frozen weight.
FUNCTIONS: dict[int, Callable[..., Tensor]] = {1: conv_transpose1d, 2: conv_transpose2d, 3: conv_transpose3d}
TRACED_OF_FROZEN = {dims: partial(_call, dims, function, is_frozen=True) for dims, function in FUNCTIONS.items()}


def _stand_in_of(dims: int) -> Callable[..., Tensor]:
    def stand_in(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1) -> Tensor:
        arguments = input, weight, bias, stride, padding, output_padding, groups, dilation
        if not stand_in_serves:  # a tool has wrapped this function and still calls it
            return BUILTINS[dims](*arguments)
        return _call(dims, None, *arguments, None, None)

    return stand_in


# Replace PyTorch's functions while enabling.py is active, with their signatures. Inputs that are not plain tensors go
# to PyTorch's functions, which overrides and tracers recognize.
STAND_INS = {dims: _stand_in_of(dims) for dims in (1, 2, 3)}
replaced.OURS = *STAND_INS.values(), *FUNCTIONS.values()
stand_in_serves = False  # set by enabling.py


def _refuse_or_warn(reason: routing.Reason, input: Any, requested: str | None) -> None:
    """Raises, warns or logs before PyTorch's operator runs."""
    if reason is routing.MODE:
        for mode in _torch.function_modes():
            if hasattr(mode, "is_asked"):  # report.py's
                mode.is_asked(requested)
    if reason.remedy is not None:
        routing.refuse_eager(reason, input.dtype, requested, planner.device_numbers(input.get_device()))
    if isinstance(reason, routing.Unavailable):
        warn_once(reason)
    if _LOG.isEnabledFor(logging.INFO):
        _log_once(reason, input)


_LOG = logging.getLogger("convt_ext")

# Logged fallbacks: reason and size.
_told: set[tuple[routing.Reason, Any]] = set()
_MOST_TOLD = 4096


def _log_once(reason: routing.Reason, input: Any) -> None:
    size = getattr(input, "shape", None)
    if (reason, size) not in _told and len(_told) < _MOST_TOLD:
        _told.add((reason, size))
        words = "no tensor" if size is None else "x".join(map(str, size))
        _LOG.info("PyTorch's operator computes an input of %s: %s", words, reason.text)


def conv_transpose_then(
    dims, input, weight, bias, stride=1, padding=0, output_padding=0, groups=1, dilation=1, *, precision=None,
    backend=None, epilogue: Sequence[Any],
) -> Tensor:  # fmt: skip
    """Computes a transposed convolution, then pointwise functions of PyTorch, in the kernel where it can.

    The epilogue contains functions and modules, and tuples of a function and its further arguments. Raises a TypeError
    or ValueError for an entry that no kernel supports (epilogue/steps.py).
    """
    arguments = input, weight, bias, stride, padding, output_padding, groups, dilation
    if not epilogue:
        return FUNCTIONS[dims](*arguments, precision=precision, backend=backend)
    requested = encode_request(precision, backend)
    if replaced.current(dims) is not BUILTINS[dims] and is_for_tools(dims, requested):
        return apply_after(partial(torchs_or_a_tools, dims, *arguments), epilogue)
    if is_compiling():  # the compiler fuses the functions itself
        check_names(epilogue)
        return apply(tracing.conv_transpose(dims, arguments, requested), epilogue)
    result = fused.conv_transpose(dims, *arguments, requested, epilogue)
    if result is not None:
        return result
    return apply_after(partial(FUNCTIONS[dims], *arguments, precision=precision, backend=backend), epilogue)


_warned = False


def warn_once(reason: routing.Reason) -> None:
    """Warns once per process that an installation cannot run its kernels."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"convt_ext uses PyTorch's operator: {reason.text}: {reason.remedy}", RuntimeWarning, stacklevel=4
        )

"""The ops of compiled functions without an explicit precision, in Python; they decide each time they run.

`numbers` are stride, padding, output_padding, groups and dilation of two or three dimensions in one list, which an op
reads faster than five arguments. The number `version()` follows, which no op reads, and then flags: `TURNS`, `FROZEN`
and `COPIES`.
The memory formats of the results follow from the strides of input and weight, as for PyTorch's operator, until a
compiler sets them, because the code around a result is compiled for its strides (inductor.py). A program is compiled
for these numbers and for the sizes of the weight, as with PyTorch's operator, and for any input size.

Called by tracing.py while tracing, then by the compiled program. At run time, PyTorch's switches and the known times
select the implementation, as in an eager call with `backend="auto"`. Gradients read the switches when they run, as
PyTorch's do, because a graph cannot store the class of its forward pass. traced_epilogues.py has the forward pass with
pointwise steps.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..dispatch import autograd, frozen, ops, routing, scopes
from ..dispatch.directions import AtenConv, Gradients, NativeConv
from ..dispatch.geometry import grad_weight_is_channels_last, memory_format, output_size, result_is_channels_last
from ..dispatch.precision import cudnn_enabled
from ..dispatch.request import flags
from ..environment import _torch
from ..environment._torch import forward_ad, register_flop_formula
from ..epilogue.steps import Step

_any_requires_grad = _torch.any_requires_grad
_transforms_active = _torch.transforms_active
_num_dispatch_modes = _torch.num_dispatch_modes


# Flags. `TURNS` requests a channels_last network from Inductor, if every op of a graph has it (inductor.py). `FROZEN`:
# `convt_ext.freeze` was called for the weight, which autocast has not cast. `COPIES`: the program may use the copies
# that `freeze` keeps; it is no CUDA graph, which would not notice a write to the weight.
TURNS, FROZEN, COPIES = 1, 2, 3


@functools.cache
def version() -> int:
    """Returns a digest of the sources that compiled programs depend on, 48 bits. PyTorch's caches on disk identify a
    program by its graph, which contains this number, so they do not return a program of other code."""
    package = Path(__file__).parents[1]
    others = "dispatch/frozen", "dispatch/ops", "epilogue/functions", "epilogue/fused", "epilogue/steps"
    files = *sorted(package.glob("compile/*.py")), *(package / f"{name}.py" for name in others)
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files))
    return int.from_bytes(digest.digest()[:6], "big")


def dims_of(numbers: Sequence[int]) -> int:
    """Returns the number of dimensions; a list of two dimensions, with all flags, has 13 numbers."""
    return 2 if len(numbers) <= 13 else 3


def flags_of(numbers: Sequence[int]) -> Sequence[int]:
    return numbers[4 * dims_of(numbers) + 2 :]


class Traced(AtenConv):
    """The three directions as these ops, with results in PyTorch's formats, and PyTorch's sum for the bias, which
    Inductor fuses with its neighbours."""

    __slots__ = ("numbers",)

    def __init__(self, numbers: Sequence[int]) -> None:
        super().__init__(arguments_of(numbers))
        self.numbers = numbers

    def forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        with _torch.AutoDispatchBelowAutograd():
            return forward(input, weight, bias, self.numbers, None)

    def gradients(self, grad_output: Tensor, input: Tensor, weight: Tensor, needs_grad: Sequence[bool]) -> Gradients:
        of_input = of_weight = None
        if needs_grad[0] or needs_grad[1]:
            with _torch.AutoDispatchBelowAutograd():
                of_input, of_weight = backward(grad_output, input, weight, self.numbers, None, list(needs_grad[:2]))
        return of_input, of_weight, self.grad_bias(grad_output) if needs_grad[2] else None


def arguments_of(numbers: Sequence[int]) -> tuple[Any, Any, Any, int, Any]:
    """Returns stride, padding, output_padding, groups and dilation."""
    d = dims_of(numbers)
    stride, padding, output_padding = tuple(numbers[:d]), tuple(numbers[d : 2 * d]), tuple(numbers[2 * d : 3 * d])
    return stride, padding, output_padding, numbers[3 * d], tuple(numbers[3 * d + 1 : 4 * d + 1])


def result_format(input: Tensor, weight: Tensor, numbers: Sequence[int]) -> bool:
    """Returns whether PyTorch's result is channels_last."""
    stride, _, output_padding, _, _ = arguments_of(numbers)
    return result_is_channels_last(
        input.shape, input.stride(), weight.shape, weight.stride(), input.dtype, stride, output_padding,
        cudnn_enabled(),
    )  # fmt: skip


def gradient_formats(input: Tensor, weight: Tensor, numbers: Sequence[int]) -> tuple[bool, bool]:
    """Returns whether PyTorch's gradients of input and weight are channels_last."""
    channels_last = result_format(input, weight, numbers)
    return channels_last, grad_weight_is_channels_last(channels_last, input.shape, input.stride())


def directions_now(input: Tensor, weight: Tensor, bias: Tensor | None, numbers: Sequence[int]) -> NativeConv | AtenConv:
    """Returns the implementation of the three directions under PyTorch's current switches."""
    if scopes.now().requested is not None:  # a context that is active at run time but was not active during tracing
        with flags():
            return directions_now(input, weight, bias, numbers)
    arguments = arguments_of(numbers)
    known = routing.known(input, weight, bias, arguments)
    if known is not None:
        return known
    decision = routing.route(input, weight, bias, *arguments, None, lowers=False, dims=dims_of(numbers))
    return AtenConv(arguments) if isinstance(decision, routing.Reason) else decision[3]


def run_forward(input, weight, bias, numbers, channels_last, steps: Sequence[Step] = ()) -> Tensor:
    """Implements the op, below autograd, for untraced tensors; with the steps of an epilogue (traced_epilogues.py)."""
    if channels_last is None:
        channels_last = result_format(input, weight, numbers)
    copies = None
    marks = flags_of(numbers)
    if marks:
        copies = frozen.find(weight) if COPIES in marks else None
        copies = None if copies is None else copies.cast(input.dtype)
        weight = weight.to(input.dtype) if copies is None else copies.weight
    directions = directions_now(input, weight, bias, numbers)
    if copies is None or not isinstance(directions, NativeConv):
        directions.count(True, False)
    elif directions.serves(input, weight, bias, 0):
        return formatted(copies.run(input, weight, bias, directions, steps), channels_last)
    result = directions.forward_then(input, weight, bias, steps) if steps else directions.forward(input, weight, bias)
    return formatted(result, channels_last)


def run_backward(grad_output, input, weight, numbers, channels_last, needs_grad) -> tuple[Tensor | None, ...]:
    """As `run_forward`, for those gradients of input and weight that `needs_grad` selects."""
    if channels_last is None:
        channels_last = gradient_formats(input, weight, numbers)
    directions = directions_now(input, weight, None, numbers)
    directions.count(False, True)
    of_input, of_weight, _ = directions.gradients(grad_output, input, weight, (*needs_grad, False))
    return (
        None if of_input is None else formatted(of_input, channels_last[0]),
        None if of_weight is None else formatted(of_weight, channels_last[1]),
    )


def formatted(result: Tensor, channels_last: bool) -> Tensor:
    """Converts the result to that format; no copy for results of convt_ext and for most of PyTorch's."""
    return result.contiguous(memory_format=memory_format(channels_last, result.dim() - 2))


def fake_forward(input, weight, bias, numbers, channels_last) -> Tensor:
    for size in weight.shape:
        if isinstance(size, torch.SymInt) and size.node.has_hint():
            int(size)  # makes it a constant
    if channels_last is None:
        channels_last = result_format(input, weight, numbers)
    return ops.empty(output_size(input.shape, weight.shape, *arguments_of(numbers)), input, channels_last)


def _fake_backward(grad_output, input, weight, numbers, channels_last, needs_grad) -> tuple[Tensor | None, ...]:
    if channels_last is None:
        channels_last = gradient_formats(input, weight, numbers)
    return tuple(
        ops.empty(one.shape, one, last) if needed else None
        for one, last, needed in zip((input, weight), channels_last, needs_grad, strict=True)
    )


def _record_forward(input, weight, bias, numbers, channels_last) -> Tensor:
    if only_runs(input, weight, bias):
        return run_forward(input, weight, bias, numbers, channels_last)
    autograd.refuse_tangents("conv_transpose2d", input, weight, bias)
    return autograd.forward(input, weight, bias, Traced(numbers))


def _record_backward(grad_output, input, weight, numbers, channels_last, needs_grad) -> tuple[Tensor | None, ...]:
    if only_runs(input, grad_output, weight):
        return run_backward(grad_output, input, weight, numbers, channels_last, needs_grad)
    autograd.refuse_tangents("conv_transpose2d_backward", grad_output, input, weight)
    directions = Traced(numbers)
    return (
        autograd.grad_input(grad_output, input, weight, directions) if needs_grad[0] else None,
        autograd.grad_weight(grad_output, input, weight, directions) if needs_grad[1] else None,
    )


def only_runs(input: Tensor, *others: Tensor | None) -> bool:
    """Returns whether nothing records or traces, as in a running compiled program; a second pass through the dispatcher
    would cost 5 us."""
    return (
        not (torch.is_grad_enabled() and _any_requires_grad(input, *others))
        and type(input) in routing.PLAIN
        and routing.on_gpu(input)
        and _num_dispatch_modes() == 0
        and not _transforms_active()
        and forward_ad._current_level < 0
    )


def _backward_flops(grad_output_shape, input_shape, weight_shape, numbers, channels_last, needs_grad, **kwargs) -> int:
    return sum(needs_grad) * ops.forward_flops(input_shape, weight_shape, out_shape=grad_output_shape)


_library = torch.library.Library("convt_ext", "FRAGMENT")


def define(name: str, schema: str, run, fake, record, flops) -> Any:
    """Defines one op: its implementation, fake kernel, autograd kernel and FLOP count."""
    _library.define(f"{name}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
    _library.impl(name, run, "CompositeExplicitAutograd")
    _library.impl(name, record, "Autograd")
    torch.library.register_fake(f"convt_ext::{name}", fake, lib=_library)
    packet = getattr(torch.ops.convt_ext, name)
    register_flop_formula(packet)(flops)
    return packet.default


forward = define(
    "conv_transpose2d", "(Tensor input, Tensor weight, Tensor? bias, int[] numbers, bool? channels_last) -> Tensor",
    run_forward, fake_forward, _record_forward, ops.forward_flops,
)  # fmt: skip
backward = define(
    "conv_transpose2d_backward",
    "(Tensor grad_output, Tensor input, Tensor weight, int[] numbers, bool[2]? channels_last, bool[2] wanted)"
    " -> (Tensor, Tensor)",
    run_backward, _fake_backward, _record_backward, _backward_flops,
)  # fmt: skip

"""Compares the alternatives for a transposed convolution and its following steps, in microseconds.

The cost of a pass over memory follows from its bytes, that of a layer from measured times, else from the planner's
estimates. Called by choice.py. Must not know graphs, and launches nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..dispatch import planner
from ..dispatch.geometry import output_size, result_is_channels_last
from ..dispatch.precision import cudnn_enabled
from ..epilogue.steps import ADD, CLAMP, DIVIDE, HAS_TENSOR, LEAKY_RELU, MULTIPLY, SUBTRACT
from ..tuning import benchmark, choices
from .mode import BARE, FUSED, ORIGINAL

# The factor by which convt_ext must be faster than the original: by the cost model, and by measured times. Times are
# measured on one layer with cold caches, where a gain of 3 % can be a loss inside of a program.
MARGIN, MARGIN_OF_MEASURED = 1.10, 1.05

# The share of the copy bandwidth that a pass of Triton reaches, the time of an empty kernel, and the factor by which
# convt_ext's pass for steps that no kernel fuses is slower (H200).
_RATE, _LAUNCH_US, _OWN_PASS = 0.75, 2.0, 1.15

# What fused steps add (H200): a share of the bare layer, and for a million results at least so many microseconds, of
# sums, products and clamps, and of functions and tensors.
_FUSED, _SIMPLE_US, _FUNCTION_US = 0.4, 0.7, 2.0


def margin(is_measured: bool) -> float:
    """Returns the factor by which convt_ext must be faster than the original."""
    return MARGIN_OF_MEASURED if is_measured else MARGIN


_ADDEND, _SCALE, _SHIFT, _SCALES, _SHIFTS, _RESULTS, _SLOPES, _FUNCTION, _LAST_SHIFT, _CLAMP, _LAST_SCALE = range(11)

# The places that a step can have in the program of a kernel, by operation and kind of operand. A kernel runs each place
# once and in this order (kernels/binding/epilogue.cpp).
_NUMBER, _CHANNEL, _RESULT, _OTHER = range(4)
_PLACES: dict[tuple[int, int], tuple[int, ...]] = {
    (ADD, _NUMBER): (_SHIFT, _LAST_SHIFT), (ADD, _CHANNEL): (_ADDEND, _SHIFTS), (ADD, _RESULT): (_RESULTS,),
    (SUBTRACT, _NUMBER): (_SHIFT, _LAST_SHIFT), (SUBTRACT, _CHANNEL): (_ADDEND, _SHIFTS),
    (SUBTRACT, _RESULT): (_RESULTS,), (MULTIPLY, _NUMBER): (_SCALE, _LAST_SCALE), (MULTIPLY, _CHANNEL): (_SCALES,),
    (DIVIDE, _NUMBER): (_SCALE, _LAST_SCALE), (CLAMP, _NUMBER): (_CLAMP,), (LEAKY_RELU, _NUMBER): (_FUNCTION,),
    (LEAKY_RELU, _CHANNEL): (_SLOPES,),
}  # fmt: skip


class Steps(NamedTuple):
    """Steps as the ops take them (`lists_of`), with the sizes of the tensors instead of the tensors."""

    operations: tuple[int, ...] = ()
    numbers: tuple[float, ...] = ()
    sizes: tuple[tuple[int, ...], ...] = ()
    are_computed: bool = False  # a kernel computes some of the tensors first, such as the factors of a BatchNorm

    def fit(self, family: str, result_size: Sequence[int]) -> bool:
        """Returns whether kernels of a family that fuses steps run all steps, so that no pass remains."""
        sizes, free = iter(self.sizes), 0
        for operation in self.operations:
            kind = _kind(next(sizes), result_size) if operation >= HAS_TENSOR else _NUMBER
            function = operation % HAS_TENSOR
            places = _PLACES.get((function, kind), (_FUNCTION,) if function > LEAKY_RELU else ())
            place = next((one for one in places if one >= free), None)
            if place is None or (place == _RESULTS and family == "window"):
                return False
            free = place + 1
        return True


def _kind(size: tuple[int, ...], result_size: Sequence[int]) -> int:
    padded = (1,) * (4 - len(size)) + size
    if padded in ((1, result_size[1], 1, 1), (1, 1, 1, 1)):
        return _CHANNEL
    return _RESULT if padded == tuple(result_size) else _OTHER


class Layer(NamedTuple):
    """A transposed convolution in its graph."""

    problem: planner.Problem  # in the strides of the graph, without a bias, which Inductor adds in a pass
    has_bias: bool = False  # the original needs that pass
    has_steps: bool = False  # pointwise operations follow that can be fused
    steps: Steps = Steps()  # what they would become
    is_absorbed: bool = False  # what reads the result can run the steps in its own kernel
    copies_input: bool = False  # in a channels_last network, the operand needs a copy
    copies_result: bool = False  # likewise the result


class Times(NamedTuple):
    """Times of the layer without other operations, in one layout."""

    ours_us: float  # convt_ext's op; infinite if no kernel can run it
    torch_us: float  # PyTorch's operator; infinite if unknown
    family: str  # the kernel's family if it fuses steps, else empty
    fused_us: float | None = None  # convt_ext's op with its steps, if measured
    is_measured: bool = False  # whether both times were measured


def turned(problem: planner.Problem) -> planner.Problem:
    """Returns the problem with an input in channels_last."""
    _, channels, height, width = problem.input_size
    strides = (channels * height * width, 1, channels * width, channels)
    channels_last = result_is_channels_last(
        problem.input_size, strides, problem.weight_size, problem.weight_stride, problem.dtype, problem.stride,
        problem.output_padding, cudnn_enabled(),
    )  # fmt: skip
    return problem._replace(input_stride=strides, channels_last=channels_last)


def known_choice(problem: planner.Problem, direction: int) -> choices.Choice:
    """Returns the choice of a benchmark or a tuning file, else that of the cost model."""
    find = choices.find if benchmark.is_enabled() else choices.of_files
    return find(problem, direction) or choices.estimated(problem, direction)


def known_times(problem: planner.Problem) -> Times:
    """Returns times of the forward pass, without a measurement."""
    choice = known_choice(problem, choices.FORWARD)
    torch_us = choice.torch_us or math.inf
    is_measured = choice.source != choices.ESTIMATED
    if choice.by_torch:  # convt_ext's op would run PyTorch's operator
        return Times(torch_us, torch_us, "", None, is_measured)
    answer = planner.plan(problem) or {}
    plan = answer["candidates"][choice.candidate] if choice.candidate else answer.get("plan", {})
    family = plan["family"] if plan.get("fuses") else ""
    return Times(choice.ours_us, torch_us, family, None, is_measured)


def of_alternatives(layer: Layer, times: Times, channels_last: bool) -> dict[str, float]:
    """Returns the time of each alternative, including the passes around the layer; FUSED only if it saves a pass.

    `times` are those of the network's layout, which may differ from the strides in the graph.
    """
    problem = layer.problem
    itemsize = problem.dtype.itemsize
    result_size = output_size(problem.input_size, problem.weight_size, *problem[5:10])
    result_bytes, operand_bytes = itemsize * math.prod(result_size), itemsize * sum(map(math.prod, layer.steps.sizes))
    pass_us = _LAUNCH_US + _moved_us(problem, 2 * result_bytes + operand_bytes)
    before_us = behind_us = 0.0
    if channels_last and layer.copies_input:
        before_us = _LAUNCH_US + _moved_us(problem, 2 * itemsize * math.prod(problem.input_size))
    if channels_last and layer.copies_result and not layer.is_absorbed:
        behind_us = _LAUNCH_US + _moved_us(problem, 2 * result_bytes)
    steps_us = pass_us if layer.has_steps and not layer.is_absorbed else 0.0
    bias_us = pass_us if layer.has_bias and not layer.is_absorbed else 0.0
    found = {
        BARE: before_us + times.ours_us + (steps_us or behind_us),
        ORIGINAL: before_us + times.torch_us + (steps_us or bias_us or behind_us),
    }
    if steps_us:
        fused_us = times.fused_us
        if fused_us is None and times.family and layer.steps.fit(times.family, result_size):
            _, num_sms, _, _, mhz, _ = problem.device
            are_simple = all(operation <= CLAMP for operation in layer.steps.operations)  # with numbers
            of_steps = _SIMPLE_US if are_simple else _FUNCTION_US
            least_us = of_steps * 1e-6 * math.prod(result_size) * planner.H200[1] * planner.H200[4] / (num_sms * mhz)
            fused_us = times.ours_us + max(_FUSED * times.ours_us, least_us) + _moved_us(problem, operand_bytes)
        elif fused_us is None:
            fused_us = times.ours_us + _OWN_PASS * pass_us
        computed_us = _LAUNCH_US if layer.steps.are_computed else 0.0
        found[FUSED] = before_us + computed_us + fused_us + behind_us
    return found


def _moved_us(problem: planner.Problem, num_bytes: float) -> float:
    return num_bytes / (_RATE * 1e3 * problem.device[5])

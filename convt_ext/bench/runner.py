"""Runs the benchmark: every layer in every precision, layout and direction, ours beside PyTorch's.

Called by command.py and by tests, which give it a CPU device and a timer of their own. Holds the tensors of one layer
and dtype at a time. Knows nothing of files or tables.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

import convt_ext
from convt_ext import planner, routing
from convt_ext.bench import floors
from convt_ext.bench.layers import Layer
from convt_ext.bench.modes import Mode, cudnn_benchmark, torch_switches
from convt_ext.bench.operands import Operands, Reference, make_operands, make_reference, needed_bytes, torch_call
from convt_ext.bench.timing import Timer
from convt_ext.tuning.verdicts import FORWARD, GRAD_INPUT, GRAD_WEIGHT

Row = dict[str, Any]

_NUMBERS = {"fwd": FORWARD, "dx": GRAD_INPUT, "dw": GRAD_WEIGHT}


class DeviceLostError(RuntimeError):
    """The GPU answers nothing any more (an illegal access, say): no later measurement would mean anything."""


@dataclasses.dataclass(frozen=True)
class Skipped:
    """Rows that were not measured, and why."""

    layer: str
    reason: str
    num_rows: int


@dataclasses.dataclass(frozen=True)
class Settings:
    """What to measure, and on which device."""

    layers: tuple[Layer, ...]
    modes: tuple[Mode, ...]
    directions: tuple[str, ...]
    layouts: tuple[str, ...]
    device: torch.device
    with_torch: bool = True

    @property
    def num_rows(self) -> int:
        return len(self.layers) * len(self.modes) * len(self.directions) * len(self.layouts)


def run(
    settings: Settings,
    timer: Timer,
    rates: floors.Rates | None,
    free_bytes: Callable[[], int | None],
) -> Iterator[Row | Skipped]:
    """Yields a row per measurement, or one ``Skipped`` for a layer and dtype that does not fit into memory.

    Args:
        settings: what to measure.
        timer: measures one call.
        rates: ceilings of the GPU, None when unknown (``floor_us`` is then null).
        free_bytes: memory left on the device, None when unlimited.

    Raises:
        DeviceLostError: the GPU stopped answering.
    """
    by_dtype = {mode.dtype: [m for m in settings.modes if m.dtype is mode.dtype] for mode in settings.modes}
    with cudnn_benchmark():
        for layer, (dtype, modes) in itertools.product(settings.layers, by_dtype.items()):
            needed, free = needed_bytes(layer, dtype.itemsize, settings.directions), free_bytes()
            if free is not None and needed > free:
                reason = f"needs about {needed / 2**30:.1f} GiB of GPU memory, {free / 2**30:.1f} GiB are free"
                yield Skipped(layer.name, reason, len(modes) * len(settings.directions) * len(settings.layouts))
                continue
            yield from _run_dtype(settings, layer, modes, timer, rates)


def _run_dtype(
    settings: Settings, layer: Layer, modes: list[Mode], timer: Timer, rates: floors.Rates | None
) -> Iterator[Row]:
    gradients = any(direction != "fwd" for direction in settings.directions)
    operands = make_operands(layer, modes[0].dtype, settings.device, gradients=gradients)
    for direction in settings.directions:
        reference = make_reference(layer, direction, operands)
        for layout in settings.layouts:
            arranged = operands.in_layout(layout)
            for mode in modes:
                row = _empty_row(layer, direction, mode, layout, rates)
                with torch_switches(mode):
                    _measure(row, settings, layer, mode, arranged, reference, timer)
                yield row


def _empty_row(layer: Layer, direction: str, mode: Mode, layout: str, rates: floors.Rates | None) -> Row:
    floor = None
    if rates is not None:
        floor = floors.floor_us(layer, direction, mode.name, mode.itemsize, layout, rates)
    return {
        "layer": layer.name,
        **layer.parameters(),
        "direction": direction,
        "precision": mode.name,
        "layout": layout,
        "ours_us": None,
        "torch_us": None,
        "floor_us": floor,
        "kernel": None,
        "error": None,
        "torch_error": None,
        "ours_peak_bytes": None,
        "torch_peak_bytes": None,
    }


def _measure(
    row: Row,
    settings: Settings,
    layer: Layer,
    mode: Mode,
    operands: Operands,
    reference: Reference,
    timer: Timer,
) -> None:
    """Fills the row; an exception becomes the row's ``failure``, so that one bad layer does not end the run."""
    direction = row["direction"]
    theirs = torch_call(layer, direction, operands)
    failures: list[str] = []

    def guarded(side: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            failures.append(f"{side}: {type(error).__name__}: {error}")
            _require_device(settings.device, failures[-1])

    calls: dict[str, Callable[[], torch.Tensor]] = {}

    def try_torch() -> None:
        row["torch_error"] = _finite_error(reference, theirs())
        calls["torch"] = theirs

    def try_ours() -> None:
        ours = our_call(layer, direction, mode, operands)
        row["error"] = _finite_error(reference, ours())
        row["kernel"] = kernel_of(layer, direction, mode, operands)  # which the first call may have raced for
        calls["ours"] = ours

    def time_by_turns() -> None:
        for side, us in zip(calls, timer.times_us(list(calls.values())), strict=True):
            row[f"{side}_us"] = us
        for side, call in calls.items():
            row[f"{side}_peak_bytes"] = timer.peak_bytes(call)

    if settings.with_torch:
        guarded("torch", try_torch)
    guarded("ours", try_ours)
    guarded(" and ".join(calls), time_by_turns)
    if failures:
        row["failure"] = "; ".join(failures)


def our_call(layer: Layer, direction: str, mode: Mode, operands: Operands) -> Callable[[], torch.Tensor]:
    """Our forward through the public function; a gradient as a backward pass computes it, without autograd's part."""
    input, weight, bias, grad_output = operands.input, operands.weight, operands.bias, operands.grad_output
    if direction == "fwd":
        arguments = layer.arguments
        return lambda: convt_ext.conv_transpose2d(input, weight, bias, **arguments, precision=mode.ours)
    decision = _decision(layer, mode, operands)
    if isinstance(decision, routing.Reason):
        return torch_call(layer, direction, operands)
    assert grad_output is not None
    directions = decision[3]
    compute = directions.grad_input if direction == "dx" else directions.grad_weight
    return lambda: compute(grad_output, input, weight)


def kernel_of(layer: Layer, direction: str, mode: Mode, operands: Operands) -> str:
    """The kernel that serves a call, ``torch`` where PyTorch's operator does."""
    decision = _decision(layer, mode, operands)
    if isinstance(decision, routing.Reason):
        return "torch"
    input, weight, bias, directions = decision
    number = _NUMBERS[direction]
    if directions.left_to_torch(number):
        return "torch"
    device = planner.device_numbers(input.get_device())
    problem = planner.Problem.of_call(input, weight, bias is not None, directions.arguments, device)
    answer = planner.plan(problem, number)
    if answer is None:
        raise RuntimeError("no plan for a call that convt_ext serves")
    return answer["candidates"][directions.candidates[number]]["kernel"]


def _decision(layer: Layer, mode: Mode, operands: Operands) -> Any:
    """routing.route() of the layer's forward call, which decides for its gradients too."""
    tensors = (operands.input, operands.weight, operands.bias)
    return routing.route(*tensors, **layer.arguments, precision=mode.ours)


def _finite_error(reference: Reference, result: torch.Tensor) -> float:
    error = reference.relative_error(result)
    if not math.isfinite(error):
        raise ArithmeticError(f"the result is not finite or far off: relative error {error}")
    return error


def _require_device(device: torch.device, failure: str) -> None:
    if device.type != "cuda":
        return
    try:
        torch.cuda.synchronize(device)
    except RuntimeError as error:
        raise DeviceLostError(f"the GPU stopped answering after {failure}") from error

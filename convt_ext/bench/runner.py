"""Runs the benchmark: every layer in every precision, layout and direction, with convt_ext and PyTorch.

Called by command.py and by tests, which pass a CPU device and their own timer. Holds the tensors of one layer and dtype
at a time. Must not know files or tables.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

import convt_ext
from convt_ext.bench import floors
from convt_ext.bench.layers import Layer
from convt_ext.bench.modes import Mode, cudnn_benchmark, torch_switches
from convt_ext.bench.operands import (
    Operands,
    Reference,
    layouts_of,
    make_operands,
    make_reference,
    needed_bytes,
    torch_call,
)
from convt_ext.bench.timing import Timer
from convt_ext.dispatch import planner, routing
from convt_ext.tuning.choices import FORWARD, GRAD_INPUT, GRAD_WEIGHT

Row = dict[str, Any]

NUMBERS = {"fwd": FORWARD, "dx": GRAD_INPUT, "dw": GRAD_WEIGHT}

_RETIMED_ABOVE = 1.03  # time of convt_ext over PyTorch's


class DeviceLostError(RuntimeError):
    """The GPU has stopped responding (after an illegal access, for example); later measurements would be invalid."""


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
    with_errors: bool = True
    with_first_calls: bool = True  # the cost of a shape's first call

    @property
    def num_rows(self) -> int:
        return len(self.modes) * sum(map(self.num_calls, self.layers))

    def num_calls(self, layer: Layer) -> int:
        """Returns the number of a layer's rows in one mode."""
        return len(self.directions) * len(layouts_of(layer, self.layouts))


def run(
    settings: Settings, timer: Timer, rates: floors.Rates | None, free_bytes: Callable[[], int | None]
) -> Iterator[Row | Skipped]:
    """Yields a row per measurement, or one ``Skipped`` for a layer and dtype that does not fit into memory.

    Args:
        rates: ceilings of the GPU, None when unknown (``floor_us`` is then null).
        free_bytes: memory left on the device, None when unlimited.
    """
    by_dtype = {mode.dtype: [m for m in settings.modes if m.dtype is mode.dtype] for mode in settings.modes}
    with cudnn_benchmark():
        for layer, (dtype, modes) in itertools.product(settings.layers, by_dtype.items()):
            needed, free = needed_bytes(layer, dtype.itemsize, settings.directions), free_bytes()
            if free is not None and needed > free:
                reason = f"needs about {needed / 2**30:.1f} GiB of GPU memory, {free / 2**30:.1f} GiB are free"
                yield Skipped(layer.name, reason, len(modes) * settings.num_calls(layer))
                continue
            yield from _run_dtype(settings, layer, modes, timer, rates)


def _run_dtype(
    settings: Settings, layer: Layer, modes: list[Mode], timer: Timer, rates: floors.Rates | None
) -> Iterator[Row]:
    gradients = any(direction != "fwd" for direction in settings.directions)
    operands = make_operands(layer, modes[0].dtype, settings.device, gradients=gradients)
    for direction in settings.directions:
        reference = make_reference(layer, direction, operands) if settings.with_errors else None
        for layout in layouts_of(layer, settings.layouts):
            arranged = operands.in_layout(layout)
            for mode in modes:
                row = empty_row(layer, direction, mode, layout, rates)
                with torch_switches(mode):
                    _measure(row, settings, layer, mode, arranged, reference, timer)
                yield row


def empty_row(layer: Layer, direction: str, mode: Mode, layout: str, rates: floors.Rates | None) -> Row:
    """Returns the row of a call with only its floor."""
    floor = None if rates is None else floors.floor_us(layer, direction, mode.name, mode.dtype.itemsize, layout, rates)
    what = {"layer": layer.name, **layer.parameters(), "direction": direction, "precision": mode.name, "layout": layout}
    measured = "kernel", "chosen", "error", "torch_error", "ours_peak_bytes", "torch_peak_bytes", "first_call_ms"
    times = {"ours_us": None, "torch_us": None, "floor_us": floor}
    return {**what, **times, **dict.fromkeys(measured), "retimed": False}


def _measure(
    row: Row, settings: Settings, layer: Layer, mode: Mode, operands: Operands, reference: Reference | None,
    timer: Timer,
) -> None:  # fmt: skip
    """Fills the row; an exception becomes the row's ``failure``, so that one bad layer does not end the run."""
    direction = row["direction"]
    theirs = torch_call(layer, direction, operands)
    failures: list[str] = []

    def guarded(side: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            failures.append(f"{side}: {type(error).__name__}: {error}")
            try:
                _synchronize(settings.device)
            except RuntimeError as lost:
                raise DeviceLostError(f"the GPU stopped responding after {failures[-1]}") from lost

    calls: dict[str, Callable[[], torch.Tensor]] = {}
    first_ms: dict[str, float] = {}

    def try_ours() -> None:
        # The kernel is read after the first call, because its benchmark may choose another one.
        try:
            result, first_ms["ours"] = timed(our_call(layer, direction, mode, operands), settings.device)
        finally:
            row["kernel"] = kernel_of(layer, direction, mode, operands)
            row["chosen"] = "torch" if row["kernel"] == "torch" else "ours"
        row["error"] = _finite_error(reference, result)
        calls["ours"] = our_call(layer, direction, mode, operands)

    def try_torch() -> None:
        row["torch_error"] = _finite_error(reference, theirs())  # cuDNN searches in it
        first_ms["torch"] = timed(theirs, settings.device)[1]
        calls["torch"] = theirs

    def time_by_turns() -> None:
        _time(row, calls, timer)
        for side, call in calls.items():
            row[f"{side}_peak_bytes"] = timer.peak_bytes(call)

    # PyTorch first: the benchmark of convt_ext then times the algorithm that cuDNN has found for this thread.
    guarded("torch", try_torch)
    guarded("ours", try_ours)
    calls = {side: calls[side] for side in ("ours", "torch") if side in calls}
    if settings.with_first_calls and len(first_ms) == 2:
        row["first_call_ms"] = first_ms["ours"] - first_ms["torch"]
    guarded(" and ".join(calls), time_by_turns)
    if failures:
        row["failure"] = "; ".join(failures)


def timed(call: Callable[[], torch.Tensor], device: torch.device) -> tuple[torch.Tensor, float]:
    """Returns the result of a shape's first call and its wall time in milliseconds, including the device's.

    convt_ext plans in it, and with `--race on` benchmarks the shape. cuDNN caches the algorithm that it finds in
    PyTorch's first call for that thread only, so all calls are made in one thread.
    """
    _synchronize(device)
    start = time.perf_counter()
    result = call()
    _synchronize(device)
    return result, 1e3 * (time.perf_counter() - start)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _time(row: Row, calls: dict[str, Callable[[], torch.Tensor]], timer: Timer) -> None:
    """Times both sides. If convt_ext seems slower, times both again and uses the better time of each side.

    A slower time is often a momentary disturbance; a slower kernel is slower again.
    """

    def times() -> dict[str, float]:
        return dict(zip(calls, timer.times_us(list(calls.values())), strict=True))

    found = times()
    if row["chosen"] == "ours" and len(found) == 2 and found["ours"] > _RETIMED_ABOVE * found["torch"]:
        row["retimed"] = True
        found = {side: min(us, found[side]) for side, us in times().items()}
    for side, us in found.items():
        row[f"{side}_us"] = us


def our_call(layer: Layer, direction: str, mode: Mode, operands: Operands) -> Callable[[], torch.Tensor]:
    """Returns a call of convt_ext: forward by the public function, a gradient as in a backward, without autograd."""
    input, weight, bias, grad_output = operands.input, operands.weight, operands.bias, operands.grad_output
    if direction == "fwd":
        function = getattr(convt_ext, f"conv_transpose{layer.dims}d")
        arguments = {**layer.arguments, **mode.keywords}
        return lambda: function(input, weight, bias, **arguments)
    decision = _decision(layer, mode, operands)
    if isinstance(decision, routing.Reason):
        return torch_call(layer, direction, operands)
    assert grad_output is not None
    directions = decision[3]
    compute = directions.grad_input if direction == "dx" else directions.grad_weight
    if layer.dims > 1:
        return lambda: compute(grad_output, input, weight)
    of_image = grad_output.unsqueeze(2), decision[0], decision[1]
    return lambda: compute(*of_image).squeeze(2)


def kernel_of(layer: Layer, direction: str, mode: Mode, operands: Operands) -> str:
    """Returns the kernel that runs a call, or ``torch`` for PyTorch's operator."""
    decision = _decision(layer, mode, operands)
    if isinstance(decision, routing.Reason) or decision[3].left_to_torch(NUMBERS[direction]):
        return "torch"
    return plan_of(decision, direction, planner.device_numbers(operands.input.get_device()))["kernel"]


def plan_of(decision: Any, direction: str, device: Sequence[int]) -> dict[str, Any]:
    """Returns the plan of one direction of a call that convt_ext runs, on a GPU with these numbers."""
    input, weight, bias, directions = decision
    number = NUMBERS[direction]
    problem = planner.Problem.of_call(input, weight, bias is not None, directions.arguments, device)
    answer = planner.plan(problem, number)
    if answer is None:
        raise RuntimeError("no plan for a call that convt_ext runs")
    return answer["candidates"][directions.candidates[number]]


def _decision(layer: Layer, mode: Mode, operands: Operands) -> Any:
    """Returns routing.route() of the layer's forward call, which also decides its gradients."""
    tensors = (operands.input, operands.weight, operands.bias)
    return routing.route(*tensors, **layer.arguments, requested=mode.requested, dims=layer.dims)


def _finite_error(reference: Reference | None, result: torch.Tensor) -> float | None:
    if reference is None:
        return None
    error = reference.relative_error(result)
    if not math.isfinite(error):
        raise ArithmeticError(f"the result is not finite or far off: relative error {error}")
    return error

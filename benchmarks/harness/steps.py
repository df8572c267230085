"""Measures whole programs, PyTorch's model and its converted copy: wall time of a step, including the device's.

Called by command.py for ``--steps``. A step is an iteration of a user's loop: forward pass, loss, backward pass
and SGD in training, the forward pass in inference. Loops of steps alternate, because clocks and temperature drift; each
starts and ends with a device synchronization, and there is none inside. The result is the median loop. program_rows.py
uses the training step and the loops for compiled programs.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import convt_ext
from convt_ext.bench.modes import cudnn_benchmark
from convt_ext.bench.operands import free_memory
from convt_ext.bench.runner import Row
from harness.programs import Program

Step = Callable[[], torch.Tensor]

# float32 with PyTorch's default switches (TF32 in convolutions), and bfloat16 under autocast.
DTYPES = {"float32": None, "bfloat16": torch.bfloat16}

LAYERS = (convt_ext.ConvTranspose2d, convt_ext.ConvTranspose3d)  # that conversion makes

_MEASURED = ("converted", "ours_ms", "torch_ms", "ours_range_ms", "torch_range_ms", "steps")  # columns of a row

_WARM_UP = 5  # steps for algorithm search and memory allocation
_LOOPS = 8  # loops of each side; even, so that each side runs first equally often
_MIN_STEPS, _MAX_STEPS = 3, 500  # per loop
_AGREEMENT = 0.05  # relative difference of the first steps; rounding operands to bfloat16 is 0.004


def run(
    programs: Sequence[Program],
    device: torch.device,
    budget_ms: float,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Row]:
    """Yields a row for each program and dtype; `budget_ms` is the target time of a loop of steps."""
    with cudnn_benchmark():
        for program in programs:
            for dtype in DTYPES:
                row = row_of(program, program.mode, dtype, _MEASURED)
                try:
                    _measure(row, program, DTYPES[dtype], device, budget_ms, clock)
                except Exception as error:
                    row["failure"] = f"{type(error).__name__}: {error}"
                yield row
                free_memory(device)


def num_rows(programs: Sequence[Program]) -> int:
    return len(programs) * len(DTYPES)


def row_of(program: Any, mode: str, dtype: str, measured: Sequence[str]) -> Row:
    inputs = inputs_of(program)
    row = {"program": program.name, "dtype": dtype, "batch": program.batch, "mode": mode, "inputs": inputs}
    return {**row, **dict.fromkeys(measured)}


def inputs_of(program: Any) -> str:
    return ", ".join("x".join(map(str, shape)) for shape in program.inputs)


def _measure(
    row: Row, program: Program, lowered: torch.dtype | None, device: torch.device, budget_ms: float,
    clock: Callable[[], float],
) -> None:  # fmt: skip
    steps, row["converted"] = make_steps(program, lowered, device)
    ours, theirs = (step() for step in steps)
    difference = float((ours - theirs).norm() / theirs.norm())
    if not difference <= _AGREEMENT:  # also for NaN
        raise ArithmeticError(f"the first steps' results differ by {difference}, relative to their norm")

    row["steps"], times = times_ms(steps, budget_ms, synchronizer(device), clock)
    for side, of_side in zip(("ours", "torch"), times, strict=True):
        row[f"{side}_ms"] = statistics.median(of_side)
        row[f"{side}_range_ms"] = [min(of_side), max(of_side)]


def make_steps(program: Program, lowered: torch.dtype | None, device: torch.device) -> tuple[list[Step], int]:
    """Returns a step of the converted copy and one of the model, with equal weights, and the number of converted
    layers."""
    model, inputs, target = make_model(program, device)
    converted = convt_ext.convert(copy.deepcopy(model))
    number = sum(isinstance(module, LAYERS) for module in converted.modules())
    models = (converted, model)
    if program.mode == "infer":
        return [_inference_step(one, inputs, lowered) for one in models], number
    return [training_step(one, inputs, target, lowered) for one in models], number


def make_model(program: Program, device: torch.device) -> tuple[nn.Module, list[torch.Tensor], torch.Tensor]:
    """Makes PyTorch's model, its inputs and a target for its result, with the same numbers in each call."""
    torch.manual_seed(0)
    model = program.make_model().to(device).train(program.mode == "train")
    inputs = [torch.randn(shape, device=device) for shape in program.inputs]
    with torch.no_grad():
        target = torch.rand_like(model(*inputs))
    return model, inputs, target


def training_step(
    model: nn.Module, inputs: Sequence[torch.Tensor], target: torch.Tensor, lowered: torch.dtype | None
) -> Step:
    """Returns a step: forward pass, loss, backward pass and SGD; under autocast to `lowered` if given."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast(target.device.type, lowered, enabled=lowered is not None):
            loss = F.mse_loss(model(*inputs), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def _inference_step(model: nn.Module, inputs: list[torch.Tensor], lowered: torch.dtype | None) -> Step:
    def step() -> torch.Tensor:
        with torch.no_grad(), torch.autocast(inputs[0].device.type, lowered, enabled=lowered is not None):
            return model(*inputs)

    return step


def times_ms(
    steps: Sequence[Step], budget_ms: float, synchronize: Callable[[], None], clock: Callable[[], float]
) -> tuple[int, list[list[float]]]:
    """Returns the number of steps per loop, and the time of a step in each loop, for each side."""

    def loop(step: Step, number: int) -> float:
        synchronize()
        start = clock()
        for _ in range(number):
            step()
        synchronize()
        return 1e3 * (clock() - start) / number

    for step in steps:
        loop(step, _WARM_UP)
    estimate = max(loop(step, _WARM_UP) for step in steps)
    number = max(_MIN_STEPS, min(_MAX_STEPS, int(budget_ms / max(estimate, 1e-3))))
    times: list[list[float]] = [[] for _ in steps]
    for turn in range(_LOOPS):
        for index in range(len(steps)) if turn % 2 == 0 else reversed(range(len(steps))):
            times[index].append(loop(steps[index], number))
    return number, times


def synchronizer(device: torch.device) -> Callable[[], None]:
    return partial(torch.cuda.synchronize, device) if device.type == "cuda" else lambda: None

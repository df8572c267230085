"""Measures the programs of ``--programs``: converted models and PyTorch's, eager and compiled.

In mode ``eager`` the model is converted with ``fuse=True``, after tracing unless it is an ``nn.Sequential``; in
``compiled`` both models are compiled with ``torch.compile``, and conversion does not fuse; ``train_compiled`` trains
the networks of steps.py that way. Measures the GPU time of calls, alternately, and for training steps also wall time.
Records the choice for each layer of a converted compiled program, and the number of kernels. Called by command.py;
program_sets.py lists the programs.
"""

from __future__ import annotations

import copy
import logging
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn

import convt_ext
from convt_ext.bench.layers import select_named
from convt_ext.bench.modes import cudnn_benchmark, without_cudnn
from convt_ext.bench.operands import free_memory, spread
from convt_ext.bench.runner import Row
from convt_ext.bench.timing import Timer
from convt_ext.tuning import benchmark
from harness import program_sets, steps
from harness.layer_programs import layer_of
from harness.program_sets import AnyProgram
from harness.programs import Program

DTYPES = tuple(steps.DTYPES)  # float32 uses TF32 if PyTorch's switches allow it

# The measured columns of a row.
_MEASURED = (
    *("ours_us", "torch_us", "bare_us", "ours_wall_us", "torch_wall_us", "error", "torch_error", "choices"),
    *("ours_kernels", "torch_kernels", "ours_first_s", "torch_first_s"),
)

_REFERENCE_IMAGES = 4  # images of a batch that are compared with float64
_AGREEMENT = 0.05  # the largest error relative to the largest magnitude; twice PyTorch's error if that is more


class Case(NamedTuple):
    program: AnyProgram
    dtype: str
    mode: str


def select_cases(patterns: Sequence[str], modes: Sequence[str]) -> list[Case]:
    """Returns the rows of the programs with a name that matches any pattern, or in a set of that name, mode by mode.

    Raises:
        ValueError: a pattern matches no program of these modes.
    """
    of_modes = {mode: programs for mode, programs in program_sets.MODES.items() if mode in modes}
    everything = list(dict.fromkeys(program for programs in of_modes.values() for program in programs))
    names = [name for pattern in patterns or ["all"] for name in program_sets.names_of(pattern)]
    chosen = select_named(everything, names, "program")
    return [
        Case(program, dtype, mode)
        for mode, programs in of_modes.items()
        for program in programs
        if program in chosen
        for dtype in DTYPES
    ]


def run(
    cases: Sequence[Case],
    device: torch.device,
    timer: Timer,
    budget_ms: float,
    clock: Callable[[], float] = time.perf_counter,
    benchmarks: bool = True,
) -> Iterator[Row]:
    """Yields a row for each case.

    Args:
        budget_ms: target time of a loop of training steps.
        benchmarks: whether cuDNN tries its algorithms.
    """
    with cudnn_benchmark(benchmarks):
        for case in cases:
            row = steps.row_of(case.program, case.mode, case.dtype, _MEASURED) | {"choices": []}
            try:
                # Compiled programs benchmark as for a user; eager ones benchmark in first calls.
                with benchmark.forced(benchmarks if case.mode == "eager" else None):
                    if case.mode == "train_compiled":
                        _measure_step(row, case, device, timer, budget_ms, clock)
                    else:
                        _measure(row, case, device, timer, clock)
            except Exception as error:
                row["failure"] = f"{type(error).__name__}: {error}"
            yield row
            torch.compiler.reset()
            free_memory(device)


@contextmanager
def _logged_choices(row: Row) -> Iterator[None]:
    """Records the choices for the layers of converted compiled programs, as compile/choice.py logs them."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            row["choices"].append(record.getMessage())

    logger, handler = logging.getLogger("convt_ext.compile.choice"), Handler(logging.INFO)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@torch.no_grad()
def _measure(row: Row, case: Case, device: torch.device, timer: Timer, clock: Callable[[], float]) -> None:
    program, dtype = case.program, getattr(torch, case.dtype)
    torch.manual_seed(0)
    model = program.make_model().eval().to(device, dtype)
    inputs = [torch.randn(shape, dtype=dtype, device=device) for shape in program.inputs]
    images = torch.tensor(spread(program.batch, _REFERENCE_IMAGES), device=device)
    with without_cudnn():
        reference = copy.deepcopy(model).double()(*(given[images].double() for given in inputs))

    layer = layer_of(model)
    bare: nn.Module | None = None if layer is None else convt_ext.convert(copy.deepcopy(layer))
    ours = _converted(model, case.mode)
    if case.mode == "compiled":
        ours, model, bare = _compiled(ours), _compiled(model), bare and _compiled(bare)
    # PyTorch first: the benchmark in convt_ext's first call then times the algorithm that cuDNN has found.
    theirs, row["torch_first_s"] = _first(lambda: model(*inputs), device, clock)
    with _logged_choices(row):
        found, row["ours_first_s"] = _first(lambda: ours(*inputs), device, clock)
    _compare(row, found[images], theirs[images], reference)
    del found, theirs
    calls = [lambda: ours(*inputs), lambda: model(*inputs)]
    row["ours_kernels"], row["torch_kernels"] = (timer.num_kernels(call) for call in calls)
    if bare is None:
        row["ours_us"], row["torch_us"] = timer.times_us(calls)
    else:
        row["ours_us"], row["torch_us"], row["bare_us"] = timer.times_us([*calls, lambda: bare(inputs[0])])


def _converted(model: nn.Module, mode: str) -> nn.Module:
    """Returns the converted copy: fused by `convert` in eager mode, else by the compiler's pass."""
    ours = copy.deepcopy(model)
    if mode == "eager" and not isinstance(ours, nn.Sequential):
        ours = torch.fx.symbolic_trace(ours)
    return convt_ext.convert(ours, fuse=mode == "eager")


# The method `compile` of an nn.Sequential would compile each of its modules separately.
def _compiled(model: nn.Module) -> Any:
    return torch.compile(model, dynamic=False)


def _first(call: Callable[[], Any], device: torch.device, clock: Callable[[], float]) -> tuple[Any, float]:
    """Returns the result of the first call and its seconds, mostly compilation."""
    start = clock()
    result = call()
    steps.synchronizer(device)()
    return result, clock() - start


def _measure_step(
    row: Row, case: Case, device: torch.device, timer: Timer, budget_ms: float, clock: Callable[[], float]
) -> None:
    assert isinstance(case.program, Program)
    model, inputs, target = steps.make_model(case.program, device)
    with without_cudnn():
        exact = copy.deepcopy(model).double()
        steps.training_step(exact, [given.double() for given in inputs], target.double(), None)()
    reference = _gradients(exact)
    del exact

    ours = _converted(model, case.mode)
    ours, model = map(_compiled, (ours, model))
    ours_step, torch_step = (
        steps.training_step(module, inputs, target, steps.DTYPES[case.dtype]) for module in (ours, model)
    )
    _, row["torch_first_s"] = _first(torch_step, device, clock)
    with _logged_choices(row):
        _, row["ours_first_s"] = _first(ours_step, device, clock)
    _compare(row, _gradients(ours), _gradients(model), reference)
    both = [ours_step, torch_step]
    row["ours_kernels"], row["torch_kernels"] = (timer.num_kernels(step) for step in both)
    row["ours_us"], row["torch_us"] = timer.times_us(both)
    _, times = steps.times_ms(both, budget_ms, steps.synchronizer(device), clock)
    row["ours_wall_us"], row["torch_wall_us"] = (1e3 * statistics.median(of_side) for of_side in times)


def _gradients(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


def _compare(row: Row, ours: torch.Tensor, theirs: torch.Tensor, reference: torch.Tensor) -> None:
    """Records the largest errors relative to the largest magnitude of the reference.

    Raises:
        ArithmeticError: the error of convt_ext is too large, or a result is not finite.
    """
    scale = reference.abs().max()
    error, torch_error = (float((one.double() - reference).abs().max() / scale) for one in (ours, theirs))
    if not error <= max(_AGREEMENT, 2 * torch_error):  # also for NaN
        raise ArithmeticError(f"the largest error is {error} of the largest result, PyTorch's {torch_error}")
    row["error"], row["torch_error"] = error, torch_error

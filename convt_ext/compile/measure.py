"""Times a layer on the GPU while a program is compiled, and benchmarks its directions when the program is loaded.

Called if `torch.backends.cudnn.benchmark` requests measurements: `times` by choice.py for convt_ext's op, with and
without steps, and PyTorch's operator; `choose` by compiled programs when they are loaded, also from a cache on disk
(inductor.py writes these calls), and by choice.py for layers that train. Eager calls are benchmarked after some hundred
calls, but a compiled program usually runs often, and a CUDA graph keeps the choices of its first run. Operands are
random, of the layer's sizes. The benchmark of eager calls selects the plan and stores its choice, so the compiled
program runs the plan that was timed here.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..dispatch import ops, planner
from ..dispatch.auto_dispatch import AutoDispatch
from ..dispatch.directions import NativeConv, torch_forward
from ..dispatch.geometry import memory_format, output_size
from ..environment._torch import disable_current_modes
from ..tuning import benchmark
from ..tuning.choices import FORWARD, find, remember
from ..tuning.gpu_clock import GpuClock
from . import traced_ops
from .costs import Steps, Times, known_times

_ROUNDS = 11


_known: dict[Hashable, Times] = {}


def is_possible(device: torch.device) -> bool:
    """Returns whether PyTorch's switches request measurements, and the device is a GPU without an active capture."""
    return benchmark.is_enabled() and device.type == "cuda" and not torch.cuda.is_current_stream_capturing()


def times(problem: planner.Problem, has_bias: bool, steps: Steps, device: torch.device) -> Times:
    """Returns cached times of a layer in the layout of the problem, which has no bias; those of the cost model if it
    cannot be measured."""
    key = problem, has_bias, steps, device
    if key not in _known:
        try:
            with torch.no_grad(), disable_current_modes():
                _known[key] = _measured(problem, has_bias, steps, device)
        except RuntimeError:  # memory is short, above all: another program may find more
            return known_times(problem)
    return _known[key]


def random_tensor(
    size: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: torch.device, generator: torch.Generator
) -> Tensor:
    """Returns an operand with numbers from -0.5 to 0.5."""
    empty = torch.empty_strided(size, strides, dtype=dtype, device=device)
    return empty.uniform_(-0.5, 0.5, generator=generator)


def _measured(problem: planner.Problem, has_bias: bool, steps: Steps, device: torch.device) -> Times:
    drawn = partial(random_tensor, dtype=problem.dtype, device=device, generator=torch.Generator(device).manual_seed(0))
    arguments = (*problem[5:10], problem.code, problem.channels_last)
    input, weight = drawn(problem.input_size, problem.input_stride), drawn(problem.weight_size, problem.weight_stride)
    # Inductor gives PyTorch's operator a weight in the layout of the network.
    weight_of_torch = weight.contiguous(memory_format=memory_format(problem.channels_last, weight.dim() - 2))
    operands = [drawn(size, torch.empty(size, device="meta").stride()) for size in steps.sizes]

    def ours(number: int) -> Tensor:
        return ops.run_forward(input, weight, None, NativeConv(arguments, (number, 0, 0)).call)

    def theirs() -> Tensor:
        return torch_forward(input, weight_of_torch, None, arguments)

    choice = find(problem, FORWARD) or benchmark.run(problem, FORWARD, ours, theirs, device)
    if choice is not None:
        for one in {problem, problem._replace(has_bias=has_bias)}:
            if find(one, FORWARD) is None:
                remember(one, FORWARD, choice)
    found = known_times(problem)
    if choice is None or choice.by_torch:
        return found

    def fused() -> Tensor:
        call = NativeConv(arguments, (choice.candidate, 0, 0)).call
        return ops.run_forward_then(input, weight, None, call, steps.operations, steps.numbers, operands)

    calls = [lambda: ours(choice.candidate), theirs, fused]
    ours_us, torch_us, *fused_us = time_calls(calls if steps.operations else calls[:2], device)
    return Times(ours_us, torch_us, found.family, fused_us[0] if fused_us else None, is_measured=True)


def time_calls(calls: Sequence[Callable[[], Any]], device: torch.device) -> list[float]:
    """Microseconds of each on the GPU with cold caches: medians of alternate launches."""

    def rounds(flush: Tensor) -> list[list[float]]:
        clock = GpuClock()
        for call in calls:
            call()
        return [clock.times_us(calls, flush) for _ in range(_ROUNDS)]

    return [statistics.median(of_call) for of_call in zip(*benchmark.timed(rounds, device), strict=True)]


Strided = tuple[Sequence[int], Sequence[int]]  # the sizes and strides of a tensor


def choose(
    directions: Sequence[int],
    input: Strided,
    weight: Strided,
    has_bias: bool,
    numbers: Sequence[int],
    dtype: torch.dtype,
    device: torch.device,
) -> None:
    """Makes the final choices for these directions of `convt_ext::conv_transpose2d` (traced_ops.py) if PyTorch's
    switches request benchmarks; else does nothing."""
    if not is_possible(device):
        return
    try:
        with torch.no_grad(), disable_current_modes():
            generator = torch.Generator(device).manual_seed(0)
            drawn = partial(random_tensor, dtype=dtype, device=device, generator=generator)
            x, w = drawn(*input), drawn(*weight)
            size = output_size(x.shape, w.shape, *traced_ops.arguments_of(numbers))
            bias = drawn(size[1:2], (1,)) if has_bias else None
            chosen = traced_ops.directions_now(x, w, bias, numbers)
            if not isinstance(chosen, AutoDispatch):
                return
            grad_output = None
            if any(direction != FORWARD for direction in directions):
                format = memory_format(traced_ops.result_format(x, w, numbers), x.dim() - 2)
                grad_output = drawn(size, torch.empty(size, device="meta", memory_format=format).stride())
            for direction in directions:
                chosen.choose_now(direction, x, w, bias, grad_output)
    except RuntimeError:  # usually out of memory: the cost model's choice then runs
        return

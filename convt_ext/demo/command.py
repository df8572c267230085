"""``python -m convt_ext demo``: compares layers and models with PyTorch. Needs the package rich.

With a GPU: times, speedups and errors in PyTorch's default precision and in bfloat16, in both layouts. Without a GPU:
results of small models on the CPU, where both sides run PyTorch's operator and must agree exactly, and the kernels that
GPUs would run. Called by __main__.py.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable

import torch
from rich.console import Console

import convt_ext
from convt_ext.bench.layers import KERNELBENCH
from convt_ext.bench.modes import MODES, cudnn_benchmark
from convt_ext.bench.operands import free_memory
from convt_ext.bench.report import make_console
from convt_ext.bench.runner import DeviceLostError
from convt_ext.bench.timing import CudaTimer, Timer
from convt_ext.demo import comparisons, models, tables
from convt_ext.demo.comparisons import Comparison, Step
from convt_ext.dispatch.precision import ERROR_LIMITS
from convt_ext.environment import _extension
from convt_ext.tuning import benchmark

# The GPUs that a machine without a GPU shows plans for; on GPUs other than Hopper the tensor-core kernels are opt-in.
_ELSEWHERE = {"H200": "auto", "A100": "convt_ext", "RTX 4090": "convt_ext"}
_COMPILED = ("DCGAN generator",)  # compiling takes most of the time

_NOTES = (
    "Times are GPU times of one call with cold caches, measured alternately, with cudnn.benchmark. Fused: convert with "
    "fuse=True, if it fuses anything. Compiled: both models by torch.compile. Error: ||result - exact|| / ||exact||, "
    "exact in float64. Allowed error: PyTorch's error plus, for each transposed convolution, "
    f"{ERROR_LIMITS['tf32']:.0e} (TF32) or {ERROR_LIMITS['bfloat16']:.0e} (bfloat16)."
)


def run_demo(force_cpu: bool = False) -> int:
    """Runs the demo; `force_cpu` ignores a GPU. Returns 0 if every result is correct, else 1."""
    console = make_console()
    with torch.no_grad():
        if force_cpu or not torch.cuda.is_available():
            return int(not _demo_on_cpu(console))
        if not convt_ext.is_available():
            console.print(f"The kernels cannot run here: {_extension.unavailable_reason()}", style="red", markup=False)
            _demo_on_cpu(console)
            return 1
        device = torch.device("cuda", torch.cuda.current_device())
        # Both sides benchmark each shape in its first call.
        with cudnn_benchmark(), benchmark.forced(True):
            return int(not _demo_on_gpu(console, device, CudaTimer(device)))


def _demo_on_gpu(console: Console, device: torch.device, timer: Timer) -> bool:
    machine = f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    console.print(f"[bold]convt_ext {convt_ext.__version__}[/] on {machine}; this takes about three minutes")
    modes = [MODES["default"]]
    if torch.cuda.is_bf16_supported(including_emulation=False):
        modes.append(MODES["bf16"])
    layers = comparisons.steps_of_layers(KERNELBENCH, modes, device, timer)
    networks = comparisons.steps_of_models(models.full_size(), _COMPILED, modes, device, timer)
    return show_speed(console, layers, networks, device)


def show_speed(console: Console, layers: Iterable[Step], networks: Iterable[Step], device: torch.device) -> bool:
    """Measures layers and models, and prints tables. Returns whether all are right."""
    start = time.perf_counter()

    def measured(steps: Iterable[Step]) -> list[Comparison]:
        found: list[Comparison] = []
        for words, measure in steps:
            with console.status(words):
                found += measure()
            free_memory(device)
        return found

    try:
        of_layers = measured(layers)
        tables.show_comparisons(console, "KernelBench level 1, forward: PyTorch → convt_ext", of_layers, mean=True)
        of_networks = measured(networks)
    except DeviceLostError as error:
        console.print(str(error), style="red", markup=False)
        return False
    tables.show_comparisons(console, "Models, inference: original → converted", of_networks)
    console.print(_NOTES, markup=False, highlight=False)
    held = all(one.holds for one in (*of_layers, *of_networks))
    words = "Every result is within its allowed error" if held else "[red]Not every result is right[/]"
    console.print(f"{words}. This took {time.perf_counter() - start:.0f} s.", highlight=False)
    return held


def _demo_on_cpu(console: Console) -> bool:
    console.print("[bold]No GPU in use:[/] small models on the CPU, where PyTorch's operator runs every call.")
    are_equal = True
    for name, module, shape in models.reduced():
        converted, input = convt_ext.convert(copy.deepcopy(module)), torch.randn(shape)
        number = sum(isinstance(one, convt_ext.ConvTranspose2d) for one in converted.modules())
        is_equal = torch.equal(converted(input), module(input))
        words = "equal in every bit" if is_equal else "[red]different[/]"
        console.print(f"{name}: {number} layers converted, the results are {words}", highlight=False)
        are_equal &= is_equal
    if _extension.load_error is not None:
        console.print(f"No plans: {_extension.load_error}", style="red", markup=False)
        return are_equal
    console.print("\nKernels on GPUs, by convt_ext.report. Times are estimates; nothing was timed.", style="bold")
    with torch.device("meta"):
        networks = [one._replace(module=convt_ext.convert(one.module)) for one in models.full_size()]
    for gpu, backend in _ELSEWHERE.items():
        for name, module, shape in networks:
            with convt_ext.flags(backend=backend):
                report = convt_ext.report(module, torch.empty(shape, device="meta"), device=gpu)
            text = f"\n{name}, backend={backend!r}, {report}"
            console.print(text, markup=False, highlight=False, soft_wrap=True)
    console.print("Measured speedups: docs/speed.svg and docs/speed-dark.svg in the source tree.", highlight=False)
    return are_equal

"""``python -m convt_ext demo``: compares layers and models with PyTorch. Needs the package rich.

With a GPU: times, speedups and errors in PyTorch's default precision and in bfloat16, in both layouts; ``--exact``
compares bits in float32 instead. Without a GPU: results at reduced size on the CPU, where both sides run PyTorch's
operator and must agree exactly, and the kernels that GPUs would run. Called by __main__.py.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console

import convt_ext
from convt_ext.bench import floors
from convt_ext.bench.layers import KERNELBENCH
from convt_ext.bench.modes import MODES, cudnn_benchmark, torch_switches
from convt_ext.bench.operands import free_memory
from convt_ext.bench.report import make_console, make_progress
from convt_ext.bench.runner import DeviceLostError
from convt_ext.bench.timing import CudaTimer, Timer
from convt_ext.demo import comparisons, exact, models, tables
from convt_ext.demo.comparisons import Comparison, Step
from convt_ext.dispatch.precision import ERROR_LIMITS
from convt_ext.environment import _extension, _optional
from convt_ext.tuning import benchmark

_BUDGET_MS = 100.0
_REDUCED_SIZE = 24
# The GPUs that a machine without a GPU shows plans for; on GPUs other than Hopper the tensor-core kernels are opt-in.
_ELSEWHERE = {"H200": "auto", "A100": "convt_ext", "RTX 4090": "convt_ext"}
_COMPILED = ("DCGAN generator", "VQ-VAE decoder")  # compiling takes most of the time

_NOTES = (
    "Times are GPU times of one call with cold caches, measured alternately, with cudnn.benchmark. Fused: convert with "
    "fuse=True, if it fuses anything. Compiled: both models by torch.compile. Error: ||result - exact|| / ||exact||, "
    "exact in float64. Allowed error: PyTorch's error plus, for each transposed convolution, "
    f"{ERROR_LIMITS['tf32']:.0e} (TF32) or {ERROR_LIMITS['bfloat16']:.0e} (bfloat16)."
)


def run_demo(chart: Path, force_cpu: bool = False, bits: bool = False) -> int:
    """Runs the demo: with `bits` its comparison of bits. Returns 0 if every result is correct, else 1.

    Draws only the results of a GPU into the chart; `force_cpu` ignores a GPU.
    """
    console = make_console()
    with torch.no_grad():
        if force_cpu or not torch.cuda.is_available():
            return int(not _demo_on_cpu(console))
        if not convt_ext.is_available():
            console.print(f"The kernels cannot run here: {_extension.unavailable_reason()}", style="red", markup=False)
            _demo_on_cpu(console)
            return 1
        device = torch.device("cuda", torch.cuda.current_device())
        timer = CudaTimer(device, _BUDGET_MS)
        # Both sides benchmark each shape in its first call.
        with cudnn_benchmark(), benchmark.forced(True):
            held = _compare_bits(console, device, timer) if bits else _demo_on_gpu(console, device, timer, chart)
            return int(not held)


def _compare_bits(console: Console, device: torch.device, timer: Timer) -> bool:
    gpu = _print_heading(console, device, ", float32 with TF32 off")
    with torch_switches(exact.MODE):
        layers_held = exact.show_layers(console, KERNELBENCH, device, timer, floors.rates_of(gpu))
        models_held = exact.show_models(console, models.full_size(), device, timer)
    return layers_held and models_held


def _print_heading(console: Console, device: torch.device, more: str) -> str:
    """Prints versions and GPU; returns the GPU's name."""
    gpu = torch.cuda.get_device_name(device)
    console.print(f"[bold]convt_ext {convt_ext.__version__} on {gpu}[/], torch {torch.__version__}{more}")
    return gpu


def _demo_on_gpu(console: Console, device: torch.device, timer: Timer, chart: Path) -> bool:
    gpu = _print_heading(console, device, "; this takes about three minutes")
    modes = [MODES["default"]]
    if torch.cuda.is_bf16_supported(including_emulation=False):
        modes.append(MODES["bf16"])
    layers = comparisons.steps_of_layers(KERNELBENCH, modes, device, timer)
    networks = comparisons.steps_of_models(models.full_size(), _COMPILED, modes, device, timer)
    return show_speed(console, list(layers), list(networks), device, f"{gpu}, torch {torch.__version__}", chart)


def show_speed(
    console: Console, layers: Sequence[Step], networks: Sequence[Step], device: torch.device, machine: str, chart: Path
) -> bool:
    """Measures layers and models, prints tables, and draws the chart. Returns whether all are right."""
    start = time.perf_counter()
    with make_progress(console) as progress:
        task = progress.add_task("starting", total=len(layers) + len(networks))

        def measured(steps: Sequence[Step]) -> list[Comparison]:
            found: list[Comparison] = []
            for step in steps:
                progress.update(task, description=step.words)
                found += step.measure()
                free_memory(device)
                progress.advance(task)
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
    found = [*of_layers, *of_networks]
    _draw(console, found, machine, chart)
    held = all(one.holds for one in found)
    words = "Every result is within its allowed error" if held else "[red]Not every result is right[/]"
    console.print(f"{words}. This took {time.perf_counter() - start:.0f} s.", highlight=False)
    return held


def _draw(console: Console, found: Sequence[Comparison], machine: str, chart: Path) -> None:
    """Draws the chart if matplotlib is installed, and prints its path."""
    try:
        from convt_ext.demo.picture import draw

        if draw(found, f"Speedup of convt_ext {convt_ext.__version__} on an {machine}", chart):
            console.print(f"The chart: {chart.resolve()}", markup=False, highlight=False, soft_wrap=True)
    except ModuleNotFoundError as error:
        console.print(f"No chart was drawn: the chart {_optional.remedy(error)}", markup=False)
    except OSError as error:
        console.print(f"The chart could not be written: {error}", style="red", markup=False)


def _demo_on_cpu(console: Console) -> bool:
    console.print("[bold]No GPU in use:[/] reduced sizes on the CPU, where PyTorch's operator runs every call.")
    device = torch.device("cpu")
    layers = [layer.reduced(1, _REDUCED_SIZE) for layer in KERNELBENCH]
    layers_equal = exact.show_layers(console, layers, device, None, None)
    models_equal = exact.show_models(console, models.reduced(), device, None)
    with torch.device("meta"):
        networks = [one._replace(module=convt_ext.convert(one.module)) for one in models.full_size()]
    if _extension.load_error is not None:
        console.print(f"No plans: {_extension.load_error}", style="red", markup=False)
    else:
        console.print("\nKernels on GPUs, by convt_ext.report. Times are estimates; nothing was timed.", style="bold")
        for gpu, backend in _ELSEWHERE.items():
            for name, module, shape in networks:
                with convt_ext.flags(backend=backend):
                    report = convt_ext.report(module, torch.empty(shape, device="meta"), device=gpu)
                text = f"\n{name}, backend={backend!r}, {report}"
                console.print(text, markup=False, highlight=False, soft_wrap=True)
    console.print("Measured speedups: docs/speed.svg and docs/speed-dark.svg in the source tree.", highlight=False)
    return layers_equal and models_equal

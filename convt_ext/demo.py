"""``python -m convt_ext demo``: the seven KernelBench layers and two converted models, ours beside PyTorch's.

With a GPU at full size with times and a comparison of the bits. Without one at reduced size, where both are PyTorch's
operator and must agree exactly, and with what GPUs would run. Needs the package rich.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import convt_ext
from convt_ext import _extension
from convt_ext.bench import floors
from convt_ext.bench.dry_run import print_plans
from convt_ext.bench.layers import KERNELBENCH, Layer
from convt_ext.bench.modes import MODES, cudnn_benchmark, torch_switches
from convt_ext.bench.operands import make_operands, torch_call
from convt_ext.bench.report import make_console
from convt_ext.bench.runner import our_call
from convt_ext.bench.timing import CudaTimer, Timer
from convt_ext.demo_models import DCGANGenerator, UNet
from convt_ext.tuning import race

# Both sides in float32 without TF32, so that a difference is a difference and not a rounding of operands.
_MODE = MODES["ieee"]
_BUDGET_MS = 150.0
_REDUCED_SIZE = 24
_ELSEWHERE = ("H200", "A100", "RTX 4090")  # what runs there is shown on a machine without a GPU

Model = tuple[str, nn.Module, tuple[int, ...]]  # name, model, input shape


def run_demo(*, force_cpu: bool = False) -> int:
    """Shows the demo; 0 when every comparison held, 1 otherwise."""
    console = make_console()
    with cudnn_benchmark(), race.forced(True), torch_switches(_MODE), torch.no_grad():
        if torch.cuda.is_available() and not force_cpu:
            if convt_ext.is_available():
                return _demo_on_gpu(console)
            console.print(f"The kernels cannot run here: {_extension.unavailable_reason()}", style="red", markup=False)
            _demo_on_cpu(console)
            return 1
        return 0 if _demo_on_cpu(console) else 1


def _demo_on_gpu(console: Console) -> int:
    device = torch.device("cuda", torch.cuda.current_device())
    gpu = torch.cuda.get_device_name(device)
    timer = CudaTimer(device, _BUDGET_MS)
    console.print(
        f"[bold]convt_ext {convt_ext.__version__} on {gpu}[/], float32 with TF32 off, torch {torch.__version__}"
    )
    layers_held = show_layers(console, KERNELBENCH, device, timer, floors.rates_of(gpu))
    models_held = show_models(console, _full_size(), device, timer)
    return 0 if layers_held and models_held else 1


def _full_size() -> list[Model]:
    return [("DCGAN generator", DCGANGenerator(), (128, 100, 1, 1)), ("U-Net", UNet(), (4, 3, 512, 512))]


def _demo_on_cpu(console: Console) -> bool:
    console.print("[bold]No GPU in use:[/] reduced sizes on the CPU, where PyTorch's operator serves every call.")
    device = torch.device("cpu")
    layers = [layer.reduced(1, _REDUCED_SIZE) for layer in KERNELBENCH]
    models: list[Model] = [
        ("DCGAN generator", DCGANGenerator(width=8), (2, 100, 1, 1)),
        ("U-Net", UNet(width=8), (1, 3, 64, 64)),
    ]
    layers_equal = show_layers(console, layers, device, None, None)
    models_equal = show_models(console, models, device, None)
    print_plans(console, KERNELBENCH, [_MODE], ["nchw"], "H200")
    with torch.device("meta"):
        converted = [(name, convt_ext.convert(model.eval()), shape) for name, model, shape in _full_size()]
    for gpu in _ELSEWHERE:
        show_elsewhere(console, gpu, converted)
    return layers_equal and models_equal


def show_elsewhere(console: Console, gpu: str, models: Sequence[Model]) -> None:
    """Prints what would run each layer of converted models on another GPU, with TF32 on as PyTorch has it."""
    with torch_switches(MODES["tf32"]):
        for name, model, shape in models:
            found = convt_ext.report(model, torch.empty(shape, device="meta"), device=gpu)
            console.print(f"\n[bold]{name}, {'x'.join(map(str, shape))}[/]")
            console.print(str(found), markup=False, highlight=False)


def show_layers(
    console: Console, layers: Sequence[Layer], device: torch.device, timer: Timer | None, rates: floors.Rates | None
) -> bool:
    """A table of layers; whether every result was within float32 accuracy of PyTorch's (on the CPU: equal to it)."""
    table = Table(title="KernelBench level 1, forward", title_justify="left")
    table.add_column("layer")
    table.add_column("output")
    times = () if timer is None else ("convt_ext µs", "PyTorch µs", "speedup", "of floor")
    for name in (*times, "elements that differ", "largest difference"):
        table.add_column(name, justify="right")
    held = True
    for layer in layers:
        with console.status(layer.name):
            cells, agrees = _layer_cells(layer, device, timer, rates)
        held &= agrees
        table.add_row(layer.name, "x".join(map(str, layer.output_shape)), *cells, style=None if agrees else "red")
    console.print(table)
    console.print(
        "Largest difference: largest |convt_ext - PyTorch| over largest |PyTorch|. 0 elements: equal in every bit."
    )
    return held


def _layer_cells(
    layer: Layer, device: torch.device, timer: Timer | None, rates: floors.Rates | None
) -> tuple[list[str], bool]:
    operands = make_operands(layer, _MODE.dtype, device)
    ours, theirs = our_call(layer, "fwd", _MODE, operands), torch_call(layer, "fwd", operands)
    differing, largest = compare(ours(), theirs())
    times: list[str] = []
    if timer is not None:
        ours_us, torch_us = timer.times_us([ours, theirs])
        times = [f"{ours_us:.0f}", f"{torch_us:.0f}", f"{torch_us / ours_us:.2f}x"]
        floor = rates and floors.floor_us(layer, "fwd", _MODE.name, _MODE.itemsize, "nchw", rates)
        times.append(f"{floor / ours_us:.0%}" if floor else "-")
    return [*times, f"{differing}", f"{largest:.1e}"], _agrees(device, differing, largest)


def show_models(console: Console, models: Sequence[Model], device: torch.device, timer: Timer | None) -> bool:
    """A table of models and their converted copies; whether the outputs agreed as in ``show_layers``."""
    table = Table(title="Models, convt_ext.convert(model, precision='ieee')", title_justify="left")
    table.add_column("model")
    times = () if timer is None else ("converted µs", "original µs", "speedup")
    for name in ("layers converted", *times, "elements that differ", "largest difference"):
        table.add_column(name, justify="right")
    held = True
    for name, model, shape in models:
        original = model.to(device).eval()
        converted = copy.deepcopy(original)
        convt_ext.convert(converted, precision=_MODE.ours)
        number = sum(isinstance(module, convt_ext.ConvTranspose2d) for module in converted.modules())
        generator = torch.Generator(device)
        input = torch.randn(shape, device=device, generator=generator.manual_seed(0))
        with console.status(name):
            differing, largest = compare(converted(input), original(input))
            cells = _model_times(partial(converted, input), partial(original, input), timer)
        agrees = _agrees(device, differing, largest)
        held &= agrees
        table.add_row(name, str(number), *cells, f"{differing}", f"{largest:.1e}", style=None if agrees else "red")
    console.print(table)
    return held


def _model_times(ours: Callable[[], object], theirs: Callable[[], object], timer: Timer | None) -> list[str]:
    if timer is None:
        return []
    ours_us, torch_us = timer.times_us([ours, theirs])
    return [f"{ours_us:.0f}", f"{torch_us:.0f}", f"{torch_us / ours_us:.2f}x"]


def compare(ours: torch.Tensor, theirs: torch.Tensor) -> tuple[int, float]:
    """Number of float32 elements whose bits differ, and the largest difference relative to the largest value.

    Image by image: the difference of two results of gigabytes would be another one.
    """
    differing = torch.zeros((), dtype=torch.int64, device=theirs.device)
    difference = torch.zeros((), dtype=torch.float64, device=theirs.device)
    scale = torch.zeros_like(difference)
    for mine, other in zip(ours, theirs, strict=True):
        differing += (mine.view(torch.int32) != other.view(torch.int32)).sum()
        difference = torch.maximum(difference, (mine - other).abs().max().double())
        scale = torch.maximum(scale, other.abs().max().double())
    return int(differing), float(difference / scale)


def _agrees(device: torch.device, differing: int, largest: float) -> bool:
    # On the GPU cuDNN may sum in another order or use a transform; the bound is float32 accuracy with a wide margin,
    # and NaN fails it. On the CPU both sides are one operator.
    return largest <= 1e-4 if device.type == "cuda" else differing == 0

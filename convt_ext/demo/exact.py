"""Prints tables that compare the bits of results: ``demo --exact`` on a GPU, and the demo on a CPU.

Both sides compute in float32 without TF32, so no operand is rounded. With a timer the tables contain times too. Called
by command.py.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial

import torch
from rich.console import Console
from rich.table import Table

import convt_ext
from convt_ext.bench import floors
from convt_ext.bench.layers import Layer
from convt_ext.bench.modes import MODES
from convt_ext.bench.operands import make_operands, torch_call
from convt_ext.bench.runner import our_call
from convt_ext.bench.timing import Timer
from convt_ext.demo.comparisons import prepared
from convt_ext.demo.models import Model

MODE = MODES["ieee"]


def show_layers(
    console: Console, layers: Sequence[Layer], device: torch.device, timer: Timer | None, rates: floors.Rates | None
) -> bool:
    """Prints a table of layers. Returns whether every result agrees with PyTorch's to float32 accuracy (on the CPU: in
    every bit)."""
    table = Table(title="KernelBench level 1, forward", title_justify="left")
    table.add_column("layer")
    table.add_column("output")
    times = () if timer is None else ("PyTorch µs", "convt_ext µs", "speedup", "of floor")
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
    operands = make_operands(layer, MODE.dtype, device)
    ours, theirs = our_call(layer, "fwd", MODE, operands), torch_call(layer, "fwd", operands)
    differing, largest = compare(ours(), theirs())
    cells: list[str] = []
    if timer is not None:
        torch_us, ours_us = timer.times_us([theirs, ours])
        floor = rates and floors.floor_us(layer, "fwd", MODE.name, MODE.itemsize, "nchw", rates)
        cells = [*_cells(torch_us, ours_us), f"{floor / ours_us:.0%}" if floor else "-"]
    return [*cells, f"{differing}", f"{largest:.1e}"], _agrees(device, differing, largest)


def show_models(console: Console, models: Sequence[Model], device: torch.device, timer: Timer | None) -> bool:
    """Prints a table of models and their converted copies. Returns whether all outputs agree, as in ``show_layers``."""
    table = Table(title="Models, convt_ext.convert(model, precision='exact')", title_justify="left")
    table.add_column("model")
    times = () if timer is None else ("original µs", "converted µs", "speedup")
    for name in ("layers converted", *times, "elements that differ", "largest difference"):
        table.add_column(name, justify="right")
    held = True
    for model in models:
        original, input = prepared(model, MODE, "nchw", device)
        converted = convt_ext.convert(copy.deepcopy(original), **MODE.keywords)
        with console.status(model.name):
            differing, largest = compare(converted(input), original(input))
            of_both = [] if timer is None else timer.times_us([partial(original, input), partial(converted, input)])
        agrees = _agrees(device, differing, largest)
        held &= agrees
        number = str(sum(isinstance(module, convt_ext.ConvTranspose2d) for module in converted.modules()))
        cells = [number, *_cells(*of_both), f"{differing}", f"{largest:.1e}"]
        table.add_row(model.name, *cells, style=None if agrees else "red")
    console.print(table)
    return held


def _cells(*times: float) -> list[str]:
    """Returns cells for PyTorch's time, the time of convt_ext and the speedup; none without times."""
    if not times:
        return []
    torch_us, ours_us = times
    return [f"{torch_us:.0f}", f"{ours_us:.0f}", f"{torch_us / ours_us:.2f}x"]


def compare(ours: torch.Tensor, theirs: torch.Tensor) -> tuple[int, float]:
    """Returns the number of float32 elements with different bits, and the largest difference relative to the largest
    value.

    Compares image by image, because the difference of two whole results may need gigabytes.
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
    # On the GPU cuDNN may accumulate in another order or use a transform; the bound is float32 accuracy with a wide
    # margin, and NaN exceeds it. On the CPU both sides run the same operator.
    return largest <= 1e-4 if device.type == "cuda" else differing == 0

"""Prints tables that compare the bits of results: ``demo --exact`` on a GPU, and the demo on a CPU.

Both sides compute in float32 without TF32, so no operand is rounded. With a timer the tables contain times too. Called
by command.py.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
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
    table = _table("KernelBench level 1, forward", "layer", "output", timer)
    held = True
    for layer in layers:
        operands = make_operands(layer, MODE.dtype, device)
        calls = torch_call(layer, "fwd", operands), our_call(layer, "fwd", MODE, operands)
        floor_us = floors.floor_us(layer, "fwd", MODE.name, MODE.itemsize, "nchw", rates) if rates else None
        names = layer.name, "x".join(map(str, layer.output_shape))
        held &= _add_row(console, table, names, *calls, timer, floor_us)
    console.print(table)
    console.print(
        "Largest difference: largest |convt_ext - PyTorch| over largest |PyTorch|. 0 elements: equal in every bit."
    )
    return held


def show_models(console: Console, models: Sequence[Model], device: torch.device, timer: Timer | None) -> bool:
    """Prints a table of models and their converted copies. Returns whether all outputs agree, as in ``show_layers``."""
    table = _table("Models, convt_ext.convert(model, precision='exact')", "model", "layers converted", timer)
    held = True
    for model in models:
        original, input = prepared(model, MODE, "nchw", device)
        converted = convt_ext.convert(copy.deepcopy(original), **MODE.keywords)
        number = sum(isinstance(module, convt_ext.ConvTranspose2d) for module in converted.modules())
        calls = partial(original, input), partial(converted, input)
        held &= _add_row(console, table, (model.name, str(number)), *calls, timer, None)
    console.print(table)
    return held


def _table(title: str, name: str, detail: str, timer: Timer | None) -> Table:
    table = Table(name, detail, title=title, title_justify="left")
    times = () if timer is None else ("PyTorch µs", "convt_ext µs", "speedup", "of floor")
    for head in (*times, "elements that differ", "largest difference"):
        table.add_column(head, justify="right")
    return table


def _add_row(
    console: Console,
    table: Table,
    names: tuple[str, str],
    theirs: Callable[[], torch.Tensor],
    ours: Callable[[], torch.Tensor],
    timer: Timer | None,
    floor_us: float | None,
) -> bool:
    """Compares and times two calls. Returns whether their results agree."""
    cells: list[str] = []
    with console.status(names[0]):
        result = theirs()
        differing, largest = compare(ours(), result)
        if timer is not None:
            torch_us, ours_us = timer.times_us([theirs, ours])
            share = f"{floor_us / ours_us:.0%}" if floor_us else "-"
            cells = [f"{torch_us:.0f}", f"{ours_us:.0f}", f"{torch_us / ours_us:.2f}x", share]
    # On the GPU cuDNN may accumulate in another order or use a transform; the bound is float32 accuracy with a wide
    # margin, and NaN exceeds it. On the CPU both sides run the same operator.
    agrees = largest <= 1e-4 if result.is_cuda else differing == 0
    table.add_row(*names, *cells, f"{differing}", f"{largest:.1e}", style=None if agrees else "red")
    return agrees


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

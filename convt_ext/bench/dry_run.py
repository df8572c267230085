"""``bench --dry-run``: prints what would be measured, floors, and plans for an H200 or another GPU. Needs no GPU."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import convt_ext
from convt_ext.bench import floors
from convt_ext.bench.layers import Layer
from convt_ext.bench.modes import Mode, by_name, torch_switches
from convt_ext.bench.operands import Operands, layouts_of
from convt_ext.dispatch import planner
from convt_ext.dispatch import precision as precisions
from convt_ext.environment import _extension
from convt_ext.environment.gpus import GPUS, words_of


def mode_on(gpu: str, mode: Mode) -> Mode:
    """Returns the mode with a request for convt_ext, which half types need where PyTorch's operator is the default."""
    has_estimates = precisions.has_estimates("bf16", planner.capability(GPUS[gpu]))
    return mode if has_estimates else by_name(mode)


def tensors(layer: Layer, mode: Mode, layout: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Returns input, weight and bias without storage."""

    def empty(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=mode.dtype, device="meta")

    bias = empty(layer.c_out) if layer.bias else None
    operands = Operands(empty(*layer.input_shape), empty(*layer.weight_shape), bias).in_layout(layout)
    return operands.input, operands.weight, operands.bias


def print_plans(
    console: Console, layers: Sequence[Layer], modes: Sequence[Mode], layouts: Sequence[str], gpu: str
) -> None:
    title = f"Forward on {words_of(gpu)}: floors and plans (nothing is timed)"
    table = Table(title=title, title_justify="left")
    for name in ("layer", "input", "weight", "output", "precision", "layout"):
        table.add_column(name)
    table.add_column("floor µs", justify="right")
    table.add_column("estimate µs", justify="right")
    table.add_column("kernel")
    for layer in layers:
        shapes = ["x".join(map(str, s)) for s in (layer.input_shape, layer.weight_shape, layer.output_shape)]
        for mode, layout in itertools.product(modes, layouts_of(layer, layouts)):
            floor = floors.floor_us(layer, "fwd", mode.name, mode.itemsize, layout, floors.BY_GPU[gpu])
            estimate, kernel = _plan_cells(layer, mode, layout, gpu)
            table.add_row(escape(layer.name), *shapes, mode.name, layout, f"{floor:.1f}", estimate, escape(kernel))
    console.print(table)
    if _extension.load_error is not None:
        print_why_no_plans(console)


def print_why_no_plans(console: Console) -> None:
    console.print(f"No plans: {_extension.load_error}", style="red", markup=False)


def _plan_cells(layer: Layer, mode: Mode, layout: str, gpu: str) -> tuple[str, str]:
    keywords = {**layer.arguments, **mode_on(gpu, mode).keywords}
    with torch_switches(mode):
        explanation = convt_ext.explain(*tensors(layer, mode, layout), **keywords, device=gpu)
    if explanation.served_by == "torch" and _extension.load_error is None:
        return "-", "torch"
    if explanation.plan is None:
        return "-", "no plan"
    plan = explanation.plan["plan"]
    return f"{plan['estimate_us']:.1f}", plan["kernel"]

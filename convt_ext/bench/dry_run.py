"""``bench --dry-run``: what would be measured, the floors and the plans of an H200. Needs no GPU."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import convt_ext
from convt_ext import _extension
from convt_ext.bench import floors
from convt_ext.bench.layers import Layer
from convt_ext.bench.modes import MODES, Mode, torch_switches


def explain_on_h200(layer: Layer, mode: Mode, layout: str = "nchw") -> convt_ext.Explanation:
    """The plan of a layer, from tensors without storage."""
    memory_format = torch.channels_last if layout == "nhwc" else torch.contiguous_format

    def empty(*shape: int) -> torch.Tensor:
        tensor = torch.empty(shape, dtype=mode.dtype, device="meta")
        return tensor.contiguous(memory_format=memory_format) if len(shape) == 4 else tensor

    bias = empty(layer.c_out) if layer.bias else None
    return convt_ext.explain(
        empty(*layer.input_shape), empty(*layer.weight_shape), bias, **layer.arguments, precision=mode.ours
    )


def print_plans(console: Console, layers: Sequence[Layer], modes: Sequence[str], layouts: Sequence[str]) -> None:
    table = Table(title="Forward on an H200: floors and plans (nothing is timed)", title_justify="left")
    for name in ("layer", "input", "weight", "output", "precision", "layout"):
        table.add_column(name)
    table.add_column("floor µs", justify="right")
    table.add_column("estimate µs", justify="right")
    table.add_column("kernel")
    for layer in layers:
        shapes = ["x".join(map(str, s)) for s in (layer.input_shape, layer.weight_shape, layer.output_shape)]
        for name in modes:
            for layout in layouts:
                mode = MODES[name]
                floor = floors.floor_us(layer, "fwd", name, mode.itemsize, layout, floors.H200)
                estimate, kernel = _plan_cells(layer, mode, layout)
                table.add_row(escape(layer.name), *shapes, name, layout, f"{floor:.1f}", estimate, escape(kernel))
    console.print(table)
    if _extension.load_error is not None:
        console.print(f"No plans: {_extension.load_error}", style="red", markup=False)


def _plan_cells(layer: Layer, mode: Mode, layout: str) -> tuple[str, str]:
    with torch_switches(mode):
        explanation = explain_on_h200(layer, mode, layout)
    if explanation.served_by == "torch" and _extension.load_error is None:
        return "-", "torch"
    if explanation.plan is None:
        return "-", "no plan"
    plan = explanation.plan["plan"]
    return f"{plan['estimate_us']:.1f}", plan["kernel"]

"""``bench --dry-run``: what would be measured, the floors and the plans of an H200. Needs no GPU."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import convt_ext
from convt_ext import _extension, planner, routing
from convt_ext.bench import floors, neighbour_report, runner
from convt_ext.bench.layers import Layer
from convt_ext.bench.modes import Mode, torch_switches
from convt_ext.bench.operands import Operands
from convt_ext.bench.program_rows import Case
from convt_ext.bench.runner import Row


def explain_on_h200(layer: Layer, mode: Mode, layout: str = "nchw") -> convt_ext.Explanation:
    """The plan of a layer, from tensors without storage."""
    return convt_ext.explain(*_tensors(layer, mode, layout), **layer.arguments, precision=mode.ours)


def planned_rows(
    layers: Sequence[Layer], modes: Sequence[Mode], directions: Sequence[str], layouts: Sequence[str]
) -> Iterator[Row]:
    """Rows of calls by name on an H200 as the benchmark's, with the planner's estimate for our time."""
    for layer, direction, mode, layout in itertools.product(layers, directions, modes, layouts):
        call = _tensors(layer, mode, layout)
        decision = routing.op_call(*call, **layer.arguments, precision=mode.ours, device=planner.H200, lowers=False)
        if isinstance(decision, routing.Reason):
            raise ValueError(f"{layer.name} has no plan: {decision.text}")
        plan = runner.plan_of(decision, direction, planner.H200)
        row = runner.empty_row(layer, direction, mode, layout, floors.H200)
        yield {**row, "ours_us": plan["estimate_us"], "kernel": plan["kernel"], "chosen": "ours"}


def _tensors(layer: Layer, mode: Mode, layout: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Input, weight and bias without storage."""

    def empty(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=mode.dtype, device="meta")

    bias = empty(layer.c_out) if layer.bias else None
    operands = Operands(empty(*layer.input_shape), empty(*layer.weight_shape), bias).in_layout(layout)
    return operands.input, operands.weight, operands.bias


def print_neighbours(
    console: Console, layers: Sequence[Layer], modes: Sequence[Mode], directions: Sequence[str], layouts: Sequence[str]
) -> None:
    """The report of a neighbour grid, of estimates."""
    if _extension.load_error is not None:
        _print_why_no_plans(console)
        return
    rows = list(planned_rows(layers, modes, directions, layouts))
    neighbour_report.print_grid(console, rows, "Estimates for an H200 (nothing is timed)")


def print_programs(console: Console, cases: Sequence[Case]) -> None:
    """What ``bench --programs`` would measure: the program of a mode in each of its dtypes."""
    table = Table(title="Programs (nothing is timed)", title_justify="left")
    for name in ("program", "mode", "inputs", "dtypes"):
        table.add_column(name)
    for (program, mode), group in itertools.groupby(cases, key=lambda case: (case.program, case.mode)):
        inputs = ", ".join("x".join(map(str, shape)) for shape in program.inputs)
        table.add_row(escape(program.name), mode, inputs, ", ".join(case.dtype for case in group))
    console.print(table)


def print_plans(console: Console, layers: Sequence[Layer], modes: Sequence[Mode], layouts: Sequence[str]) -> None:
    table = Table(title="Forward on an H200: floors and plans (nothing is timed)", title_justify="left")
    for name in ("layer", "input", "weight", "output", "precision", "layout"):
        table.add_column(name)
    table.add_column("floor µs", justify="right")
    table.add_column("estimate µs", justify="right")
    table.add_column("kernel")
    for layer in layers:
        shapes = ["x".join(map(str, s)) for s in (layer.input_shape, layer.weight_shape, layer.output_shape)]
        for mode, layout in itertools.product(modes, layouts):
            floor = floors.floor_us(layer, "fwd", mode.name, mode.itemsize, layout, floors.H200)
            estimate, kernel = _plan_cells(layer, mode, layout)
            table.add_row(escape(layer.name), *shapes, mode.name, layout, f"{floor:.1f}", estimate, escape(kernel))
    console.print(table)
    if _extension.load_error is not None:
        _print_why_no_plans(console)


def _print_why_no_plans(console: Console) -> None:
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

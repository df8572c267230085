"""Rows of calls with the planner's estimates in place of times, for a machine without a GPU.

Called by command.py (``--dry-run``) and by a test of the estimates.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import torch

from convt_ext.bench import floors, runner
from convt_ext.bench.layers import Layer
from convt_ext.bench.modes import Mode, by_name, torch_switches
from convt_ext.bench.operands import Operands, layouts_of
from convt_ext.bench.runner import Row
from convt_ext.dispatch import planner, routing
from convt_ext.dispatch import precision as precisions
from convt_ext.environment.gpus import GPUS


def planned_rows(
    layers: Sequence[Layer], modes: Sequence[Mode], directions: Sequence[str], layouts: Sequence[str], gpu: str = "H200"
) -> Iterator[Row]:
    """Yields rows of calls on a GPU, in the benchmark's format, with estimates; `torch` if PyTorch's operator runs."""
    numbers = GPUS[gpu]
    for layer, direction, mode in itertools.product(layers, directions, modes):
        # Where PyTorch's operator is the default for half types, convt_ext is requested.
        has_estimates = precisions.has_estimates("bf16", planner.capability(numbers))
        requested = (mode if has_estimates else by_name(mode)).requested
        for layout in layouts_of(layer, layouts):
            call = _tensors(layer, mode, layout)
            with torch_switches(mode):
                decision = routing.op_call(
                    *call, **layer.arguments, requested=requested, device=numbers, lowers=False, dims=layer.dims
                )
            row = runner.empty_row(layer, direction, mode, layout, floors.BY_GPU[gpu])
            if isinstance(decision, routing.Reason) or decision[3].left_to_torch(runner.NUMBERS[direction]):
                yield {**row, "kernel": "torch", "chosen": "torch"}
            else:
                plan = runner.plan_of(decision, direction, numbers)
                yield {**row, "ours_us": plan["estimate_us"], "kernel": plan["kernel"], "chosen": "ours"}


def _tensors(layer: Layer, mode: Mode, layout: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    shapes = layer.input_shape, layer.weight_shape, (layer.c_out,)
    input, weight, bias = (torch.empty(shape, dtype=mode.dtype, device="meta") for shape in shapes)
    operands = Operands(input, weight, bias if layer.bias else None).in_layout(layout)
    return operands.input, operands.weight, operands.bias

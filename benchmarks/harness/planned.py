"""Rows of calls with the planner's estimates in place of times, for a machine without a GPU.

Called by command.py (``--dry-run``) and by a test of the estimates.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from convt_ext.bench import dry_run, floors, runner
from convt_ext.bench.layers import Layer
from convt_ext.bench.modes import Mode
from convt_ext.bench.runner import Row
from convt_ext.dispatch import routing
from convt_ext.environment.gpus import GPUS


def planned_rows(
    layers: Sequence[Layer], modes: Sequence[Mode], directions: Sequence[str], layouts: Sequence[str], gpu: str = "H200"
) -> Iterator[Row]:
    """Yields rows of calls with explicit precisions on a GPU, in the benchmark's format, with estimates."""
    numbers = GPUS[gpu]
    for layer, direction, mode, layout in itertools.product(layers, directions, modes, layouts):
        call = dry_run.tensors(layer, mode, layout)
        decision = routing.op_call(
            *call, **layer.arguments, requested=dry_run.mode_on(gpu, mode).requested, device=numbers, lowers=False
        )
        if isinstance(decision, routing.Reason):
            raise ValueError(f"{layer.name} has no plan: {decision.text}")
        plan = runner.plan_of(decision, direction, numbers)
        row = runner.empty_row(layer, direction, mode, layout, floors.BY_GPU[gpu])
        yield {**row, "ours_us": plan["estimate_us"], "kernel": plan["kernel"], "chosen": "ours"}

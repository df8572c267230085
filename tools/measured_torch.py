"""Writes the table of PyTorch's times for layers whose estimates choose wrongly between its operator and our kernel.

    python tools/measured_torch.py RESULT.json ...     needs no GPU

RESULT: what `python -m convt_ext bench` wrote on an H200. A call gets a row of kernels/tuning/h200_torch.csv when
PyTorch is estimated to be faster than our kernel and was slower, or the other way round: by the results that our kernel
served, else by its estimate. No row sends a call to a kernel of ours that took longer than PyTorch in one of them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from plan_tables import DIRECTIONS, TORCH_COLUMNS, problem_cells, problem_of, write_table

from convt_ext import planner, precision
from convt_ext.bench.layers import Layer
from convt_ext.bench.modes import MODES
from convt_ext.bench.operands import Operands

# Estimates of our kernels are mostly within a tenth of their times.
MARGIN = 0.9
PRECISIONS = {"default": "tf32", "tf32": "tf32", "bf16": "bf16"}  # of the benchmark: the class that is served
OF_BENCHMARK = {"fwd": "forward", "dx": "grad_input", "dw": "grad_weight"}

Row = dict[str, Any]


def layer_of(row: Row) -> Layer:
    sizes = {name: row[name] for name in ("n", "c_in", "c_out", "h", "w", "g", "bias")}
    pairs: Row = {name: tuple(row[name]) for name in ("k", "s", "p", "op", "d")}
    return Layer(row["layer"], **sizes, **pairs)


def answer_of(row: Row) -> dict[str, Any]:
    """What the planner says of the call on an H200."""
    layer = layer_of(row)
    dtype, code = MODES[row["precision"]].dtype, precision.CODES[PRECISIONS[row["precision"]]]
    input, weight = (torch.empty(size, dtype=dtype, device="meta") for size in (layer.input_shape, layer.weight_shape))
    of = Operands(input, weight, None, None).in_layout(row["layout"])
    arguments = (layer.s, layer.p, layer.op, layer.g, layer.d, code, row["layout"] == "nhwc")
    direction = DIRECTIONS.index(OF_BENCHMARK[row["direction"]])
    answer = planner.plan(planner.Problem.of_call(of.input, of.weight, layer.bias, arguments, planner.H200), direction)
    assert answer is not None, "the tool needs the compiled planner"
    return answer


def call_of(row: Row) -> tuple[str, ...]:
    """What tells a call from the others, as rows of the table have it."""
    direction, name = OF_BENCHMARK[row["direction"]], PRECISIONS[row["precision"]]
    return problem_cells(direction, name, row["layout"], problem_of(layer_of(row)))


def shortest(rows: list[Row]) -> list[Row]:
    """One row a call, that in which PyTorch was fastest.

    "ours": whether a kernel of ours was always as fast, None where none served the call.
    """
    of_call: dict[tuple[str, ...], Row] = {}
    for row in rows:
        if row["precision"] not in PRECISIONS or row["torch_us"] is None:
            continue
        ours = None if row["kernel"] == "torch" else row["ours_us"] <= row["torch_us"]
        call = call_of(row)
        other = of_call.get(call)
        kept = row if other is None or row["torch_us"] < other["torch_us"] else other
        known = [one for one in (ours, other and other["ours"]) if one is not None]
        of_call[call] = {**kept, "ours": all(known) if known else None}
    return list(of_call.values())


def cells_of(row: Row) -> tuple[str, ...] | None:
    """A row of the table, or None where the estimate will do."""
    answer = answer_of(row)
    ours_us, torch_us = answer["plan"]["estimate_us"], row["torch_us"]
    is_ours = ours_us < MARGIN * torch_us if row["ours"] is None else row["ours"]
    if is_ours == (ours_us <= answer["torch_estimate_us"]) or (is_ours and torch_us < ours_us):
        return None
    if not is_ours:  # by however little: the row has to say so
        torch_us = min(torch_us, MARGIN * ours_us)
    return *call_of(row), f"{torch_us:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    rows = [row for path in parser.parse_args().results for row in json.loads(path.read_text())["rows"]]
    write_table("h200_torch", TORCH_COLUMNS, (cells for cells in map(cells_of, shortest(rows)) if cells is not None))


if __name__ == "__main__":
    main()

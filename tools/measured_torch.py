"""Writes the table of PyTorch's times for layers whose estimates choose wrongly between its operator and our kernel.

    python tools/measured_torch.py RESULT.json ...     needs no GPU

RESULT: what `python -m convt_ext bench` wrote on an H200. A call gets a row of kernels/plan/measured_torch.cpp when
PyTorch is estimated to be faster than our kernel and was slower, or the other way round: by the results that our kernel
served, else by its estimate. No row sends a call to a kernel of ours that took longer than PyTorch in one of them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from plan_tables import in_braces, problem_of, write_table

from convt_ext import planner
from convt_ext.bench.layers import Layer

# Estimates of our kernels are mostly within a tenth of their times.
MARGIN = 0.9
CLASSES = {
    "default": (torch.float32, 3, "kTf32"),
    "tf32": (torch.float32, 3, "kTf32"),
    "bf16": (torch.bfloat16, 4, "kHalf"),
}
DIRECTIONS = {"fwd": (0, "kForward"), "dx": (1, "kGradInput"), "dw": (2, "kGradWeight")}

Row = dict[str, Any]


def layer_of(row: Row) -> Layer:
    sizes = {name: row[name] for name in ("n", "c_in", "c_out", "h", "w", "g", "bias")}
    pairs: Row = {name: tuple(row[name]) for name in ("k", "s", "p", "op", "d")}
    return Layer(row["layer"], **sizes, **pairs)


def answer_of(layer: Layer, row: Row) -> dict[str, Any]:
    """What the planner says of the call on an H200."""
    dtype, code, _ = CLASSES[row["precision"]]
    channels_last = row["layout"] == "nhwc"
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    input, weight = (
        torch.empty(shape, dtype=dtype, device="meta").contiguous(memory_format=memory_format)
        for shape in (layer.input_shape, layer.weight_shape)
    )
    arguments = (layer.s, layer.p, layer.op, layer.g, layer.d, code, channels_last)
    direction, _ = DIRECTIONS[row["direction"]]
    answer = planner.plan_of_call(input, weight, layer.bias, arguments, planner.H200, direction)
    assert answer is not None, "the tool needs the compiled planner"
    return answer


def shortest(rows: list[Row]) -> list[Row]:
    """One row a call, that in which PyTorch was fastest.

    "ours": whether a kernel of ours was always as fast, None where none served the call.
    """
    of_call: dict[str, Row] = {}
    for row in rows:
        if row["precision"] not in CLASSES or row["torch_us"] is None:
            continue
        ours = None if row["kernel"] == "torch" else row["ours_us"] <= row["torch_us"]
        layer = layer_of(row)
        key = str((row["direction"], CLASSES[row["precision"]][2], row["layout"], problem_of(layer)))
        other = of_call.get(key)
        kept = row if other is None or row["torch_us"] < other["torch_us"] else other
        known = [one for one in (ours, other and other["ours"]) if one is not None]
        of_call[key] = {**kept, "ours": all(known) if known else None}
    return list(of_call.values())


def row_text(row: Row) -> str | None:
    """A row of the table, or None where the estimate will do."""
    layer = layer_of(row)
    answer = answer_of(layer, row)
    ours_us, torch_us = answer["plan"]["estimate_us"], row["torch_us"]
    is_ours = ours_us < MARGIN * torch_us if row["ours"] is None else row["ours"]
    if is_ours == (ours_us <= answer["torch_estimate_us"]) or (is_ours and torch_us < ours_us):
        return None
    if not is_ours:  # by however little: the row has to say so
        torch_us = min(torch_us, MARGIN * ours_us)
    direction, precision = DIRECTIONS[row["direction"]][1], CLASSES[row["precision"]][2]
    layout = "true" if row["layout"] == "nhwc" else "false"
    head = f"Direction::{direction}, Precision::{precision}, {layout}, {in_braces(problem_of(layer))}"
    return f"{{{head}, {torch_us:.1f}}},"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    rows = [row for path in parser.parse_args().results for row in json.loads(path.read_text())["rows"]]
    lines = sorted(text for text in map(row_text, shortest(rows)) if text is not None)
    write_table("torch", Path(__file__).name, "MeasuredTorch", lines)


if __name__ == "__main__":
    main()

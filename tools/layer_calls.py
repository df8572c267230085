"""Makes calls of layers in every class, layout and direction. Called by family_worth.py, which times candidates."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from convt_ext.bench.layers import BUILT_IN, Layer, read_csv
from convt_ext.bench.operands import LAYOUTS, make_operands

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from raw_ops import TENSOR_CORE_CLASSES, Call, GradientCall

CLASSES = {**{name: TENSOR_CORE_CLASSES[name] for name in ("tf32", "bf16", "tf32x3")}, "ieee": (torch.float32, "ieee")}


def calls_of(layer: Layer, name: str) -> Iterator[tuple[str, str, Call | GradientCall]]:
    """Yields layout, direction and a call with all tensors in that layout."""
    dtype, precision = CLASSES[name]
    operands = make_operands(layer, dtype, torch.device("cuda"), gradients=True)
    for layout in LAYOUTS:
        of, channels_last = operands.in_layout(layout), layout == "nhwc"
        assert of.grad_output is not None
        call = Call(of.input, of.weight, of.bias, **layer.arguments, precision=precision, channels_last=channels_last)
        yield layout, "forward", call
        for direction, other in (("grad_input", of.weight), ("grad_weight", of.input)):
            yield layout, direction, GradientCall(direction, of.grad_output, other, call, channels_last)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that select calls, and the path of the output."""
    parser.add_argument("out", type=Path)
    parser.add_argument("--csv", type=Path, help="more layers than the built-in ones")
    parser.add_argument("--precisions", default=",".join(CLASSES))
    parser.add_argument("--part", default="1/1", help="I/N: every N-th layer from the I-th")


def layers_of(options: argparse.Namespace) -> list[Layer]:
    """Returns the layers of the CSV file and the built-in ones, each problem once."""
    layers = (*(read_csv(options.csv) if options.csv else ()), *BUILT_IN)
    return list({str(layer.parameters()): layer for layer in layers}.values())


def layers_in_classes(layers: list[Layer], options: argparse.Namespace) -> Iterator[tuple[Layer, str]]:
    """Returns each layer of the selected part with each selected class."""
    part, parts = (int(number) for number in options.part.split("/"))
    return itertools.product(layers[part - 1 :: parts], options.precisions.split(","))


def row_of(layer: Layer, name: str, layout: str, direction: str) -> dict[str, Any]:
    """Returns the columns that identify a call."""
    return {"layer": layer.name, "precision": name, "layout": layout, "direction": direction}


def each_call(layers: list[Layer], options: argparse.Namespace) -> Iterator[tuple[Layer, dict[str, Any], Any]]:
    """Yields layer, row_of() and the call, for each of layers_in_classes()."""
    for layer, name in layers_in_classes(layers, options):
        for layout, direction, call in calls_of(layer, name):
            yield layer, row_of(layer, name, layout, direction), call

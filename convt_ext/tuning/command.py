"""``python -m convt_ext tune``: measures layers into a tuning file, merges tuning files, and prints one.

    python -m convt_ext tune layers --csv layers.csv --out tuning.json     # needs a GPU
    python -m convt_ext tune merge a.json b.json --out both.json
    python -m convt_ext tune show tuning.json

Exit status: 0, or 2 if nothing could be measured, read or written.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import torch

from convt_ext.bench.layers import BUILT_IN, Layer, read_csv, select_layers
from convt_ext.bench.modes import MODES, torch_switches
from convt_ext.bench.operands import LAYOUTS, make_operands
from convt_ext.environment import _extension
from convt_ext.functional import FUNCTIONS
from convt_ext.tuning import files
from convt_ext.tuning.measuring import merge, tune

# Modes without a request.
_MODES = ("default", "f16", "bf16", "f64")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    tasks = parser.add_subparsers(dest="task", required=True)
    layers = tasks.add_parser("layers", help="measure layers: forward and both gradients, in both layouts")
    layers.add_argument(
        "--csv", type=Path, metavar="FILE", help="layers in the benchmark's format (default: its built-in layers)"
    )
    layers.add_argument("--layers", nargs="+", default=["all"], metavar="NAME", help="names or globs (default all)")
    layers.add_argument(
        "--modes", nargs="+", default=["default", "bf16"], choices=_MODES, help="(default default bf16)"
    )
    layers.add_argument("--layouts", nargs="+", default=list(LAYOUTS), choices=LAYOUTS, help="(default both)")
    layers.add_argument("--out", type=Path, required=True, metavar="FILE", help="file to add the measurements to")
    merge = tasks.add_parser("merge", help="merge files into one; for duplicate calls the later file wins")
    merge.add_argument("files", nargs="+", type=Path)
    merge.add_argument("--out", type=Path, required=True, metavar="FILE")
    show = tasks.add_parser("show", help="print a file, one line per call")
    show.add_argument("files", nargs=1, type=Path)


def run_command(args: argparse.Namespace) -> int:
    try:
        if args.task == "layers":
            return _measure(args)
        if args.task == "merge":
            merge(args.files, args.out)
            return 0
        _show(files.read(args.files[0]))
    except (OSError, ValueError, RuntimeError) as error:
        print(f"convt_ext tune: {error}", file=sys.stderr)
        return 2
    return 0


def _measure(args: argparse.Namespace) -> int:
    reason = _extension.unsupported_reason(0) if torch.cuda.is_available() else "PyTorch sees no CUDA GPU"
    if reason is not None:
        raise RuntimeError(f"cannot measure: {reason}")
    layers = select_layers(read_csv(args.csv) if args.csv else BUILT_IN, args.layers)
    for number, layer in enumerate(layers, 1):
        for name in args.modes:
            with torch_switches(MODES[name]):
                _measure_layer(layer, MODES[name].dtype, args.layouts, args.out)
        print(f"{number} of {len(layers)}: {layer.name}", flush=True)
    return 0


def _measure_layer(layer: Layer, dtype: torch.dtype, layouts: list[str], out: Path) -> None:
    operands = make_operands(layer, dtype, torch.device("cuda"))
    for layout in layouts:
        of = operands.in_layout(layout)
        tensors = [None if one is None else one.detach().requires_grad_() for one in (of.input, of.weight, of.bias)]
        try:
            tune(partial(FUNCTIONS[layer.dims], **layer.arguments), *tensors, file=out)
        except torch.OutOfMemoryError:
            print(f"{layer.name} does not fit into the GPU's memory", file=sys.stderr)


def _show(measured: files.Measured) -> None:
    for of, calls in measured.items():
        print(f"{of.gpu}: CUDA {of.cuda}, torch {of.torch}, cuDNN {of.cudnn}, driver {of.driver}, kernels {of.kernels}")
        for key, entry in sorted(calls.items()):
            print(f"  {entry.ours_us:10.1f} us convt_ext {entry.torch_us:10.1f} us PyTorch  {key}  {entry.kernel}")

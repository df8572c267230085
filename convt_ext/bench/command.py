"""``python -m convt_ext bench``: options, and one run of layers. benchmarks/harness extends it for contributors.

Exit status: 0; 1 if a row failed; 2 if nothing could be measured (no GPU, a wrong option, rich missing).
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

import convt_ext
from convt_ext.bench import floors
from convt_ext.bench.layers import BUILT_IN, KERNELBENCH, Layer, read_csv, select_layers
from convt_ext.bench.modes import MODES, Mode, by_name
from convt_ext.bench.operands import DIRECTIONS, LAYOUTS, free_bytes
from convt_ext.bench.results import ResultFile, default_path, describe_run
from convt_ext.bench.runner import DeviceLostError, Row, Settings, run
from convt_ext.bench.timing import CudaTimer, Timer
from convt_ext.environment import _extension, _optional
from convt_ext.environment.gpus import GPUS
from convt_ext.tuning import benchmark

if TYPE_CHECKING:
    from rich.console import Console

_PRECISIONS = tuple(name for name in MODES if name != "default")


def list_of(option: str, allowed: tuple[str, ...]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        values = list(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))
        unknown = [value for value in values if value not in allowed]
        if unknown or not values:
            raise argparse.ArgumentTypeError(f"{option}: got {text!r}, expected a list of {', '.join(allowed)}")
        return values

    return parse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(layer.name for layer in BUILT_IN)
    parser.add_argument(
        "--layers",
        nargs="+",
        metavar="NAME",
        help=f"layers: names, globs or all (default kb*, with --csv all): {names}",
    )
    parser.add_argument("--csv", type=Path, metavar="FILE", help="read layers of 1 to 3 dimensions from a CSV file")
    for option, allowed, default, which in (
        ("--directions", DIRECTIONS, ["fwd"], "fwd"),
        ("--precisions", _PRECISIONS, ["ieee"], "ieee"),
        ("--layouts", LAYOUTS, list(LAYOUTS), "both; one dimension has only nchw"),
    ):
        words = f"{', '.join(allowed)} (default {which})"
        parser.add_argument(option, type=list_of(option, allowed), default=default, metavar="LIST", help=words)
    parser.add_argument("--out", type=Path, metavar="FILE", help="result file (default below benchmarks/results)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also draw the rows as a picture (.png, .svg, .pdf)")
    parser.add_argument("--budget-ms", type=float, default=100.0, metavar="MS", help="GPU time per timing (100)")
    parser.add_argument("--no-torch", action="store_true", help="do not time PyTorch's operator")
    parser.add_argument("--no-errors", action="store_true", help="do not compare results with float64")
    parser.add_argument(
        "--race",
        choices=("on", "off"),
        default="on",
        help="on: benchmark each shape in its first call; off: the cost model chooses (default on)",
    )
    parser.add_argument(
        "--default", action="store_true", help="also measure PyTorch's default: float32, precision=None"
    )
    parser.add_argument(
        "--by-name", action="store_true", help="use kernels of convt_ext in every mode: bf16 with backend='convt_ext'"
    )
    parser.add_argument(
        "--summary", nargs="+", type=Path, metavar="FILE", help="print the summary of result files; measures nothing"
    )
    parser.add_argument("--dry-run", action="store_true", help="print layers, floors and plans; needs no GPU")
    parser.add_argument("--gpu", choices=GPUS, metavar="NAME", help=f"with --dry-run: {', '.join(GPUS)} (default H200)")


def run_command(args: argparse.Namespace, argv: list[str], *, timer: Timer | None = None) -> int:
    """Runs ``bench``. A ``timer`` (in tests) replaces the GPU's; everything then runs on the CPU."""
    try:
        check_options(args)
        kept = [json.loads(path.read_text(encoding="utf-8")) for path in args.summary or ()]
        layers = select(args)
    except (OSError, ValueError) as error:
        return refuse(str(error))
    try:
        from convt_ext.bench import report

        if args.plot is not None:
            importlib.import_module("convt_ext.bench.plot")  # reports a missing package before an hour of measuring
    except ModuleNotFoundError as error:
        return refuse(_optional.remedy(error))
    if kept:
        for path, content in zip(args.summary, kept, strict=True):
            report.print_kept(report.make_console(), path.name, content)
        return 0
    if args.dry_run:
        from convt_ext.bench import dry_run

        dry_run.print_plans(report.make_console(), layers, modes_of(args), args.layouts, args.gpu or "H200")
        return 0
    missing = None if timer is not None else why_nothing_runs()
    return refuse(missing) if missing else measure(args, argv, layers, modes_of(args), timer)


def check_options(args: argparse.Namespace) -> None:
    """Raises ValueError for options without effect."""
    if args.budget_ms <= 0:
        raise ValueError(f"--budget-ms must be positive, got {args.budget_ms}")
    if args.gpu and not args.dry_run:
        raise ValueError("--gpu requires --dry-run: measurements use the installed GPU")


def why_nothing_runs() -> str | None:
    """Returns why nothing can be measured here, or None."""
    if not torch.cuda.is_available():
        return "needs a GPU, and PyTorch finds none (--dry-run shows the plans without one)"
    if not convt_ext.is_available():
        return _extension.unavailable_reason() or "the kernels cannot run here"
    return None


def machine(timer: Timer | None) -> tuple[torch.device, str]:
    """Returns the device that everything runs on, and the GPU's name."""
    if timer is not None:
        return torch.device("cpu"), "none"
    device = torch.device("cuda", torch.cuda.current_device())
    return device, torch.cuda.get_device_name(device)


def measure(
    args: argparse.Namespace,
    argv: list[str],
    layers: Sequence[Layer],
    modes: tuple[Mode, ...],
    timer: Timer | None,
    print_rows: Callable[[Console, Sequence[Row], str], None] | None = None,
) -> int:
    """Measures layers, writes the result file and prints it, the rows with ``print_rows``."""
    from convt_ext.bench import report

    device, gpu = machine(timer)
    timer = timer or CudaTimer(device, args.budget_ms)
    settings = Settings(
        layers=tuple(layers),
        modes=modes,
        directions=tuple(args.directions),
        layouts=tuple(args.layouts),
        device=device,
        with_torch=not args.no_torch,
        with_errors=not args.no_errors,
        with_first_calls=args.race == "on",
    )
    if settings.num_rows == 0:
        return refuse("--layouts: one-dimensional layers have no nhwc")
    description = describe_run(gpu, argv)
    file = ResultFile(args.out or default_path(gpu, description["date"]), description)
    console = report.make_console()
    lost: str | None = None
    # Benchmarks run in first calls, so that rows measure final choices.
    with benchmark.forced(args.race == "on"), report.make_progress(console) as progress:
        task = progress.add_task("starting", total=settings.num_rows)
        try:
            for item in run(settings, timer, floors.rates_of(gpu), partial(free_bytes, device)):
                file.add(item)
                if isinstance(item, dict):
                    done = f"{item['layer']} {item['direction']} {item['precision']} {item['layout']}"
                    progress.update(task, advance=1, description=done)
                else:
                    progress.update(task, advance=item.num_rows, description=f"{item.layer} skipped")
        except DeviceLostError as error:
            lost = str(error)
    file.write(complete=lost is None)

    (print_rows or report.print_rows)(console, file.rows, f"{gpu}, torch {torch.__version__}")
    report.print_summary(console, file.rows, file.skipped)
    console.print(f"written: {file.path}", markup=False)
    if args.plot is not None:
        from convt_ext.bench import plot

        drawn = plot.draw(file.rows, f"{gpu}, torch {torch.__version__}", args.plot)
        words = f"drawn: {args.plot}" if drawn else "nothing to draw: no row has a time and a floor"
        console.print(words, markup=False)
    if lost is not None:
        console.print(f"stopped: {lost}", style="red", markup=False)
    failed = lost is not None or any("failure" in row for row in file.rows)
    return 1 if failed else 0


def select(args: argparse.Namespace) -> list[Layer]:
    """Returns the layers that the options select."""
    if args.csv is not None:
        return select_layers(read_csv(args.csv), args.layers or ["all"])
    return select_layers(BUILT_IN, args.layers) if args.layers else list(KERNELBENCH)


def modes_of(args: argparse.Namespace) -> tuple[Mode, ...]:
    modes = tuple(MODES[name] for name in (*args.precisions, *(["default"] if args.default else [])))
    return tuple(map(by_name, modes)) if args.by_name else modes


def refuse(reason: str) -> int:
    print(f"convt_ext bench: {reason}", file=sys.stderr)
    return 2

"""``python -m convt_ext bench``: options, and one run of layers. benchmarks/harness extends it for contributors.

Exit status: 0; 1 if a row failed; 2 if nothing could be measured (no GPU, a wrong option, rich missing).
"""

from __future__ import annotations

import argparse
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
from convt_ext.tuning import benchmark

if TYPE_CHECKING:
    from rich.console import Console

_PRECISIONS = tuple(name for name in MODES if name != "default")


def list_of(option: str, allowed: tuple[str, ...]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        values = list(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))
        if not values or not set(values) <= set(allowed):
            raise argparse.ArgumentTypeError(f"{option}: got {text!r}, expected a list of {', '.join(allowed)}")
        return values

    return parse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(layer.name for layer in BUILT_IN)
    words = f"layers: names, globs or all (default kb*, with --csv all): {names}"
    parser.add_argument("--layers", nargs="+", metavar="NAME", help=words)
    parser.add_argument("--csv", type=Path, metavar="FILE", help="read layers of 1 to 3 dimensions from a CSV file")
    for option, allowed, default, which in (
        ("--directions", DIRECTIONS, ["fwd"], "fwd"),
        ("--precisions", _PRECISIONS, ["ieee"], "ieee"),
        ("--layouts", LAYOUTS, list(LAYOUTS), "both; one dimension has only nchw"),
    ):
        words = f"{', '.join(allowed)} (default {which})"
        parser.add_argument(option, type=list_of(option, allowed), default=default, metavar="LIST", help=words)
    parser.add_argument("--out", type=Path, metavar="FILE", help="result file (default below benchmarks/results)")
    parser.add_argument("--budget-ms", type=float, default=100.0, metavar="MS", help="GPU time per timing (100)")
    parser.add_argument("--no-errors", action="store_true", help="do not compare results with float64")
    words = "on: benchmark each shape in its first call; off: the cost model chooses (default on)"
    parser.add_argument("--race", choices=("on", "off"), default="on", help=words)
    words = "also measure PyTorch's default: float32, precision=None"
    parser.add_argument("--default", action="store_true", help=words)
    words = "use kernels of convt_ext in every mode: bf16 with backend='convt_ext'"
    parser.add_argument("--by-name", action="store_true", help=words)


def run_command(args: argparse.Namespace, argv: list[str], *, timer: Timer | None = None) -> int:
    """Runs ``bench``. A ``timer`` (in tests) replaces the GPU's; everything then runs on the CPU."""
    try:
        check_options(args)
        layers = select(args)
    except (OSError, ValueError) as error:
        return refuse(str(error))
    missing = None if timer is not None else why_nothing_runs()
    return refuse(missing) if missing else measure(args, argv, layers, modes_of(args), timer)


def check_options(args: argparse.Namespace) -> None:
    if args.budget_ms <= 0:
        raise ValueError(f"--budget-ms must be positive, got {args.budget_ms}")


def why_nothing_runs() -> str | None:
    """Returns why nothing can be measured here, or None."""
    if not torch.cuda.is_available():
        return "needs a GPU, and PyTorch finds none (convt_ext.explain and report show the plans without one)"
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
    try:
        from convt_ext.bench import report
    except ModuleNotFoundError as error:
        return refuse(_optional.remedy(error))
    device, gpu = machine(timer)
    timer = timer or CudaTimer(device, args.budget_ms)
    # Benchmarks run in first calls, so that rows measure final choices.
    benchmarks = args.race == "on"
    of_calls = tuple(args.directions), tuple(args.layouts)
    settings = Settings(tuple(layers), modes, *of_calls, device, not args.no_errors, with_first_calls=benchmarks)
    if settings.num_rows == 0:
        return refuse("--layouts: one-dimensional layers have no nhwc")
    description = describe_run(gpu, argv)
    file = ResultFile(args.out or default_path(gpu, description["date"]), description)
    console = report.make_console()
    lost: str | None = None
    with benchmark.forced(benchmarks), report.make_progress(console) as progress:
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
    if lost is not None:
        console.print(f"stopped: {lost}", style="red", markup=False)
    return int(lost is not None or any("failure" in row for row in file.rows))


def select(args: argparse.Namespace) -> list[Layer]:
    if args.csv is not None:
        return select_layers(read_csv(args.csv), args.layers or ["all"])
    return select_layers(BUILT_IN, args.layers) if args.layers else list(KERNELBENCH)


def modes_of(args: argparse.Namespace) -> tuple[Mode, ...]:
    modes = tuple(MODES[name] for name in (*args.precisions, *(["default"] if args.default else [])))
    return tuple(map(by_name, modes)) if args.by_name else modes


def refuse(reason: str) -> int:
    print(f"convt_ext bench: {reason}", file=sys.stderr)
    return 2

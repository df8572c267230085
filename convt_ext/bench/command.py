"""``python -m convt_ext bench``: options, and one run of layers, programs or steps of networks.

Exit status: 0; 1 if a row failed; 2 if nothing could be measured (no GPU, a wrong option, rich missing).
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

import convt_ext
from convt_ext import _extension, _optional
from convt_ext.bench import ahead, floors, program_rows, program_sets, programs, steps
from convt_ext.bench.layers import BUILT_IN, KERNELBENCH, Layer, read_csv, select_layers
from convt_ext.bench.modes import MODES, Mode, by_name
from convt_ext.bench.neighbours import select_neighbours
from convt_ext.bench.operands import DIRECTIONS, LAYOUTS
from convt_ext.bench.results import ResultFile, default_path, describe_run
from convt_ext.bench.runner import DeviceLostError, Settings, run
from convt_ext.bench.timing import CudaTimer, Timer
from convt_ext.gpus import GPUS
from convt_ext.tuning import benchmark

if TYPE_CHECKING:
    from rich.console import Console

_PRECISIONS = tuple(name for name in MODES if name != "default")


def _list_of(option: str, allowed: tuple[str, ...]) -> Callable[[str], list[str]]:
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
        help=f"layers: names, globs or all (default kb*, with --csv and --neighbours all): {names}",
    )
    parser.add_argument("--csv", type=Path, metavar="FILE", help="read the layers from a CSV file of model layers")
    parser.add_argument(
        "--directions",
        type=_list_of("--directions", DIRECTIONS),
        default=["fwd"],
        metavar="LIST",
        help="fwd, dx, dw (default fwd)",
    )
    parser.add_argument(
        "--precisions",
        type=_list_of("--precisions", _PRECISIONS),
        default=["ieee"],
        metavar="LIST",
        help=f"{', '.join(_PRECISIONS)} (default ieee)",
    )
    parser.add_argument(
        "--layouts",
        type=_list_of("--layouts", LAYOUTS),
        default=list(LAYOUTS),
        metavar="LIST",
        help="nchw, nhwc (default both)",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="result file (default below benchmarks/results)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also draw the rows as a picture (.png, .svg, .pdf)")
    parser.add_argument(
        "--budget-ms", type=float, default=100.0, metavar="MS", help="GPU time per timing, or per loop of steps (100)"
    )
    parser.add_argument("--no-torch", action="store_true", help="do not time PyTorch's operator")
    parser.add_argument("--no-errors", action="store_true", help="do not compare results with float64")
    parser.add_argument(
        "--race",
        choices=("on", "off"),
        default="on",
        help="on: benchmark each shape in its first call; off: the cost model chooses, and programs run with "
        "PyTorch's cudnn.benchmark off (default on)",
    )
    parser.add_argument(
        "--default", action="store_true", help="also measure PyTorch's default: float32, precision=None"
    )
    parser.add_argument(
        "--neighbours",
        action="store_true",
        help="the neighbour grid with explicit precisions: layers, and variants that differ in one argument",
    )
    parser.add_argument(
        "--by-name",
        action="store_true",
        help="use kernels of convt_ext in every mode: bf16 with backend='convt_ext'",
    )
    parser.add_argument("--steps", action="store_true", help="steps of whole networks in wall time, instead of layers")
    parser.add_argument(
        "--programs",
        nargs="*",
        metavar="NAME",
        help="layers with the following operations, and compiled training steps, instead of layers: names, globs, sets "
        "or all",
    )
    parser.add_argument(
        "--modes",
        type=_list_of("--modes", tuple(program_sets.MODES)),
        metavar="LIST",
        help=f"with --programs: {', '.join(program_sets.MODES)} (default all)",
    )
    parser.add_argument(
        "--ahead",
        type=int,
        default=0,
        metavar="N",
        help="with --programs: first compile them in N processes, into Inductor's cache",
    )
    parser.add_argument(
        "--summary", nargs="+", type=Path, metavar="FILE", help="print the summary of result files; measures nothing"
    )
    parser.add_argument("--dry-run", action="store_true", help="print layers, floors and plans; needs no GPU")
    parser.add_argument("--gpu", choices=GPUS, metavar="NAME", help=f"with --dry-run: {', '.join(GPUS)} (default H200)")


def run_command(args: argparse.Namespace, argv: list[str], *, timer: Timer | None = None) -> int:
    """Runs ``bench``. A ``timer`` (in tests) replaces the GPU's; everything then runs on the CPU."""
    try:
        _refuse_mixtures(args)
        kept = [json.loads(path.read_text(encoding="utf-8")) for path in args.summary or ()]
        layers, cases = _layers(args), _cases(args)
    except (OSError, ValueError) as error:
        return _refuse(str(error))
    try:
        from convt_ext.bench import report

        if args.plot is not None:
            importlib.import_module("convt_ext.bench.plot")  # reports a missing package before an hour of measuring
    except ModuleNotFoundError as error:
        return _refuse(_optional.remedy(error))
    if kept:
        console = report.make_console()
        for path, content in zip(args.summary, kept, strict=True):
            report.print_kept(console, path.name, content)
        return 0
    if args.dry_run:
        _print_plans(args, layers, cases)
        return 0
    if timer is None:
        if not torch.cuda.is_available():
            return _refuse("needs a GPU, and PyTorch finds none (--dry-run shows the plans without one)")
        if not convt_ext.is_available():
            return _refuse(_extension.unavailable_reason() or "the kernels cannot run here")
    with benchmark.forced(args.race == "on"):  # benchmarks in first calls, so that rows measure final choices
        if cases or args.steps:
            return _run_programs(args, argv, cases, timer)
        return _run(args, argv, layers, timer)


def _refuse_mixtures(args: argparse.Namespace) -> None:
    """Raises ValueError for options that exclude each other."""
    if args.budget_ms <= 0:
        raise ValueError(f"--budget-ms must be positive, got {args.budget_ms}")
    of_layers = {"--layers": args.layers, "--csv": args.csv, "--plot": args.plot, "--neighbours": args.neighbours}
    wrong = [name for name, value in of_layers.items() if value]
    if args.steps:
        others = {"--dry-run": args.dry_run, "--programs": args.programs is not None}
        wrong += [name for name, value in others.items() if value]
    if wrong and (args.steps or args.programs is not None):
        option, measured = ("--steps", "networks") if args.steps else ("--programs", "programs")
        raise ValueError(f"{option} measures {measured} and does not support {', '.join(wrong)}")
    if args.gpu and not args.dry_run:
        raise ValueError("--gpu requires --dry-run: measurements use the installed GPU")
    for option, value in (("--modes", args.modes), ("--ahead", args.ahead)):
        if value and args.programs is None:
            raise ValueError(f"{option} requires --programs")
    if args.neighbours and (args.csv is not None or args.default):
        raise ValueError(
            "--neighbours has its own layers and explicit precisions: it does not support --csv and --default"
        )


def _machine(timer: Timer | None) -> tuple[torch.device, str]:
    """Returns the device that everything runs on, and the GPU's name."""
    if timer is not None:
        return torch.device("cpu"), "none"
    device = torch.device("cuda", torch.cuda.current_device())
    return device, torch.cuda.get_device_name(device)


def _run_programs(
    args: argparse.Namespace, argv: list[str], cases: list[program_rows.Case], timer: Timer | None
) -> int:
    """Measures `cases`, or the steps of networks if there are none."""
    from convt_ext.bench import report

    device, gpu = _machine(timer)
    if cases:
        num_rows = len(cases)
        if args.ahead > 0:
            compiled = [case for case in cases if case.mode != "eager"]
            names = list(dict.fromkeys(case.program.name for case in compiled))
            modes = list(dict.fromkeys(case.mode for case in compiled))
            ahead.compile_programs(names, modes, args.race, args.ahead)
        timer = timer or CudaTimer(device, args.budget_ms)
        rows = program_rows.run(cases, device, timer, args.budget_ms, benchmarks=args.race == "on")
    else:
        num_rows, rows = steps.num_rows(programs.PROGRAMS), steps.run(programs.PROGRAMS, device, args.budget_ms)
    description = describe_run(gpu, argv)
    file = ResultFile(args.out or default_path(gpu, description["date"]), description)
    console = report.make_console()
    with report.make_progress(console) as progress:
        task = progress.add_task("starting", total=num_rows)
        for row in rows:
            file.add(row)
            progress.update(task, advance=1, description=f"{row['program']} {row['mode']} {row['dtype']}")
    file.write(complete=True)
    report.print_programs(console, file.rows, f"{gpu}, torch {torch.__version__}")
    console.print(f"written: {file.path}", markup=False)
    return 1 if any("failure" in row for row in file.rows) else 0


def _run(args: argparse.Namespace, argv: list[str], layers: list[Layer], timer: Timer | None) -> int:
    from convt_ext.bench import report

    device, gpu = _machine(timer)
    timer = timer or CudaTimer(device, args.budget_ms)
    settings = Settings(
        layers=tuple(layers),
        modes=_modes(args),
        directions=tuple(args.directions),
        layouts=tuple(args.layouts),
        device=device,
        with_torch=not args.no_torch,
        with_errors=not args.no_errors,
        with_first_calls=args.race == "on",
    )
    description = describe_run(gpu, argv)
    file = ResultFile(args.out or default_path(gpu, description["date"]), description)
    console = report.make_console()
    lost: str | None = None
    with report.make_progress(console) as progress:
        task = progress.add_task("starting", total=settings.num_rows)
        try:
            for item in run(settings, timer, floors.rates_of(gpu), partial(steps.free_bytes, device)):
                file.add(item)
                if isinstance(item, dict):
                    done = f"{item['layer']} {item['direction']} {item['precision']} {item['layout']}"
                    progress.update(task, advance=1, description=done)
                else:
                    progress.update(task, advance=item.num_rows, description=f"{item.layer} skipped")
        except DeviceLostError as error:
            lost = str(error)
    file.write(complete=lost is None)

    report.print_rows(console, file.rows, f"{gpu}, torch {torch.__version__}")
    report.print_summary(console, file.rows, file.skipped)
    console.print(f"written: {file.path}", markup=False)
    if args.plot is not None:
        _plot(console, args.plot, file, f"{gpu}, torch {torch.__version__}")
    if lost is not None:
        console.print(f"stopped: {lost}", style="red", markup=False)
    failed = lost is not None or any("failure" in row for row in file.rows)
    return 1 if failed else 0


def _plot(console: Console, path: Path, file: ResultFile, title: str) -> None:
    from convt_ext.bench import plot

    drawn = plot.draw(file.rows, title, path)
    console.print(f"drawn: {path}" if drawn else "nothing to draw: no row has a time and a floor", markup=False)


def _print_plans(args: argparse.Namespace, layers: list[Layer], cases: list[program_rows.Case]) -> None:
    from convt_ext.bench import dry_run, report

    console, modes, gpu = report.make_console(), _modes(args), args.gpu or "H200"
    if cases:
        dry_run.print_programs(console, cases)
    elif args.neighbours:
        dry_run.print_neighbours(console, layers, modes, args.directions, args.layouts, gpu)
    else:
        dry_run.print_plans(console, layers, modes, args.layouts, gpu)


def _layers(args: argparse.Namespace) -> list[Layer]:
    if args.neighbours:
        return list(select_neighbours(args.layers or ["all"]))
    if args.csv is not None:
        return select_layers(read_csv(args.csv), args.layers or ["all"])
    return select_layers(BUILT_IN, args.layers) if args.layers else list(KERNELBENCH)


def _cases(args: argparse.Namespace) -> list[program_rows.Case]:
    """Returns the rows of ``--programs``; none without it."""
    if args.programs is None:
        return []
    return program_rows.select_cases(args.programs, args.modes or tuple(program_sets.MODES))


def _modes(args: argparse.Namespace) -> tuple[Mode, ...]:
    modes = tuple(MODES[name] for name in (*args.precisions, *(["default"] if args.default else [])))
    return tuple(map(by_name, modes)) if args.neighbours or args.by_name else modes


def _refuse(reason: str) -> int:
    print(f"convt_ext bench: {reason}", file=sys.stderr)
    return 2

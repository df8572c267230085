"""``python -m harness``: ``python -m convt_ext bench``, and its extensions for contributors.

Exit status: 0; 1 if a row failed; 2 if nothing could be measured (no GPU, a wrong option, rich missing).
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape

from convt_ext.bench import command as layers_command
from convt_ext.bench import report
from convt_ext.bench.modes import Mode, by_name
from convt_ext.bench.results import ResultFile, default_path, describe_run
from convt_ext.bench.timing import CudaTimer, Timer
from convt_ext.environment import _extension
from convt_ext.environment.gpus import GPUS, words_of
from convt_ext.tuning import benchmark
from harness import ahead, neighbour_report, planned, program_report, program_rows, program_sets, programs, steps
from harness.neighbours import select_neighbours


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m harness", description="Measure layers, programs and networks.")
    layers_command.add_arguments(parser)
    words = "the neighbour grid with explicit precisions: layers, and variants that differ in one argument"
    parser.add_argument("--neighbours", action="store_true", help=words)
    words = "steps of whole networks in wall time, instead of layers; --budget-ms is the time of a loop of steps"
    parser.add_argument("--steps", action="store_true", help=words)
    words = (
        "layers with the following operations, and compiled training steps, instead of layers: names, globs, sets or "
        "all; --race off runs them with PyTorch's cudnn.benchmark off"
    )
    parser.add_argument("--programs", nargs="*", metavar="NAME", help=words)
    modes = tuple(program_sets.MODES)
    words = f"with --programs: {', '.join(modes)} (default all)"
    parser.add_argument("--modes", type=layers_command.list_of("--modes", modes), metavar="LIST", help=words)
    words = "with --programs: first compile them in N processes, into Inductor's cache"
    parser.add_argument("--ahead", type=int, default=0, metavar="N", help=words)
    words = "print the summary of result files; measures nothing"
    parser.add_argument("--summary", nargs="+", type=Path, metavar="FILE", help=words)
    words = "print the cost model's estimates, or the programs; needs no GPU"
    parser.add_argument("--dry-run", action="store_true", help=words)
    parser.add_argument("--gpu", choices=GPUS, metavar="NAME", help=f"with --dry-run: {', '.join(GPUS)} (default H200)")
    return parser


def main(words: Sequence[str] | None = None, *, timer: Timer | None = None) -> int:
    """Runs the command. A ``timer`` (in tests) replaces the GPU's; everything then runs on the CPU."""
    argv = list(sys.argv[1:] if words is None else words)
    args = make_parser().parse_args(argv)
    argv = ["bench", *argv]
    try:
        _check_options(args)
        if args.summary:
            return _print_kept(args)
        chosen = select(args)
    except (OSError, ValueError) as error:
        return layers_command.refuse(str(error))
    modes = layers_command.modes_of(args)
    if args.neighbours:
        modes = tuple(map(by_name, modes))
    console = report.make_console()
    if args.dry_run:
        if args.programs is None:
            _print_estimates(console, args, chosen, modes)
        else:
            _print_programs(console, chosen)
        return 0
    missing = None if timer is not None else layers_command.why_nothing_runs()
    if missing:
        return layers_command.refuse(missing)
    if not args.steps and args.programs is None:
        print_rows = neighbour_report.print_grid if args.neighbours else report.print_rows
        return layers_command.measure(args, argv, chosen, modes, timer, print_rows)
    with benchmark.forced(args.race == "on"):  # benchmarks in first calls, so that rows measure final choices
        return _measure_programs(console, args, argv, chosen, timer)


def _check_options(args: argparse.Namespace) -> None:
    """Raises ValueError for options that exclude each other."""
    layers_command.check_options(args)
    if args.gpu and not args.dry_run:
        raise ValueError("--gpu requires --dry-run: measurements use the installed GPU")
    of_layers = {"--layers": args.layers, "--csv": args.csv, "--neighbours": args.neighbours}
    wrong = [name for name, value in of_layers.items() if value]
    if args.steps:
        others = {"--dry-run": args.dry_run, "--programs": args.programs is not None}
        wrong += [name for name, value in others.items() if value]
    if wrong and (args.steps or args.programs is not None):
        option, measured = ("--steps", "networks") if args.steps else ("--programs", "programs")
        raise ValueError(f"{option} measures {measured} and does not support {', '.join(wrong)}")
    for option, value in (("--modes", args.modes), ("--ahead", args.ahead)):
        if value and args.programs is None:
            raise ValueError(f"{option} requires --programs")
    if args.neighbours and (args.csv is not None or args.default):
        words = "--neighbours has its own layers and explicit precisions: it does not support --csv and --default"
        raise ValueError(words)


def select(args: argparse.Namespace) -> Sequence[Any]:
    """Returns what the options select: layers, rows of programs, or networks.

    Raises:
        OSError, ValueError: a file or a name does not exist.
    """
    if args.programs is not None:
        return program_rows.select_cases(args.programs, args.modes or tuple(program_sets.MODES))
    if args.neighbours:
        return select_neighbours(args.layers or ["all"])
    return programs.PROGRAMS if args.steps else layers_command.select(args)


def _measure_programs(
    console: Console, args: argparse.Namespace, argv: list[str], chosen: Sequence[Any], timer: Timer | None
) -> int:
    device, gpu = layers_command.machine(timer)
    if args.steps:
        num_rows, rows = steps.num_rows(chosen), steps.run(chosen, device, args.budget_ms)
    else:
        if args.ahead > 0:
            compiled = [case for case in chosen if case.mode != "eager"]
            names = list(dict.fromkeys(case.program.name for case in compiled))
            modes = list(dict.fromkeys(case.mode for case in compiled))
            ahead.compile_programs(names, modes, args.race, args.ahead)
        timer = timer or CudaTimer(device, args.budget_ms)
        num_rows = len(chosen)
        rows = program_rows.run(chosen, device, timer, args.budget_ms, benchmarks=args.race == "on")
    description = describe_run(gpu, argv)
    file = ResultFile(args.out or default_path(gpu, description["date"]), description)
    with report.make_progress(console) as progress:
        task = progress.add_task("starting", total=num_rows)
        for row in rows:
            file.add(row)
            progress.update(task, advance=1, description=f"{row['program']} {row['mode']} {row['dtype']}")
    file.write(complete=True)
    program_report.print_programs(console, file.rows, f"{gpu}, torch {torch.__version__}")
    console.print(f"written: {file.path}", markup=False)
    return 1 if any("failure" in row for row in file.rows) else 0


def _print_kept(args: argparse.Namespace) -> int:
    console = report.make_console()
    for path in args.summary:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        first: dict[str, Any] = next(iter(content["rows"]), {})
        if "program" in first:
            program_report.print_programs(console, content["rows"], report.title_of(path.name, content))
            continue
        if "base" in first:
            neighbour_report.print_grid(console, content["rows"], report.title_of(path.name, content))
        report.print_kept(console, path.name, content)
    return 0


def _print_estimates(console: Console, args: argparse.Namespace, layers: Sequence[Any], modes: Sequence[Mode]) -> None:
    if _extension.load_error is not None:
        console.print(f"No plans: {_extension.load_error}", style="red", markup=False)
        return
    gpu = args.gpu or "H200"
    rows = list(planned.planned_rows(layers, modes, args.directions, args.layouts, gpu))
    print_rows = neighbour_report.print_grid if args.neighbours else report.print_rows
    print_rows(console, rows, f"Estimates for {words_of(gpu)} (nothing is timed)")


def _print_programs(console: Console, cases: Sequence[program_rows.Case]) -> None:
    table = report.make_table("Programs (nothing is timed)", ("program", "mode", "inputs", "dtypes"), ())
    for (program, mode), group in itertools.groupby(cases, key=lambda case: (case.program, case.mode)):
        table.add_row(escape(program.name), mode, steps.inputs_of(program), ", ".join(case.dtype for case in group))
    console.print(table)

"""``python -m convt_ext info | check | demo | bench | tune | run``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import convt_ext
from convt_ext import _optional, run
from convt_ext.bench import command as bench
from convt_ext.tuning import command as tuning


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m convt_ext", description="Transposed convolution for PyTorch: look, test, show, measure."
    )
    parser.add_argument("--version", action="version", version=f"convt_ext {convt_ext.__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="versions, GPU, and whether the kernels can run here (and why not)")
    commands.add_parser("check", help="self-test of this installation (needs numpy); status 1 when a check fails")
    demo = commands.add_parser("demo", help="the KernelBench layers and two converted models beside PyTorch")
    demo.add_argument("--cpu", action="store_true", help="the reduced demo, even with a GPU")
    bench.add_arguments(commands.add_parser("bench", help="measure layers beside PyTorch (needs a GPU)"))
    tuning.add_arguments(commands.add_parser("tune", help="write, merge and show tuning files"))
    run.add_arguments(commands.add_parser("run", help="run a Python program, with its transposed convolutions served"))
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    args = make_parser().parse_args(words)
    if args.command == "bench":
        return bench.run_command(args, words)
    if args.command == "tune":
        return tuning.run_command(args)
    if args.command == "run":
        return run.run_program(args)
    if args.command == "info":
        from convt_ext.info import print_info

        return print_info()
    if args.command == "check":
        try:
            from convt_ext.check import run_check
        except ModuleNotFoundError as error:
            return _missing("check", error)
        return run_check()
    try:
        from convt_ext.demo import run_demo
    except ModuleNotFoundError as error:
        return _missing("demo", error)
    return run_demo(force_cpu=args.cpu)


def _missing(command: str, error: ModuleNotFoundError) -> int:
    print(f"convt_ext {command}: {_optional.remedy(error)}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())

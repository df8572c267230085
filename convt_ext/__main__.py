"""``python -m convt_ext info | check | demo | bench | tune | run``."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence

import convt_ext
from convt_ext.bench import command as bench
from convt_ext.environment import _optional
from convt_ext.tuning import command as tuning

# Help text and example of each command.
_COMMANDS = {
    "info": ("print versions, GPU and switches, and whether the kernels can run here", "info"),
    "check": (
        "compare kernels with the exact definition on this GPU (needs numpy); status 1 when a check fails",
        "check",
    ),
    "demo": ("show layers and converted models before and after, with times on a GPU (needs rich)", "demo"),
    "bench": ("measure layers against PyTorch (needs a GPU)", "bench --layers 'dcgan*'"),
    "tune": ("write, merge and show tuning files", "tune layers --csv layers.csv --out tuning.json"),
    "run": ("run an unchanged Python program with convt_ext enabled", "run train.py --epochs 3"),
}


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m convt_ext", description="Transposed convolution for PyTorch: inspect, verify, compare, measure."
    )
    parser.add_argument("--version", action="version", version=f"convt_ext {convt_ext.__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    parsers = {
        name: commands.add_parser(
            name,
            help=words,
            description=f"{words[0].upper()}{words[1:]}.",
            epilog=f"example: python -m convt_ext {call}",
        )
        for name, (words, call) in _COMMANDS.items()
    }
    parsers["demo"].add_argument("--cpu", action="store_true", help="run the reduced demo, even with a GPU")
    bench.add_arguments(parsers["bench"])
    tuning.add_arguments(parsers["tune"])
    run = parsers["run"]
    run.add_argument("-m", dest="is_module", action="store_true", help="the program is the name of a module")
    run.add_argument("program", help="a Python file, a folder or zip file with __main__.py, or a module with -m")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the program")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    args = make_parser().parse_args(words)
    if args.command == "bench":
        return bench.run_command(args, words)
    if args.command == "tune":
        return tuning.run_command(args)
    if args.command == "run":
        return _run_program(args)
    if args.command == "info":
        from convt_ext.environment.info import print_info

        return print_info()
    try:
        if args.command == "check":
            from convt_ext.check.command import run_check
        else:
            from convt_ext.demo.command import run_demo
    except ModuleNotFoundError as error:
        print(f"convt_ext {args.command}: {_optional.remedy(error)}", file=sys.stderr)
        return 2
    return run_check() if args.command == "check" else run_demo(args.cpu)


def _run_program(args: argparse.Namespace) -> int:
    """Runs the program as `__main__` in this process, as `python PROGRAM ...` does.

    Does not return if the program calls sys.exit.
    """
    sys.argv = [args.program, *args.arguments]
    convt_ext.enable()
    if args.is_module:
        sys.path[0] = os.getcwd()
        runpy.run_module(args.program, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(args.program))
        runpy.run_path(args.program, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())

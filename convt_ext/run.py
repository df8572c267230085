"""``python -m convt_ext run [-m] PROGRAM ...``: runs an unchanged program with convt_ext enabled.

Called by __main__.py. Runs the program as `__main__` in this process, as `python PROGRAM ...` does.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys

from .enabling import enable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", dest="is_module", action="store_true", help="the program is the name of a module")
    parser.add_argument("program", help="a Python file, a folder or zip file with __main__.py, or a module with -m")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the program")


def run_program(args: argparse.Namespace) -> int:
    """Runs the program; does not return if the program calls sys.exit."""
    sys.argv = [args.program, *args.arguments]
    enable()
    if args.is_module:
        sys.path[0] = os.getcwd()
        runpy.run_module(args.program, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(args.program))
        runpy.run_path(args.program, run_name="__main__")
    return 0

"""``python -m convt_ext run [-m] PROGRAM ...``: an unchanged program, whose transposed convolutions are served.

Called by __main__.py. As `python PROGRAM ...` it runs the program as `__main__` in this process.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys

from .enabling import enable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", dest="is_module", action="store_true", help="the program is a module's name")
    parser.add_argument("program", help="a Python file, a folder or zip file with __main__.py, or a module with -m")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the program")


def run_program(args: argparse.Namespace) -> int:
    """Does not return where the program ends by sys.exit."""
    sys.argv = [args.program, *args.arguments]
    enable()
    if args.is_module:
        sys.path[0] = os.getcwd()
        runpy.run_module(args.program, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(args.program))
        runpy.run_path(args.program, run_name="__main__")
    return 0

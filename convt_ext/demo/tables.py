"""Prints comparisons: tables of times and speedups, the largest error, and what failed. Needs the package rich.

Called by command.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import geometric_mean

from rich import box
from rich.console import Console

from convt_ext.bench.report import make_table, text
from convt_ext.demo.comparisons import Comparison

LAYOUT_WORDS = {"nchw": "NCHW", "nhwc": "channels_last"}


def show_comparisons(console: Console, title: str, comparisons: Sequence[Comparison], mean: bool = False) -> None:
    """Prints a table for each precision, with geometric means if `mean`, the largest error, and the skipped and failed
    calls. A table fits into 80 columns."""
    for precision in dict.fromkeys(one.precision for one in comparisons):
        rows = [one for one in comparisons if one.precision == precision]
        times = ("PyTorch µs", "convt_ext µs", "speedup")
        table = make_table(f"{title}, {precision}", ("", "layout"), times, box=box.SIMPLE_HEAD)
        for one in rows:
            us = (text(one.torch_us, "{:.1f}"), text(one.ours_us, "{:.1f}"))
            shown = _speedup(one.speedup, "*" if one.runs_torch else "")
            table.add_row(one.name, LAYOUT_WORDS[one.layout], *us, shown, style=None if one.holds else "red")
        for layout, words in LAYOUT_WORDS.items() if mean else ():
            values = [one.speedup for one in rows if one.layout == layout and one.speedup]
            table.add_row("geometric mean", words, "", "", _speedup(geometric_mean(values) if values else None))
        console.print(table)
    _show_notes(console, comparisons)


def _show_notes(console: Console, comparisons: Sequence[Comparison]) -> None:
    if any(one.runs_torch for one in comparisons):
        console.print("*: convt_ext runs PyTorch's operator, which is the faster one.", highlight=False)
    measured = [one for one in comparisons if not (one.failure or one.skipped)]
    if measured:
        largest = max(measured, key=lambda one: math.inf if math.isnan(one.error) else one.error / one.allowed)
        share, errors = largest.error / largest.allowed, f"{largest.error:.1e} of {largest.allowed:.1e}"
        words = f"Largest error: {share:.2f} of the allowed one ({_words(largest)}: {errors})."
        console.print(words, markup=False, highlight=False)
    for one in comparisons:
        if one.failure:
            console.print(f"failed: {_words(one)}: {one.failure}", style="red", markup=False)
        elif one.skipped:
            console.print(f"skipped: {_words(one)}: {one.skipped}", markup=False)
        elif not one.holds:
            words = f"wrong: {_words(one)}: error {one.error:.1e}, allowed {one.allowed:.1e}"
            console.print(words, style="red", markup=False)


def _words(one: Comparison) -> str:
    return f"{one.name}, {one.precision}, {LAYOUT_WORDS[one.layout]}"


def _speedup(value: float | None, mark: str = "") -> str:
    return "-" if value is None else f"[{'green' if value >= 1.0 else 'yellow'}]{value:.2f}x{mark}[/]"

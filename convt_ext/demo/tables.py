"""Prints comparisons: tables of times and speedups, the largest error, and what failed. Needs the package rich.

Called by command.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from convt_ext.bench.summary import geometric_mean
from convt_ext.demo.comparisons import Comparison

LAYOUT_WORDS = {"nchw": "NCHW", "nhwc": "channels_last"}

# The widest rows have 80 columns: a name of 26 characters and times of five digits.
_NARROW: dict[str, Any] = {"title_justify": "left", "padding": (0, 1, 0, 0), "pad_edge": False}
_MIN_NAME_WIDTH = 16


def show_comparisons(console: Console, title: str, comparisons: Sequence[Comparison], mean: bool = False) -> None:
    """Prints a table for each precision, the largest error, and the skipped and failed calls.

    A row contains, for each layout, PyTorch's time, the time of convt_ext and the speedup; with `mean`, a last row
    contains the geometric means.
    """
    for precision in dict.fromkeys(one.precision for one in comparisons):
        rows: dict[str, dict[str, Comparison]] = {}
        for one in comparisons:
            if one.precision == precision:
                rows.setdefault(one.name, {})[one.layout] = one
        table = Table(title=f"{title}, {precision}", box=box.SIMPLE_HEAD, show_edge=False, **_NARROW)
        table.add_column("", min_width=_MIN_NAME_WIDTH)
        for words in LAYOUT_WORDS.values():
            table.add_column(words, justify="right", no_wrap=True)
            table.add_column("", justify="right", no_wrap=True)
        for name, of_layouts in rows.items():
            cells = [cell for layout in LAYOUT_WORDS for cell in _time_cells(of_layouts.get(layout))]
            table.add_row(name, *cells, style=None if all(one.holds for one in of_layouts.values()) else "red")
        if mean:
            table.add_section()
            table.add_row("geometric mean", *_mean_cells(list(rows.values())))
        console.print(table)
        console.print()
    _show_notes(console, comparisons)
    console.print()


def _time_cells(one: Comparison | None) -> list[Any]:
    if one is None or one.torch_us is None or one.ours_us is None or one.speedup is None:
        return ["-", ""]
    return [f"{_us(one.torch_us)} → {_us(one.ours_us)} µs", _speedup(one.speedup, "*" if one.runs_torch else "")]


def _mean_cells(rows: Sequence[dict[str, Comparison]]) -> list[Any]:
    cells: list[Any] = []
    for layout in LAYOUT_WORDS:
        values = [speedup for row in rows if layout in row and (speedup := row[layout].speedup)]
        cells += ["", _speedup(geometric_mean(values)) if values else ""]
    return cells


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


def _speedup(value: float, mark: str = "") -> Text:
    return Text(f"{value:.2f}x{mark}", "green" if value >= 1.0 else "yellow")


def _us(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"

"""Shows comparisons in the terminal: tables of times and errors, and speedups as bars. Needs the package rich.

Called by command.py, with the results of comparisons.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.bar import Bar
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from convt_ext.bench.summary import geometric_mean
from convt_ext.demo.comparisons import Comparison

LAYOUT_WORDS = {"nchw": "NCHW", "nhwc": "channels_last"}

Series = tuple[str, str]  # precision and layout

_BAR_WIDTHS = 4, 14
_FASTER, _SLOWER = "green", "yellow"


def speedups(comparisons: Sequence[Comparison]) -> dict[str, dict[Series, float]]:
    """PyTorch's time over ours: by name, of each precision and layout that was measured."""
    found: dict[str, dict[Series, float]] = {}
    for one in comparisons:
        if one.speedup is not None:
            found.setdefault(one.name, {})[one.precision, one.layout] = one.speedup
    return found


def series_of(comparisons: Sequence[Comparison]) -> list[Series]:
    """The precisions and layouts, in the order in which they came."""
    return list(dict.fromkeys((one.precision, one.layout) for one in comparisons))


def show_comparisons(console: Console, title: str, comparisons: Sequence[Comparison], mean: bool = False) -> None:
    """A table with a row for each name and precision, and below it what was skipped and what failed.

    In each layout a cell has PyTorch's time and ours, and the next one the speedup.

    Args:
        mean: whether a last row has the geometric mean of each precision and layout.
    """
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("")
    table.add_column("")
    for words in LAYOUT_WORDS.values():
        table.add_column(words, justify="right", no_wrap=True)
        table.add_column("", justify="right", no_wrap=True)
    table.add_column("error", justify="right")
    table.add_column("allowed", justify="right")
    rows: dict[str, dict[str, dict[str, Comparison]]] = {}
    for one in comparisons:
        rows.setdefault(one.name, {}).setdefault(one.precision, {})[one.layout] = one
    for name, of_name in rows.items():
        for precision, of_layouts in of_name.items():
            times = [cell for layout in LAYOUT_WORDS for cell in _time_cells(of_layouts.get(layout))]
            style = None if all(one.holds for one in of_layouts.values()) else "red"
            table.add_row(name, precision, *times, *_error_cells(list(of_layouts.values())), style=style)
    if mean:
        table.add_section()
        for precision in dict.fromkeys(one.precision for one in comparisons):
            table.add_row("geometric mean", precision, *_mean_cells(comparisons, precision))
    console.print(table)
    _show_notes(console, comparisons)


def _time_cells(one: Comparison | None) -> list[Any]:
    if one is None or one.torch_us is None or one.ours_us is None or one.speedup is None:
        return ["-", ""]
    return [f"{_us(one.torch_us)} → {_us(one.ours_us)} µs", _speedup(one.speedup, "*" if one.runs_torch else "")]


def _error_cells(of_layouts: Sequence[Comparison]) -> list[str]:
    """The error that is nearest to what is allowed, or farthest above it."""
    known = [(one.error, one.allowed) for one in of_layouts if one.error is not None and one.allowed is not None]
    if not known:
        return ["-", "-"]
    error, allowed = next((one for one in known if one[0] != one[0]), max(known, key=lambda one: one[0] / one[1]))
    return [f"{error:.1e}", f"{allowed:.1e}"]


def _mean_cells(comparisons: Sequence[Comparison], precision: str) -> list[Any]:
    cells: list[Any] = []
    for layout in LAYOUT_WORDS:
        values = [
            one.speedup for one in comparisons if (one.precision, one.layout) == (precision, layout) and one.speedup
        ]
        cells += ["", _speedup(geometric_mean(values)) if values else ""]
    return cells


def _show_notes(console: Console, comparisons: Sequence[Comparison]) -> None:
    if any(one.runs_torch for one in comparisons):
        console.print("*: convt_ext runs PyTorch's operator, which is the faster one.", highlight=False)
    for one in comparisons:
        words = f"{one.name}, {one.precision}, {LAYOUT_WORDS[one.layout]}"
        if one.failure:
            console.print(f"failed: {words}: {one.failure}", style="red", markup=False)
        elif one.skipped:
            console.print(f"skipped: {words}: {one.skipped}", markup=False)
        elif not one.holds:
            error, allowed = _error_cells([one])
            console.print(f"wrong: {words}: error {error}, allowed {allowed}", style="red", markup=False)


def show_bars(console: Console, title: str, lines: dict[str, dict[Series, float]], series: Sequence[Series]) -> None:
    """Speedups as bars, a line for each name. Bars begin at PyTorch's speed, and the scale is logarithmic."""
    columns = [Column("", min_width=16)]
    for precision, layout in series:
        columns += [
            Column(f"{precision}\n{LAYOUT_WORDS[layout]}", min_width=_BAR_WIDTHS[0], max_width=_BAR_WIDTHS[1]),
            Column("", justify="right", no_wrap=True),
        ]
    table = Table(*columns, box=None)
    values = [1.0, *(value for of_name in lines.values() for value in of_name.values())]
    for name, of_name in lines.items():
        cells: list[Any] = []
        for one in series:
            value = of_name.get(one)
            cells += ["", ""] if value is None else [_bar(value, min(values), max(values)), _speedup(value)]
        table.add_row(name, *cells)
    words = f"\n{title}; bars begin at PyTorch's speed, logarithmic scale"
    console.print(words, style="italic", markup=False, highlight=False)  # a table's own title has its width
    console.print(table)


def _bar(value: float, least: float, most: float) -> Bar:
    """From 1 to the value, on a scale from the least to the most."""
    begin, end = sorted(math.log(one / least) for one in (1.0, value))
    return Bar(math.log(most / least) or 1.0, begin, end, color=_color(value))


def _speedup(value: float, mark: str = "") -> Text:
    return Text(f"{value:.2f}x{mark}", _color(value))


def _color(value: float) -> str:
    return _FASTER if value >= 1.0 else _SLOWER


def _us(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"

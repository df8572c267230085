"""Shows a run: progress while it goes, the table of rows and the summary after it.

Needs the package rich (extra ``bench``); imported only when something is shown.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from convt_ext.bench.runner import Row, Skipped

_MIN_WIDTH = 140  # a table written to a file or a log is not cut at 80 columns
_NUM_CLOSEST = 10


def make_console(**arguments: Any) -> Console:
    console = Console(**arguments)
    if not console.is_terminal:
        console.width = max(console.width, _MIN_WIDTH)
    return console


def make_progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def ratio(row: Row) -> float | None:
    """PyTorch's time over ours: above 1 we are faster."""
    ours, theirs = row["ours_us"], row["torch_us"]
    return None if not ours or theirs is None else theirs / ours


def counts(row: Row) -> bool:
    """Whether a row says something about our kernels: measured, and not served by PyTorch."""
    return row["kernel"] not in (None, "torch") and ratio(row) is not None


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def geometric_means(rows: Sequence[Row]) -> dict[tuple[str, str, str], tuple[float, int]]:
    """(direction, precision, layout) -> (geometric mean of PyTorch's time over ours, number of layers)."""
    groups: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for row in rows:
        value = ratio(row)
        if counts(row) and value is not None:
            groups[row["direction"], row["precision"], row["layout"]].append(value)
    return {key: (geometric_mean(values), len(values)) for key, values in groups.items()}


def closest_calls(rows: Sequence[Row]) -> list[Row]:
    """The rows of ours that win least against PyTorch, worst first."""
    return sorted((row for row in rows if counts(row)), key=lambda row: ratio(row) or 0.0)[:_NUM_CLOSEST]


def rows_table(rows: Sequence[Row], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    for name in ("layer", "direction", "precision", "layout"):
        table.add_column(name)
    for name in ("ours µs", "torch µs", "torch / ours", "floor µs", "of floor", "error", "torch error"):
        table.add_column(name, justify="right")
    table.add_column("kernel")
    for row in rows:
        table.add_row(*_cells(row), style="red" if "failure" in row else None)
    return table


def _cells(row: Row) -> list[str]:
    value, ours, floor = ratio(row), row["ours_us"], row["floor_us"]
    share = None if not ours or floor is None else floor / ours
    return [
        escape(row["layer"]),
        row["direction"],
        row["precision"],
        row["layout"],
        _microseconds(ours),
        _microseconds(row["torch_us"]),
        _colored_ratio(value) if counts(row) else _text(value, "{:.2f}x"),
        _microseconds(floor),
        _text(share, "{:.0%}"),
        _text(row["error"], "{:.1e}"),
        _text(row["torch_error"], "{:.1e}"),
        "failed" if "failure" in row else row["kernel"] or "-",
    ]


def _colored_ratio(value: float | None) -> str:
    if value is None:
        return "-"
    return f"[{'green' if value >= 1 else 'red'}]{value:.2f}x[/]"


def _microseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def _text(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def print_summary(console: Console, rows: Sequence[Row], skipped: Sequence[Skipped]) -> None:
    """Geometric means, the ten closest calls, what PyTorch served, what was skipped and what failed."""
    means = geometric_means(rows)
    if means:
        table = Table(title="PyTorch's time / ours, geometric mean", title_justify="left")
        for name in ("direction", "precision", "layout"):
            table.add_column(name)
        table.add_column("mean", justify="right")
        table.add_column("layers", justify="right")
        for key, (mean, number) in means.items():
            table.add_row(*key, _colored_ratio(mean), str(number))
        console.print(table)
        console.print(rows_table(closest_calls(rows), f"The {_NUM_CLOSEST} closest calls"))
    by_torch = sum(row["kernel"] == "torch" for row in rows)
    if by_torch:
        console.print(f"{by_torch} of {len(rows)} rows are served by PyTorch's operator and count for nothing above.")
    for item in skipped:
        console.print(f"skipped: {item.layer} ({item.num_rows} rows): {item.reason}", markup=False)
    for row in rows:
        if "failure" in row:
            where = f"{row['layer']} {row['direction']} {row['precision']} {row['layout']}"
            console.print(f"failed: {where}: {row['failure']}", style="red", markup=False)

"""Prints a run: its progress, then the table of rows and the summary.

Needs the package rich (extra ``bench``); imported only for output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Column, Table

from convt_ext.bench.runner import Row, Skipped
from convt_ext.bench.summary import SLOWER_BY, counts, parts, ratio, summarise

_MIN_WIDTH = 160  # a table written to a file or a log is not cut at 80 columns
_NUM_CLOSEST = 10
_NAMES_OF_ROW = ("layer", "direction", "precision", "layout")


def make_console(**arguments: Any) -> Console:
    console = Console(**arguments)
    if not console.is_terminal:
        console.width = max(console.width, _MIN_WIDTH)
    return console


def make_progress(console: Console) -> Progress:
    return Progress(console=console, transient=True, disable=not console.is_terminal)


def make_table(title: str, names: Sequence[str], figures: Sequence[str], *last: str, **options: Any) -> Table:
    """Makes a table with columns of names, columns of figures, which are aligned right, and the last columns."""
    columns: tuple[str | Column, ...] = (*names, *(Column(name, justify="right") for name in figures), *last)
    return Table(*columns, title=title, title_justify="left", **options)


def closest_calls(rows: Sequence[Row]) -> list[Row]:
    """Returns the rows of convt_ext kernels with the smallest speed-up over PyTorch, worst first."""
    return sorted((row for row in rows if counts(row)), key=lambda row: ratio(row) or 0.0)[:_NUM_CLOSEST]


def print_rows(console: Console, rows: Sequence[Row], title: str) -> None:
    figures = ("ours µs", "torch µs", "torch / ours", "floor µs", "of floor", "error", "torch error")
    table = make_table(title, _NAMES_OF_ROW, figures, "kernel")
    for row in rows:
        table.add_row(*_cells(row), style="red" if "failure" in row else None)
    console.print(table)


def _cells(row: Row) -> list[str]:
    value, ours, floor = ratio(row), row["ours_us"], row["floor_us"]
    shown = text(value, "{:.2f}x")
    return [
        escape(row["layer"]), row["direction"], row["precision"], row["layout"], _microseconds(ours),
        _microseconds(row["torch_us"]),
        f"[{'green' if value >= 1 else 'red'}]{shown}[/]" if value is not None and counts(row) else shown,
        _microseconds(floor), text(floor / ours if ours and floor is not None else None, "{:.0%}"),
        text(row["error"], "{:.1e}"), text(row["torch_error"], "{:.1e}"),
        "failed" if "failure" in row else row["kernel"] or "-",
    ]  # fmt: skip


def _microseconds(value: float | None) -> str:
    return text(value, "{:.1f}" if value is not None and value < 1000 else "{:.0f}")


def text(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def print_calls(console: Console, rows: Sequence[Row]) -> None:
    """Prints the speed-up of all calls of a run or a result file; a call that PyTorch's operator runs counts as 1."""
    found = {name: summary for name, part in parts(rows).items() if (summary := summarise(part)) is not None}
    if not found:
        return
    numbers = ("calls", "ours", *(f"> {share:.0%} slower" for share in SLOWER_BY))
    times = ("all, speed-up", "ours, speed-up", "ours, least", "all, ms", "PyTorch, ms")
    table = make_table("All calls; a call that PyTorch's operator runs counts as 1", [""], [*numbers, *times])
    table.columns[0].no_wrap = True
    for name, summary in found.items():
        table.add_row(
            name, str(summary.num_calls), str(summary.num_ours), *map(str, summary.num_slower),
            f"{summary.speedup:.3f}x", text(summary.speedup_of_ours, "{:.3f}x"), text(summary.worst, "{:.2f}x"),
            f"{summary.ours_ms:.2f}", f"{summary.torch_ms:.2f}",
        )  # fmt: skip
    console.print(table)
    of_all = found["all"]
    if of_all.num_calls < len(rows):
        console.print(f"{len(rows) - of_all.num_calls} calls lack a time and are not in these numbers.")
    if of_all.num_retimed:
        console.print(f"{of_all.num_retimed} calls seemed slower than PyTorch's; both sides were timed again.")
    if of_all.first_calls_ms:
        first = of_all.first_calls_ms
        console.print(
            f"A first call of convt_ext takes longer than PyTorch's by {of_all.median_first_call_ms:.1f} ms in the "
            f"median, {max(first):.1f} at most, {1e-3 * sum(first):.2f} s for {len(first)} calls, because it plans and "
            "benchmarks a shape."
        )


def print_summary(console: Console, rows: Sequence[Row], skipped: Sequence[Skipped]) -> None:
    """Prints the closest calls, the speed-ups, those that PyTorch ran, skipped rows and failures."""
    closest = closest_calls(rows)
    if closest:
        print_rows(console, closest, f"The {_NUM_CLOSEST} closest calls")
    print_calls(console, rows)
    by_torch = sum(row["kernel"] == "torch" for row in rows)
    if by_torch:
        console.print(f"{by_torch} of {len(rows)} rows run PyTorch's operator.")
    for item in skipped:
        console.print(f"skipped: {item.layer} ({item.num_rows} rows): {item.reason}", markup=False)
    print_failures(console, rows)


def print_failures(console: Console, rows: Sequence[Row], names: Sequence[str] = _NAMES_OF_ROW) -> None:
    """Prints the rows that failed; ``names`` are the keys that identify a row."""
    for row in rows:
        if "failure" in row:
            where = " ".join(str(row[name]) for name in names)
            console.print(f"failed: {where}: {row['failure']}", style="red", markup=False)


def print_kept(console: Console, name: str, content: dict[str, Any]) -> None:
    """Prints the summary of a result file of layers."""
    console.print(title_of(name, content), markup=False)
    print_summary(console, content["rows"], [Skipped(**item) for item in content["skipped"]])


def title_of(name: str, content: dict[str, Any]) -> str:
    ended = "" if content["complete"] else ", interrupted"
    return f"{name}: {content['gpu']}, torch {content['torch']}, {content['date'][:10]}{ended}"

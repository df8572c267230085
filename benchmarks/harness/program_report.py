"""Prints the rows of ``--programs``, with the figures of each set, mode and dtype, and the rows of ``--steps``.

Needs the package rich (extra ``bench``). Called by command.py. Shows targets next to the figures; a missed target has
no other effect.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from convt_ext.bench.report import print_failures
from convt_ext.bench.runner import Row
from harness import program_summary as summary


def print_programs(console: Console, rows: Sequence[Row], title: str) -> None:
    """Prints the rows of ``--programs`` or of ``--steps``."""
    if rows and "ours_us" in rows[0]:
        console.print(_rows_table(rows, title))
        if summary.figures(rows):
            console.print(_figures_table(rows))
    else:
        console.print(_steps_table(rows, title))
    print_failures(console, rows, ("program", "mode", "dtype", "batch"))


def _steps_table(rows: Sequence[Row], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    for name in ("program", "step", "inputs", "dtype"):
        table.add_column(name)
    for name in ("ours ms", "least to most", "torch ms", "least to most", "torch / ours"):
        table.add_column(name, justify="right")
    for row in rows:
        ours, theirs = row["ours_ms"], row["torch_ms"]
        cells = [row["program"], row["mode"], row["inputs"], row["dtype"]]
        for side, value in (("ours", ours), ("torch", theirs)):
            cells += [
                _text(value, "{:.3f}"),
                "-" if value is None else "{:.3f} to {:.3f}".format(*row[f"{side}_range_ms"]),
            ]
        value = theirs / ours if ours else None
        table.add_row(
            *cells, _marked(value, value is not None and value < 1), style="red" if "failure" in row else None
        )
    return table


def _rows_table(rows: Sequence[Row], title: str) -> Table:
    table = Table(title=title, title_justify="left", caption="* misses the target", caption_justify="left")
    for name in ("program", "mode", "dtype"):
        table.add_column(name)
    for name in ("ours µs", "torch µs", "torch / ours", "in wall time", "layer alone µs", "ours / alone"):
        table.add_column(name, justify="right")
    for name in ("error", "torch error", "kernels", "torch kernels"):
        table.add_column(name, justify="right")
    table.add_column("choices")
    for row in rows:
        slower, over = summary.is_slower(row), summary.is_over_limit(row)
        cells = [
            _text(row["ours_us"], "{:.1f}"),
            _text(row["torch_us"], "{:.1f}"),
            _marked(summary.ratio(row), slower),
            _text(summary.wall_ratio(row), "{:.2f}x"),
            _text(row["bare_us"], "{:.1f}"),
            _marked(summary.over_bare(row), over),
            _text(row["error"], "{:.1e}"),
            _text(row["torch_error"], "{:.1e}"),
            _text(row.get("ours_kernels"), "{}"),  # older files lack these
            _text(row.get("torch_kernels"), "{}"),
            _in_short(row.get("choices", ())),
        ]
        names = (escape(row["program"]), row["mode"], row["dtype"])
        table.add_row(*names, *cells, style="red" if "failure" in row else None)
    return table


def _figures_table(rows: Sequence[Row]) -> Table:
    table = Table(
        title="PyTorch's time / convt_ext's; the program's time / that of its layer alone", title_justify="left"
    )
    for name in ("set", "mode", "dtype"):
        table.add_column(name)
    for name in ("rows", "mean", "aim", "least", "slower", "over layer, mean", "most", "over limit"):
        table.add_column(name, justify="right")
    for key, found in summary.figures(rows).items():
        missed = found.aim is not None and found.mean < found.aim
        table.add_row(
            *key,
            str(found.num_rows),
            _marked(found.mean, missed),
            _text(found.aim, "{:.1f}x"),
            _text(found.least, "{:.2f}x"),
            str(found.num_slower),
            _text(found.over_bare, "{:.2f}x"),
            _text(found.most_over_bare, "{:.2f}x"),
            str(found.num_over_limit) if found.over_bare is not None else "-",
        )
    return table


def _in_short(choices: Sequence[str]) -> str:
    """Returns the distinct choices of a program, without the names of its layers.

    >>> _in_short(["conv_transpose2d: fused in NCHW", "conv_transpose2d_1: fused in NCHW"])
    'fused in NCHW'
    """
    return escape(", ".join(dict.fromkeys(text.partition(": ")[2] for text in choices)))


def _marked(value: float | None, is_missed: bool) -> str:
    if value is None:
        return "-"
    return f"[red]{value:.2f}x*[/]" if is_missed else f"{value:.2f}x"


def _text(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)

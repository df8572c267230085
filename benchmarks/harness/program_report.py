"""Figures of the rows of ``--programs``, with targets, and tables of them and of the rows of ``--steps``.

Needs the package rich. Called by command.py. Shows targets next to the figures; a missed target has no other effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from convt_ext.bench.report import make_table, print_failures, text
from convt_ext.bench.runner import Row
from convt_ext.bench.summary import geometric_mean, ratio
from harness.layer_programs import LAYER_PROGRAMS
from harness.program_sets import LAYERS, OF_CHAINS, OF_LEVEL2, set_of

# Targets for the geometric mean of PyTorch's time over convt_ext's, per set, mode and dtype, on an H200.
_MEANS = {
    (LAYERS, "eager", "float32"): 2.5,
    (LAYERS, "eager", "bfloat16"): 2.5,
    (LAYERS, "compiled", "float32"): 1.33,
    (LAYERS, "compiled", "bfloat16"): 1.22,
    (OF_LEVEL2, "compiled", "float32"): 1.10,
    (OF_LEVEL2, "compiled", "bfloat16"): 1.08,
    (OF_CHAINS, "compiled", "float32"): 1.25,
    (OF_CHAINS, "compiled", "bfloat16"): 1.12,
}
# Targets for single rows: not slower, up to noise; the rows of `_LEAST` have a larger minimum.
_NOISE = 0.97
_LEAST = {("train_compiled", "DCGAN generator"): 1.1}
_LIMITS = {program.name: program.limit for program in LAYER_PROGRAMS}


class Figures(NamedTuple):
    """Figures of the rows of a set, mode and dtype that have times."""

    num_rows: int
    num_slower: int  # rows that miss their target
    mean: float  # geometric mean of PyTorch's time over convt_ext's
    aim: float | None  # its target; None if only rows have targets
    least: float  # the minimum ratio
    over_bare: float | None  # geometric mean of the program's time over that of the layer without followers
    most_over_bare: float | None
    num_over_limit: int  # rows that exceed the limit of that ratio


def figures(rows: Sequence[Row]) -> dict[tuple[str, str, str], Figures]:
    """Returns the figures by (set, mode, dtype)."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if ratio(row) is not None:
            groups.setdefault((set_of(row["program"]), row["mode"], row["dtype"]), []).append(row)
    return {key: _figures_of(of_group, _MEANS.get(key)) for key, of_group in groups.items()}


def _figures_of(rows: Sequence[Row], aim: float | None) -> Figures:
    quotients = [row["torch_us"] / row["ours_us"] for row in rows]
    over = [value for row in rows if (value := _over_bare(row)) is not None]
    return Figures(
        num_rows=len(rows),
        num_slower=sum(map(_is_slower, rows)),
        mean=geometric_mean(quotients),
        aim=aim,
        least=min(quotients),
        over_bare=geometric_mean(over) if over else None,
        most_over_bare=max(over, default=None),
        num_over_limit=sum(map(_is_over_limit, rows)),
    )


def _over_bare(row: Row) -> float | None:
    """Returns convt_ext's time of the program over that of its layer without followers."""
    return row["ours_us"] / row["bare_us"] if row["ours_us"] and row["bare_us"] else None


def _wall_ratio(row: Row) -> float | None:
    """Returns PyTorch's wall time over convt_ext's; None if it was not measured."""
    ours, theirs = row["ours_wall_us"], row["torch_wall_us"]
    return theirs / ours if ours and theirs else None


def _is_slower(row: Row) -> bool:
    """Returns whether convt_ext misses the row's target, in GPU time or in wall time."""
    least = _LEAST.get((row["mode"], row["program"]), _NOISE)
    return any(value is not None and value < least for value in (ratio(row), _wall_ratio(row)))


def _is_over_limit(row: Row) -> bool:
    """Returns whether a fused program exceeds its limit relative to its layer without followers."""
    value, limit = _over_bare(row), _LIMITS.get(row["program"])
    return value is not None and limit is not None and value > limit


def print_programs(console: Console, rows: Sequence[Row], title: str) -> None:
    if rows and "ours_us" in rows[0]:
        console.print(_rows_table(rows, title))
        if figures(rows):
            console.print(_figures_table(rows))
    else:
        console.print(_steps_table(rows, title))
    print_failures(console, rows, ("program", "mode", "dtype", "batch"))


def _steps_table(rows: Sequence[Row], title: str) -> Table:
    times = ("ours ms", "least to most", "torch ms", "least to most", "torch / ours")
    table = make_table(title, ("program", "step", "inputs", "dtype"), times)
    for row in rows:
        cells = [row["program"], row["mode"], row["inputs"], row["dtype"]]
        for side in ("ours", "torch"):
            extremes = row[f"{side}_range_ms"]
            cells += [text(row[f"{side}_ms"], "{:.3f}"), "{:.3f} to {:.3f}".format(*extremes) if extremes else "-"]
        value = row["torch_ms"] / row["ours_ms"] if row["ours_ms"] else None
        cells.append(_marked(value, value is not None and value < 1))
        table.add_row(*cells, style="red" if "failure" in row else None)
    return table


def _rows_table(rows: Sequence[Row], title: str) -> Table:
    times = ("ours µs", "torch µs", "torch / ours", "in wall time", "layer alone µs", "ours / alone")
    others = ("error", "torch error", "kernels", "torch kernels")
    table = make_table(title, ("program", "mode", "dtype"), times + others, "choices", caption="* misses the target")
    for row in rows:
        names = (escape(row["program"]), row["mode"], row["dtype"])
        table.add_row(
            *names, text(row["ours_us"], "{:.1f}"), text(row["torch_us"], "{:.1f}"),
            _marked(ratio(row), _is_slower(row)), text(_wall_ratio(row), "{:.2f}x"), text(row["bare_us"], "{:.1f}"),
            _marked(_over_bare(row), _is_over_limit(row)), text(row["error"], "{:.1e}"),
            text(row["torch_error"], "{:.1e}"), text(row.get("ours_kernels"), "{}"),  # older files lack these
            text(row.get("torch_kernels"), "{}"), _in_short(row.get("choices", ())),
            style="red" if "failure" in row else None,
        )  # fmt: skip
    return table


def _figures_table(rows: Sequence[Row]) -> Table:
    title = "PyTorch's time / convt_ext's; the program's time / that of its layer alone"
    numbers = ("rows", "mean", "aim", "least", "slower", "over layer, mean", "most", "over limit")
    table = make_table(title, ("set", "mode", "dtype"), numbers)
    for key, found in figures(rows).items():
        mean = _marked(found.mean, found.aim is not None and found.mean < found.aim)
        over = text(found.over_bare, "{:.2f}x"), text(found.most_over_bare, "{:.2f}x")
        num_over = str(found.num_over_limit) if found.over_bare is not None else "-"
        of_set = str(found.num_rows), mean, text(found.aim, "{:.1f}x"), text(found.least, "{:.2f}x")
        table.add_row(*key, *of_set, str(found.num_slower), *over, num_over)
    return table


def _in_short(choices: Sequence[str]) -> str:
    """Returns the distinct choices of a program, without the names of its layers.

    >>> _in_short(["conv_transpose2d: fused in NCHW", "conv_transpose2d_1: fused in NCHW"])
    'fused in NCHW'
    """
    return escape(", ".join(dict.fromkeys(one.partition(": ")[2] for one in choices)))


def _marked(value: float | None, is_missed: bool) -> str:
    return f"[red]{value:.2f}x*[/]" if is_missed and value is not None else text(value, "{:.2f}x")

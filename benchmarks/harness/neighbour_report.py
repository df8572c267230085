"""Prints the rows of a neighbour grid: a table per base with its neighbours, then the figures of the grid.

Needs the package rich (extra ``bench``). Called by command.py for measured and for estimated rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from convt_ext.bench.runner import Row
from harness import neighbour_summary as summary
from harness.neighbour_summary import Beside

_NUM_JUMPS, _NUM_SLOWER = 20, 40  # numbers of listed calls
_MARKED_ABOVE = 1.5  # a neighbour's time over the floor, relative to its base's

_Call = tuple[str, str, str]


def print_grid(console: Console, rows: Sequence[Row], title: str) -> None:
    """Prints the tables of the bases and those of the whole grid."""
    console.print(
        f"{title}: time of convt_ext over the floor; * marks values above {_MARKED_ABOVE} times the base's.",
        markup=False,
    )
    for base in dict.fromkeys(row["base"] for row in rows):
        of_base = [row for row in rows if row["base"] == base]
        console.print(f"{base}: {_words(of_base[0])}", markup=False)
        console.print(_base_table(of_base))
    console.print(_figures_table(rows))
    jumps = sorted(summary.beside_bases(rows), key=lambda one: one.jump, reverse=True)
    console.print(_jumps_table([one for one in jumps if summary.is_judged(one.row)][:_NUM_JUMPS]))
    slower = summary.slower_than_torch(rows)
    if slower:
        console.print(_slower_table(slower))


def _call(row: Row) -> _Call:
    return row["direction"], row["precision"], row["layout"]


def _base_table(rows: Sequence[Row]) -> Table:
    """Makes a table with a line for the base and each neighbour, and a column per direction, precision and layout."""
    table = Table(padding=0)  # three precisions need eighteen columns
    table.add_column("change")
    calls = list(dict.fromkeys(map(_call, rows)))
    for call in calls:
        table.add_column(" ".join(call), justify="right")
    jumps = {(one.row["layer"], _call(one.row)): one.jump for one in summary.beside_bases(rows)}
    found = {(row["layer"], _call(row)): row for row in rows}
    for layer, change in dict.fromkeys((row["layer"], row["change"]) for row in rows):
        cells = [_cell(found.get((layer, call)), jumps.get((layer, call))) for call in calls]
        table.add_row(change or "none", *cells, end_section=change is None)
    return table


def _words(row: Row) -> str:
    """Describes the layer of a row."""
    shape = "{n} x {c_in} x {h} x {w} to {c_out} channels".format(**row)
    pairs = {"kernel": row["k"], "stride": row["s"], "padding": row["p"], "output padding": row["op"]}
    return ", ".join([shape, *(f"{name} {high} x {wide}" for name, (high, wide) in pairs.items())])


def _cell(row: Row | None, jump: float | None) -> str:
    value = None if row is None else summary.over_floor(row)
    if value is None:
        return "failed" if row is not None and "failure" in row else "-"
    return f"[red]{value:.1f}*[/]" if jump is not None and jump > _MARKED_ABOVE else f"{value:.1f}"


def _figures_table(rows: Sequence[Row]) -> Table:
    table = Table(
        title=f"The grid; time over the floor, for calls with a floor above {summary.JUDGED_ABOVE_US:.0f} µs",
        title_justify="left",
    )
    for name in ("precision", "layout", "directions"):
        table.add_column(name)
    slower = f"> {summary.SLOWER_BY:.0%} slower than PyTorch"
    for name in ("calls", "mean", "worst", "largest over base's", "of any floor", "compared", slower):
        table.add_column(name, justify="right")
    for key, of_calls in summary.figures(rows).items():
        quotients = (of_calls.mean, of_calls.worst, of_calls.jump, of_calls.any_jump)
        counted = (of_calls.num_compared, of_calls.num_slower) if of_calls.num_compared else ("-", "-")
        table.add_row(*key, str(of_calls.num_judged), *map(_quotient, quotients), *map(str, counted))
    return table


def _jumps_table(jumps: Sequence[Beside]) -> Table:
    table = _table_of_calls(f"The {len(jumps)} largest steps from a base to a neighbour, over the floor")
    for name in ("base", "neighbour", "over base's", "µs"):
        table.add_column(name, justify="right")
    table.add_column("kernel")
    for one in jumps:
        times = (one.of_base, one.own, one.jump)
        table.add_row(*_names(one.row), *map(_quotient, times), f"{one.row['ours_us']:.1f}", one.row["kernel"])
    return table


def _slower_table(slower: Sequence[Row]) -> Table:
    shown = slower[:_NUM_SLOWER]
    table = _table_of_calls(
        f"{len(slower)} calls are more than {summary.SLOWER_BY:.0%} slower than PyTorch, with PyTorch above "
        f"{summary.NEAR_FLOOR} times the floor; the worst {len(shown)}"
    )
    for name in ("ours µs", "torch µs", "ours / torch", "over floor"):
        table.add_column(name, justify="right")
    table.add_column("kernel")
    for row in shown:
        ours, theirs = row["ours_us"], row["torch_us"]
        times = (f"{ours:.1f}", f"{theirs:.1f}", _quotient(ours / theirs), _quotient(summary.over_floor(row)))
        table.add_row(*_names(row), *times, row["kernel"])
    return table


def _table_of_calls(title: str) -> Table:
    table = Table(title=title, title_justify="left")
    for name in ("layer", "direction", "precision", "layout"):
        table.add_column(name)
    return table


def _names(row: Row) -> tuple[str, ...]:
    return (escape(row["layer"]), *_call(row))


def _quotient(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"

"""Figures of a neighbour grid, and tables of them: time of each call over its floor, and that ratio over its base's.

Needs the package rich. Called by command.py and by the planner's tests, with measured or estimated rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from convt_ext.bench.report import make_table, text
from convt_ext.bench.runner import Row
from convt_ext.bench.summary import counts, geometric_mean, served_by

_JUDGED_ABOVE_US = 40.0  # below this floor, the launch overhead hides the kernel time
_SLOWER_BY = 0.05  # convt_ext compared with PyTorch
_NEAR_FLOOR = 1.2  # PyTorch's time over the floor; faster PyTorch calls are not compared

_NUM_JUMPS, _NUM_SLOWER = 20, 40  # numbers of listed calls
_MARKED_ABOVE = 1.5  # a neighbour's time over the floor, relative to its base's

_KINDS = {"fwd": "fwd and dx", "dx": "fwd and dx", "dw": "dw"}
_NAMES = ("layer", "direction", "precision", "layout")


class Beside(NamedTuple):
    """A neighbour's row compared with its base, in the same direction, precision and layout."""

    row: Row
    own: float  # time of convt_ext over the floor
    of_base: float  # likewise for the base

    @property
    def jump(self) -> float:
        """The ratio of the neighbour's time over the floor to its base's."""
        return self.own / self.of_base


class Figures(NamedTuple):
    """Figures of one precision and layout, for forward pass and gradient of the input, or for the weight gradient."""

    num_judged: int  # calls with a floor above 40 us, which the next three figures describe
    mean: float | None  # geometric mean of the time of convt_ext over the floor; None without such calls
    worst: float | None
    jump: float | None  # the largest `Beside.jump`
    any_jump: float | None  # the largest jump of all calls, regardless of their floor
    num_compared: int  # calls of convt_ext that were compared with PyTorch
    num_slower: int  # those in `slower_than_torch`


def over_floor(row: Row) -> float | None:
    """Returns the time of convt_ext over the floor; None if it was not measured or PyTorch's operator ran."""
    ours, floor = row["ours_us"], row["floor_us"]
    return ours / floor if ours and floor and served_by(row) == "ours" else None


def is_judged(row: Row) -> bool:
    return row["floor_us"] is not None and row["floor_us"] > _JUDGED_ABOVE_US


def beside_bases(rows: Sequence[Row]) -> list[Beside]:
    """Returns every neighbour that has a time and a base with a time."""
    values = [(row, (row["base"], *_call(row)), value) for row in rows if (value := over_floor(row)) is not None]
    bases = {call: value for row, call, value in values if row["change"] is None}
    return [Beside(row, value, bases[call]) for row, call, value in values if row["change"] and call in bases]


def slower_than_torch(rows: Sequence[Row]) -> list[Row]:
    """Returns the calls in which convt_ext is slower than PyTorch by more than 5 %, the slowest first.

    Excludes calls in which PyTorch is near the floor.
    """
    slower = [
        row
        for row in rows
        if counts(row)
        and row["ours_us"] > (1 + _SLOWER_BY) * row["torch_us"]
        and not (row["floor_us"] and row["torch_us"] <= _NEAR_FLOOR * row["floor_us"])
    ]
    return sorted(slower, key=lambda row: row["torch_us"] / row["ours_us"])


def figures(rows: Sequence[Row]) -> dict[tuple[str, str, str], Figures]:
    """Returns the figures by (precision, layout, directions)."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["precision"], row["layout"], _KINDS[row["direction"]]), []).append(row)
    return {key: _figures(group) for key, group in groups.items()}


def _figures(rows: Sequence[Row]) -> Figures:
    values = [value for row in rows if is_judged(row) and (value := over_floor(row)) is not None]
    jumps = beside_bases(rows)
    return Figures(
        num_judged=len(values),
        mean=geometric_mean(values) if values else None,
        worst=max(values, default=None),
        jump=max((one.jump for one in jumps if is_judged(one.row)), default=None),
        any_jump=max((one.jump for one in jumps), default=None),
        num_compared=sum(map(counts, rows)),
        num_slower=len(slower_than_torch(rows)),
    )


def print_grid(console: Console, rows: Sequence[Row], title: str) -> None:
    words = f"{title}: time of convt_ext over the floor; * marks values above {_MARKED_ABOVE} times the base's."
    console.print(words, markup=False)
    for base in dict.fromkeys(row["base"] for row in rows):
        of_base = [row for row in rows if row["base"] == base]
        console.print(f"{base}: {_words(of_base[0])}", markup=False)
        console.print(_base_table(of_base))
    console.print(_figures_table(rows))
    jumps = sorted(beside_bases(rows), key=lambda one: one.jump, reverse=True)
    console.print(_jumps_table([one for one in jumps if is_judged(one.row)][:_NUM_JUMPS]))
    slower = slower_than_torch(rows)
    if slower:
        console.print(_slower_table(slower))


def _call(row: Row) -> tuple[str, str, str]:
    return row["direction"], row["precision"], row["layout"]


def _base_table(rows: Sequence[Row]) -> Table:
    """Makes a table with a line for the base and each neighbour, and a column per direction, precision and layout."""
    calls = list(dict.fromkeys(map(_call, rows)))
    table = make_table("", ["change"], list(map(" ".join, calls)), padding=0)  # three precisions need eighteen columns
    jumps = {(one.row["layer"], _call(one.row)): one.jump for one in beside_bases(rows)}
    found = {(row["layer"], _call(row)): row for row in rows}
    for layer, change in dict.fromkeys((row["layer"], row["change"]) for row in rows):
        cells = [_cell(found.get((layer, call)), jumps.get((layer, call))) for call in calls]
        table.add_row(change or "none", *cells, end_section=change is None)
    return table


def _words(row: Row) -> str:
    shape = "{n} x {c_in} x {h} x {w} to {c_out} channels".format(**row)
    pairs = {"kernel": row["k"], "stride": row["s"], "padding": row["p"], "output padding": row["op"]}
    return ", ".join([shape, *(f"{name} {high} x {wide}" for name, (high, wide) in pairs.items())])


def _cell(row: Row | None, jump: float | None) -> str:
    value = None if row is None else over_floor(row)
    if value is None:
        return "failed" if row is not None and "failure" in row else "-"
    return f"[red]{value:.1f}*[/]" if jump is not None and jump > _MARKED_ABOVE else f"{value:.1f}"


def _figures_table(rows: Sequence[Row]) -> Table:
    title = f"The grid; time over the floor, for calls with a floor above {_JUDGED_ABOVE_US:.0f} µs"
    quotients = ("mean", "worst", "largest over base's", "of any floor")
    slower = f"> {_SLOWER_BY:.0%} slower than PyTorch"
    table = make_table(title, ("precision", "layout", "directions"), ("calls", *quotients, "compared", slower))
    for key, (num_judged, *values, num_compared, num_slower) in figures(rows).items():
        counted = (num_compared, num_slower) if num_compared else ("-", "-")
        table.add_row(*key, str(num_judged), *map(_quotient, values), *map(str, counted))
    return table


def _jumps_table(jumps: Sequence[Beside]) -> Table:
    title = f"The {len(jumps)} largest steps from a base to a neighbour, over the floor"
    table = make_table(title, _NAMES, ("base", "neighbour", "over base's", "µs"), "kernel")
    for one in jumps:
        times = (one.of_base, one.own, one.jump)
        table.add_row(*_names(one.row), *map(_quotient, times), f"{one.row['ours_us']:.1f}", one.row["kernel"])
    return table


def _slower_table(slower: Sequence[Row]) -> Table:
    shown = slower[:_NUM_SLOWER]
    title = (
        f"{len(slower)} calls are more than {_SLOWER_BY:.0%} slower than PyTorch, with PyTorch above {_NEAR_FLOOR} "
        f"times the floor; the worst {len(shown)}"
    )
    table = make_table(title, _NAMES, ("ours µs", "torch µs", "ours / torch", "over floor"), "kernel")
    for row in shown:
        ours, theirs = row["ours_us"], row["torch_us"]
        times = (f"{ours:.1f}", f"{theirs:.1f}", _quotient(ours / theirs), _quotient(over_floor(row)))
        table.add_row(*_names(row), *times, row["kernel"])
    return table


def _names(row: Row) -> tuple[str, ...]:
    return (escape(row["layer"]), *_call(row))


def _quotient(value: float | None) -> str:
    return text(value, "{:.2f}")

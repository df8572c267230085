"""Figures of a neighbour grid: time of each call relative to its floor, and that ratio relative to its base's.

Called by neighbour_report.py and by the planner's tests, with measured or estimated rows. Pure arithmetic on rows,
independent of torch and a GPU.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from convt_ext.bench.summary import counts, geometric_mean, served_by

if TYPE_CHECKING:
    from convt_ext.bench.runner import Row

JUDGED_ABOVE_US = 40.0  # below this floor, the launch overhead hides the kernel time
SLOWER_BY = 0.05  # convt_ext compared with PyTorch
NEAR_FLOOR = 1.2  # PyTorch's time over the floor; faster PyTorch calls are not compared

_KINDS = {"fwd": "fwd and dx", "dx": "fwd and dx", "dw": "dw"}


def over_floor(row: Row) -> float | None:
    """Returns the time of convt_ext over the floor; None if it was not measured or PyTorch's operator ran."""
    ours, floor = row["ours_us"], row["floor_us"]
    return ours / floor if ours and floor and served_by(row) == "ours" else None


def is_judged(row: Row) -> bool:
    """Returns whether a row's floor is long enough for the figures."""
    return row["floor_us"] is not None and row["floor_us"] > JUDGED_ABOVE_US


@dataclasses.dataclass(frozen=True)
class Beside:
    """A neighbour's row compared with its base, in the same direction, precision and layout.

    Attributes:
        row: the neighbour's row.
        own: time of convt_ext over the floor.
        of_base: time of convt_ext over the floor for the base.
    """

    row: Row
    own: float
    of_base: float

    @property
    def jump(self) -> float:
        """The ratio of the neighbour's time over the floor to its base's."""
        return self.own / self.of_base


def beside_bases(rows: Sequence[Row]) -> list[Beside]:
    """Returns every neighbour that has a time and a base with a time."""

    def call(row: Row) -> tuple[str, ...]:
        return row["base"], row["direction"], row["precision"], row["layout"]

    bases = {call(row): value for row in rows if row["change"] is None and (value := over_floor(row)) is not None}
    return [
        Beside(row, value, bases[call(row)])
        for row in rows
        if row["change"] is not None and (value := over_floor(row)) is not None and call(row) in bases
    ]


def slower_than_torch(rows: Sequence[Row]) -> list[Row]:
    """Returns the calls in which convt_ext is slower than PyTorch by more than `SLOWER_BY`, the slowest first.

    Excludes calls in which PyTorch is near the floor.
    """
    slower = [
        row
        for row in rows
        if counts(row)
        and row["ours_us"] > (1 + SLOWER_BY) * row["torch_us"]
        and not (row["floor_us"] and row["torch_us"] <= NEAR_FLOOR * row["floor_us"])
    ]
    return sorted(slower, key=lambda row: row["torch_us"] / row["ours_us"])


@dataclasses.dataclass(frozen=True)
class Figures:
    """Figures of one precision and layout, for forward pass and gradient of the input, or for the weight gradient.

    Attributes:
        num_judged: number of calls with a floor above `JUDGED_ABOVE_US`; the next three describe these calls.
        mean: geometric mean of the time of convt_ext over the floor; None without such calls.
        worst: maximum of the time over the floor.
        jump: the largest `Beside.jump`.
        any_jump: the largest jump of all calls, regardless of their floor.
        num_compared: number of calls of convt_ext that were compared with PyTorch; `num_slower` of them are in
            `slower_than_torch`.
    """

    num_judged: int
    mean: float | None
    worst: float | None
    jump: float | None
    any_jump: float | None
    num_compared: int
    num_slower: int


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

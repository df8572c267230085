"""What the rows of a neighbour grid say: how far each call is from its floor, and how much farther than its base.

Called by neighbour_report.py and by the planner's tests, with measured rows or with estimated ones. Pure arithmetic on
rows; knows nothing of torch or a GPU.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from convt_ext.bench.summary import counts, geometric_mean, served_by

if TYPE_CHECKING:
    from convt_ext.bench.runner import Row

JUDGED_ABOVE_US = 40.0  # below, what a launch costs hides what its kernel does
SLOWER_BY = 0.05  # ours beside PyTorch's
NEAR_FLOOR = 1.2  # a time of PyTorch's over the floor that nobody need beat

_KINDS = {"fwd": "fwd and dx", "dx": "fwd and dx", "dw": "dw"}


def over_floor(row: Row) -> float | None:
    """Our time over the floor; None where nobody measured it, or where our kernels did not serve."""
    ours, floor = row["ours_us"], row["floor_us"]
    return ours / floor if ours and floor and served_by(row) == "ours" else None


def is_judged(row: Row) -> bool:
    """Whether a row's floor is long enough for the figures."""
    return row["floor_us"] is not None and row["floor_us"] > JUDGED_ABOVE_US


@dataclasses.dataclass(frozen=True)
class Beside:
    """A neighbour's row beside the row of its base, in the same direction, precision and layout.

    Attributes:
        row: the neighbour's.
        own: our time for it over its floor.
        of_base: our time for the base over the base's floor.
    """

    row: Row
    own: float
    of_base: float

    @property
    def jump(self) -> float:
        """How much farther from its floor the neighbour is than its base."""
        return self.own / self.of_base


def beside_bases(rows: Sequence[Row]) -> list[Beside]:
    """Every neighbour that has a time, and whose base has one."""

    def call(row: Row) -> tuple[str, ...]:
        return row["base"], row["direction"], row["precision"], row["layout"]

    bases = {call(row): value for row in rows if row["change"] is None and (value := over_floor(row)) is not None}
    return [
        Beside(row, value, bases[call(row)])
        for row in rows
        if row["change"] is not None and (value := over_floor(row)) is not None and call(row) in bases
    ]


def slower_than_torch(rows: Sequence[Row]) -> list[Row]:
    """The calls of ours that take longer than PyTorch's by more than `SLOWER_BY`, the farthest behind first.

    Without those in which PyTorch is near the floor.
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
    """Of the calls of one precision and layout: of forward pass and gradient of the input, or of the weight's gradient.

    Attributes:
        num_judged: calls with a floor above `JUDGED_ABOVE_US`, which the next three are about.
        mean: our time over the floor, geometric mean; None where there is no such call.
        worst: its largest.
        jump: the largest `Beside.jump`.
        any_jump: the largest of all calls, whatever their floor.
        num_compared: calls of ours that were timed beside PyTorch's, `num_slower` of them `slower_than_torch`.
    """

    num_judged: int
    mean: float | None
    worst: float | None
    jump: float | None
    any_jump: float | None
    num_compared: int
    num_slower: int


def figures(rows: Sequence[Row]) -> dict[tuple[str, str, str], Figures]:
    """(precision, layout, directions) -> the figures of these calls."""
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

"""Figures of rows: which implementation ran, how often convt_ext was slower than PyTorch, and the overall speed-up.

Called by report.py. Pure arithmetic on rows of a run or a result file, independent of torch and a GPU.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from statistics import geometric_mean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from convt_ext.bench.runner import Row

SLOWER_BY = (0.02, 0.03, 0.10)  # convt_ext compared with PyTorch


@dataclasses.dataclass(frozen=True)
class Summary:
    """Figures of calls with times of both sides. Speedups are geometric means of PyTorch's time over convt_ext's."""

    num_calls: int
    num_ours: int  # calls that convt_ext kernels ran; PyTorch's operator ran the others
    num_slower: tuple[int, ...]  # calls of convt_ext kernels slower than PyTorch, for each limit of `SLOWER_BY`
    speedup: float  # of all calls; a call that PyTorch runs counts as 1
    speedup_of_ours: float | None  # of the calls of convt_ext kernels; None without any
    worst: float | None  # the minimum of these ratios; None likewise
    ours_ms: float  # time of all calls, with PyTorch's time for calls that PyTorch runs
    torch_ms: float  # time of all calls by PyTorch's operator
    num_retimed: int  # calls that were timed twice
    first_calls_ms: tuple[float, ...]  # extra time of each first call over PyTorch's; empty if not measured

    @property
    def median_first_call_ms(self) -> float | None:
        return statistics.median(self.first_calls_ms) if self.first_calls_ms else None


def ratio(row: Row) -> float | None:
    """Returns PyTorch's time over convt_ext's: above 1 convt_ext is faster."""
    ours, theirs = row["ours_us"], row["torch_us"]
    return None if not ours or theirs is None else theirs / ours


def served_by(row: Row) -> str | None:
    """Returns `ours`, `torch`, or None if neither ran; older files contain only the kernel."""
    if "chosen" in row:
        return row["chosen"]
    return None if row["kernel"] is None else "torch" if row["kernel"] == "torch" else "ours"


def counts(row: Row) -> bool:
    """Returns whether a row measures a convt_ext kernel: it has both times, and PyTorch did not run the call."""
    return served_by(row) == "ours" and ratio(row) is not None


def summarise(rows: Sequence[Row]) -> Summary | None:
    """Summarizes the rows that have both times; None if there are none."""
    measured = [row for row in rows if ratio(row) is not None and served_by(row) is not None]
    if not measured:
        return None
    of_ours = [row["torch_us"] / row["ours_us"] for row in measured if served_by(row) == "ours"]
    first = tuple(row["first_call_ms"] for row in measured if row.get("first_call_ms") is not None)
    return Summary(
        num_calls=len(measured),
        num_ours=len(of_ours),
        num_slower=tuple(sum(1 / value > 1 + share for value in of_ours) for share in SLOWER_BY),
        speedup=geometric_mean([*of_ours, *[1.0] * (len(measured) - len(of_ours))]),
        speedup_of_ours=geometric_mean(of_ours) if of_ours else None,
        worst=min(of_ours, default=None),
        ours_ms=1e-3 * sum(row["ours_us" if served_by(row) == "ours" else "torch_us"] for row in measured),
        torch_ms=1e-3 * sum(row["torch_us"] for row in measured),
        num_retimed=sum(bool(row.get("retimed")) for row in measured),
        first_calls_ms=first,
    )


def parts(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Returns all rows, and if there are several those of each direction, precision, layout and combination of them."""
    found = {"all": list(rows)}
    keys = [key for key in ("direction", "precision", "layout") if len({row[key] for row in rows}) > 1]
    for chosen in [*([key] for key in keys), *([keys] if len(keys) > 1 else [])]:
        for row in rows:
            found.setdefault(" ".join(row[key] for key in chosen), []).append(row)
    return found

"""What rows say together: who served, how often ours was slower than PyTorch, and by how much all calls became faster.

Called by report.py. Pure arithmetic on rows, of a run or of a kept file; knows nothing of torch or a GPU.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from convt_ext.bench.runner import Row

SLOWER_BY = (0.02, 0.03, 0.10)  # ours beside PyTorch's


@dataclasses.dataclass(frozen=True)
class Summary:
    """Of calls with a time on either side.

    Attributes:
        num_calls: measured calls; `num_ours` of them our kernels served, the others PyTorch's operator.
        num_slower: how many of ours took longer than PyTorch by more than each share of `SLOWER_BY`.
        speedup: geometric mean of PyTorch's time over ours, of all calls; a call that PyTorch serves counts as 1.
        speedup_of_ours: of our kernels' calls alone; None where there is none.
        worst: the least of these quotients; None likewise.
        ours_ms: time of all calls, where PyTorch serves PyTorch's.
        torch_ms: time of all calls by PyTorch's operator.
        num_retimed: calls of which each side's better one of two timings counts.
        first_calls_ms: what the first calls took longer than PyTorch's, each; empty where nobody measured it.
    """

    num_calls: int
    num_ours: int
    num_slower: tuple[int, ...]
    speedup: float
    speedup_of_ours: float | None
    worst: float | None
    ours_ms: float
    torch_ms: float
    num_retimed: int
    first_calls_ms: tuple[float, ...]

    @property
    def median_first_call_ms(self) -> float | None:
        return statistics.median(self.first_calls_ms) if self.first_calls_ms else None


def ratio(row: Row) -> float | None:
    """PyTorch's time over ours: above 1 we are faster."""
    ours, theirs = row["ours_us"], row["torch_us"]
    return None if not ours or theirs is None else theirs / ours


def served_by(row: Row) -> str | None:
    """`ours`, `torch`, or None where neither side ran; older files say it by the kernel alone."""
    if "chosen" in row:
        return row["chosen"]
    return None if row["kernel"] is None else "torch" if row["kernel"] == "torch" else "ours"


def counts(row: Row) -> bool:
    """Whether a row says something about our kernels: measured, and not served by PyTorch."""
    return served_by(row) == "ours" and ratio(row) is not None


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def summarise(rows: Sequence[Row]) -> Summary | None:
    """The summary of the rows that have both times; None where none has."""
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
    """All rows, and those of each precision, layout and direction where there are several."""
    found = {"all": list(rows)}
    for key in ("precision", "layout", "direction"):
        values = list(dict.fromkeys(row[key] for row in rows))
        if len(values) > 1:
            found |= {value: [row for row in rows if row[key] == value] for value in values}
    return found

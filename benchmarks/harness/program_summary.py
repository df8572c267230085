"""Figures of the rows of ``--programs``, with targets.

Called by program_report.py. Pure arithmetic on rows, of a run or of a result file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

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


@dataclasses.dataclass(frozen=True)
class Figures:
    """Figures of the rows of a set, mode and dtype that have times.

    Attributes:
        num_rows: number of rows; `num_slower` of them miss their target.
        mean: geometric mean of PyTorch's time over convt_ext's; `aim` is its target, None if only rows have targets.
        least: the minimum ratio.
        over_bare: geometric mean of the program's time over that of the layer without followers, None if no row has
            one; `most_over_bare` is the maximum, and `num_over_limit` rows exceed their limit.
    """

    num_rows: int
    num_slower: int
    mean: float
    aim: float | None
    least: float
    over_bare: float | None
    most_over_bare: float | None
    num_over_limit: int


def figures(rows: Sequence[Row]) -> dict[tuple[str, str, str], Figures]:
    """Returns the figures by (set, mode, dtype)."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if ratio(row) is not None:
            groups.setdefault((set_of(row["program"]), row["mode"], row["dtype"]), []).append(row)
    return {key: _figures_of(of_group, _MEANS.get(key)) for key, of_group in groups.items()}


def _figures_of(rows: Sequence[Row], aim: float | None) -> Figures:
    quotients = [row["torch_us"] / row["ours_us"] for row in rows]
    over = [value for row in rows if (value := over_bare(row)) is not None]
    return Figures(
        num_rows=len(rows),
        num_slower=sum(map(is_slower, rows)),
        mean=geometric_mean(quotients),
        aim=aim,
        least=min(quotients),
        over_bare=geometric_mean(over) if over else None,
        most_over_bare=max(over, default=None),
        num_over_limit=sum(map(is_over_limit, rows)),
    )


def over_bare(row: Row) -> float | None:
    """Returns convt_ext's time of the program over that of its layer without followers."""
    return row["ours_us"] / row["bare_us"] if row["ours_us"] and row["bare_us"] else None


def wall_ratio(row: Row) -> float | None:
    """Returns PyTorch's wall time over convt_ext's; None if it was not measured."""
    ours, theirs = row["ours_wall_us"], row["torch_wall_us"]
    return theirs / ours if ours and theirs else None


def is_slower(row: Row) -> bool:
    """Returns whether convt_ext misses the row's target, in GPU time or in wall time."""
    least = _LEAST.get((row["mode"], row["program"]), _NOISE)
    return any(value is not None and value < least for value in (ratio(row), wall_ratio(row)))


def is_over_limit(row: Row) -> bool:
    """Returns whether a fused program exceeds its limit relative to its layer without followers."""
    value, limit = over_bare(row), _LIMITS.get(row["program"])
    return value is not None and limit is not None and value > limit

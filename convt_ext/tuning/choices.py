"""Selects implementation and plan of one direction of one problem, and records the source of the choice.

The result is a `Choice`, from a benchmark in this process, else from a tuning file, else from the cost model. Called
by auto_dispatch.py and routing.py. Must not know tensors, and launches nothing.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ..dispatch import ops, planner, precision
from . import files

FORWARD, GRAD_INPUT, GRAD_WEIGHT = 0, 1, 2

# PyTorch's operator runs if its measured time is less than this multiple of convt_ext's: measured by a benchmark or
# with this cuDNN, and measured with another cuDNN, which may be slower than this one.
MARGIN, MARGIN_OF_ANOTHER_CUDNN = 1.03, 1.15

# Capacity of the least-recently-used cache of benchmarks, some 2 KiB each.
_MAX_MEASURED = 4096


class Choice(NamedTuple):
    """The choice for one direction of one problem."""

    by_torch: bool  # whether PyTorch's operator runs
    candidate: int  # the number of the plan among the planner's candidates; 0 is the planner's own choice
    ours_us: float  # time of convt_ext; infinite if no kernel fits
    torch_us: float  # time of PyTorch; 0 if unknown
    source: str  # "estimated", "measured here", or the name of the tuning file

    def why(self) -> str:
        """Returns both times and their source in one line."""
        if math.isinf(self.ours_us):
            return NO_TILE
        theirs = f"PyTorch about {self.torch_us:.0f} us" if self.torch_us else "PyTorch's time is unknown"
        return f"{self.source} {self.ours_us:.0f} us for convt_ext, {theirs}"


NO_TILE = "no convt_ext kernel supports this problem"
ESTIMATED, MEASURED = "estimated", "measured here"

_measured: OrderedDict[tuple[planner.Problem, int], Choice] = OrderedDict()
_lock = threading.Lock()


# Set while tune() measures: earlier choices are then ignored.
_only_measured = False


def find(problem: planner.Problem, direction: int) -> Choice | None:
    """Returns the choice of a benchmark in this process or of a tuning file; None if neither exists."""
    with _lock:
        found = _measured.get((problem, direction))
        if found is not None:
            _measured.move_to_end((problem, direction))
            return found
    return None if _only_measured else of_files(problem, direction)


@contextmanager
def begun_again() -> Iterator[None]:
    """Ignores all measurements that were made before entry."""
    global _only_measured
    forget_measured()
    _only_measured = True
    try:
        yield
    finally:
        _only_measured = False


def of_files(problem: planner.Problem, direction: int) -> Choice | None:
    """Returns the choice of the tuning files in force, which also applies to calls that request a kernel."""
    found = files.find(problem, direction) if ops.plan is not None else None
    if found is None:
        return None
    ours_us, torch_us, margin = found.ours_us, found.torch_us, MARGIN if found.same_cudnn else MARGIN_OF_ANOTHER_CUDNN
    if ours_us == 0 or torch_us == 0:  # the file does not contain this time
        best = planner.best_plan(problem, direction)
        if best is None:
            return None
        ours_us, torch_us, margin = ours_us or best.estimate_us, torch_us or best.torch_us, 1.0
    return Choice(0 < torch_us < margin * ours_us, found.candidate, ours_us, torch_us, f"in {found.file}:")


def estimated(problem: planner.Problem, direction: int) -> Choice:
    if ops.plan is None:  # the op will not run, so the choice has no effect
        return Choice(False, 0, math.inf, 0.0, ESTIMATED)
    best = planner.best_plan(problem, direction)
    if best is None:
        return Choice(True, 0, math.inf, 0.0, ESTIMATED)
    is_known = precision.has_estimates(precision.CLASSES[problem.code], planner.capability(problem.device))
    by_torch = not is_known or 0 < best.torch_us < best.estimate_us
    return Choice(by_torch, 0, best.estimate_us, best.torch_us, ESTIMATED)


def remember(problem: planner.Problem, direction: int, choice: Choice) -> None:
    with _lock:
        _measured[problem, direction] = choice
        _measured.move_to_end((problem, direction))
        while len(_measured) > _MAX_MEASURED:
            _measured.popitem(last=False)


def measured() -> list[tuple[planner.Problem, int, Choice]]:
    with _lock:
        return [(problem, direction, choice) for (problem, direction), choice in _measured.items()]


def forget_measured() -> None:
    """Drops the stored choices, so that every shape is benchmarked again."""
    with _lock:
        _measured.clear()

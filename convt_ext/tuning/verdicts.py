"""Which implementation computes one direction of one problem, with which of our plans, and what decided it.

The answer is a `Verdict`. It comes from a benchmark in this process, else from a tuning file, else from the cost
model. Called by chosen.py and routing.py. Must not know tensors, and launches nothing.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from .. import ops, planner, precision
from . import files

FORWARD, GRAD_INPUT, GRAD_WEIGHT = 0, 1, 2

# How much faster ours must be than PyTorch's operator, both measured: by a benchmark or for this cuDNN, and for another
# one, which may have become faster.
MARGIN, MARGIN_OF_ANOTHER_CUDNN = 1.03, 1.15

# Benchmarks that are remembered, the one that was asked for longest ago goes first: some 2 KiB each.
_MAX_MEASURED = 4096


class Verdict(NamedTuple):
    """Who computes one direction of one problem.

    Attributes:
        by_torch: PyTorch's operator does.
        candidate: the number of our plan among the planner's candidates; 0 is the planner's own choice.
        ours_us, torch_us: times in microseconds; infinite where none of ours serves, 0 where PyTorch's is not known.
        source: "estimated", "measured here", or the tuning file that holds it.
    """

    by_torch: bool
    candidate: int
    ours_us: float
    torch_us: float
    source: str

    def why(self) -> str:
        """Both times and where they come from, in one line."""
        if math.isinf(self.ours_us):
            return NO_TILE
        theirs = f"PyTorch about {self.torch_us:.0f} us" if self.torch_us else "PyTorch's time is not known"
        return f"{self.source} {self.ours_us:.0f} us here, {theirs}"


NO_TILE = "no kernel of ours has a tile that fits this problem"
ESTIMATED, MEASURED = "estimated", "measured here"

_measured: OrderedDict[tuple[planner.Problem, int], Verdict] = OrderedDict()
_lock = threading.Lock()


# While tune() measures, what is already known counts for nothing.
_only_measured = False


def find(problem: planner.Problem, direction: int) -> Verdict | None:
    """The choice of a benchmark in this process or of a tuning file; None where neither has one."""
    with _lock:
        found = _measured.get((problem, direction))
        if found is not None:
            _measured.move_to_end((problem, direction))
            return found
    return None if _only_measured else of_files(problem, direction)


@contextmanager
def begun_again() -> Iterator[None]:
    """Inside, only what is measured inside counts."""
    global _only_measured
    forget_measured()
    _only_measured = True
    try:
        yield
    finally:
        _only_measured = False


def of_files(problem: planner.Problem, direction: int) -> Verdict | None:
    """What the tuning files in force say: the same on every run, so a call that names its precision follows it, too."""
    found = files.find(problem, direction) if ops.plan is not None else None
    if found is None:
        return None
    ours_us, torch_us, margin = found.ours_us, found.torch_us, MARGIN if found.same_cudnn else MARGIN_OF_ANOTHER_CUDNN
    if ours_us == 0 or torch_us == 0:  # of which the file says nothing
        choice = planner.choice(problem, direction)
        if choice is None:
            return None
        ours_us, torch_us, margin = ours_us or choice.estimate_us, torch_us or choice.torch_us, 1.0
    return Verdict(0 < torch_us < margin * ours_us, found.candidate, ours_us, torch_us, f"in {found.file}:")


def estimated(problem: planner.Problem, direction: int) -> Verdict:
    """What the planner's estimates say."""
    if ops.plan is None:  # the op will not run, whatever is said here
        return Verdict(False, 0, math.inf, 0.0, ESTIMATED)
    choice = planner.choice(problem, direction)
    if choice is None:
        return Verdict(True, 0, math.inf, 0.0, ESTIMATED)
    is_known = precision.has_estimates(precision.WORDS[problem.code], planner.capability(problem.device))
    by_torch = not is_known or 0 < choice.torch_us < choice.estimate_us
    return Verdict(by_torch, 0, choice.estimate_us, choice.torch_us, ESTIMATED)


def remember(problem: planner.Problem, direction: int, verdict: Verdict) -> None:
    """Keeps the choice of a benchmark."""
    with _lock:
        _measured[problem, direction] = verdict
        _measured.move_to_end((problem, direction))
        while len(_measured) > _MAX_MEASURED:
            _measured.popitem(last=False)


def measured() -> list[tuple[planner.Problem, int, Verdict]]:
    """The choices of benchmarks in this process that are still remembered."""
    with _lock:
        return [(problem, direction, verdict) for (problem, direction), verdict in _measured.items()]


def forget_measured() -> None:
    """Has every shape benchmarked again."""
    with _lock:
        _measured.clear()

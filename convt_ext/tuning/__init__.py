"""Choosing by measuring: benchmarks of shapes that are called often, and files of earlier measurements.

| file | what it is |
|---|---|
| verdicts.py | which implementation and plan computes a direction of a problem, and what decided it |
| race.py | when a shape is benchmarked; times our best plans and PyTorch's operator in a call |
| files.py | tuning files: reading, writing, merging, finding a call |
| measuring.py | what users call: measuring a model or calls ahead of time, files in force, replay, ranks that agree |
| restoring.py | runs a model or function and restores gradients, buffers and random numbers |
| command.py | `python -m convt_ext tune` |
| shipped.json | what was measured on an H200 |

"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .measuring import agree, load, merge, replay, tune, unload

__all__ = ["agree", "load", "merge", "replay", "tune", "unload"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import measuring  # imports routing.py, which imports this package

    return getattr(measuring, name)

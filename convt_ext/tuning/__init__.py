"""Selection by measurement: benchmarks of shapes that are called often, and files of earlier measurements.

| file | content |
|---|---|
| choices.py | implementation and plan of a direction of a problem, and the source of the choice |
| benchmark.py | when a shape is benchmarked; times the best convt_ext plans and PyTorch's operator in a call |
| files.py | tuning files: reading, writing, merging, finding a call |
| measuring.py | public API: measuring a model or calls ahead of time, files in force, replay, agreement of ranks |
| restoring.py | runs a model or function and restores gradients, buffers and random number generators |
| command.py | `python -m convt_ext tune` |
| shipped.json | measurements from an H200 |

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

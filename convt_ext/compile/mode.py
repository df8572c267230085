"""How compiled programs may compute our layers: what the environment variable CONVT_EXT_COMPILE forces, and what this
release of PyTorch can do.

    auto        the default: the alternative with the least time (choice.py)
    fused       our op, with the pointwise operations that follow as steps
    bare        our op; Inductor fuses what follows in a pass of its own
    original    PyTorch's operator, so that the program is that of the unconverted model
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping

AUTO, FUSED, BARE, ORIGINAL = "auto", "fused", "bare", "original"
VARIABLE = "CONVT_EXT_COMPILE"


def _forced(environment: Mapping[str, str]) -> str:
    mode = environment.get(VARIABLE, "") or AUTO
    if mode in (AUTO, FUSED, BARE, ORIGINAL):
        return mode
    warnings.warn(
        f"convt_ext ignores {VARIABLE}: it must be auto, fused, bare or original, but is {mode!r}", RuntimeWarning,
        stacklevel=2,
    )  # fmt: skip
    return AUTO


MODE = _forced(os.environ)

# Why Inductor cannot be told how to compile our ops: a name of it that inductor.py uses has changed.
_failure: str | None = None


def has_failed() -> bool:
    """Whether what is traced from now on is the original."""
    return _failure is not None


def give_up(error: Exception) -> None:
    """Has PyTorch's operator traced from now on, and says why once."""
    global _failure
    if _failure is None:
        _failure = f"{type(error).__name__}: {error}"
        warnings.warn(
            f"convt_ext does not know this release of torch's compiler ({_failure}): compiled programs use PyTorch's "
            "operator. Remedy: another release of torch or of convt_ext", RuntimeWarning, stacklevel=2,
        )  # fmt: skip


def words() -> str:
    """What compiled programs do besides the default, for people; empty where they do that."""
    if _failure is not None:
        return f"PyTorch's operator: this release of torch's compiler is not known ({_failure})"
    return "" if MODE == AUTO else f"{MODE}, as {VARIABLE} says"

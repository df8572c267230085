"""The alternatives for a layer in compiled programs: the setting of the environment variable CONVT_EXT_COMPILE, and
whether this release of PyTorch is supported.

    auto        the default: the fastest alternative (choice.py)
    fused       the op of convt_ext, with the following pointwise operations as steps
    bare        the op of convt_ext; Inductor fuses the following operations in a separate pass
    original    PyTorch's operator, as in the program of the unconverted model
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

# Why the ops cannot be registered with Inductor: one of its names that inductor.py uses has changed.
_failure: str | None = None


def has_failed() -> bool:
    """Returns whether tracing now records PyTorch's operator."""
    return _failure is not None


def give_up(error: Exception) -> None:
    """Makes tracing record PyTorch's operator from now on, and warns once."""
    global _failure
    if _failure is None:
        _failure = f"{type(error).__name__}: {error}"
        warnings.warn(
            f"convt_ext does not support this release of torch's compiler ({_failure}): compiled programs use "
            "PyTorch's operator. Remedy: another release of torch or of convt_ext", RuntimeWarning, stacklevel=2,
        )  # fmt: skip


def words() -> str:
    """Describes the alternative of compiled programs; empty for the default."""
    if _failure is not None:
        return f"PyTorch's operator: this release of torch's compiler is not supported ({_failure})"
    return "" if MODE == AUTO else f"{MODE}, set by {VARIABLE}"

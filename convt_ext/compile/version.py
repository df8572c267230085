"""The version number of the code that compiles programs: caches on disk must not return a program of other code.

A compiled program calls functions of this package and depends on their behaviour. PyTorch's caches identify a program
by its graph, so tracing.py makes the number part of the graph.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

_FOLDER = Path(__file__).parent
_OTHERS = "epilogue.py", "frozen.py", "fused.py", "ops.py"
_FILES = (*sorted(_FOLDER.glob("*.py")), *(_FOLDER.parent / name for name in _OTHERS))


@functools.cache
def number() -> int:
    """Returns a digest of the sources, 48 bits."""
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in _FILES))
    return int.from_bytes(digest.digest()[:6], "big")

"""The names of all kernel instances, from the text of kernels/*/instances.h.

Called by raw_ops.py and by tools/charts.py, which needs neither torch nor a binary.
"""

from __future__ import annotations

import re
from pathlib import Path

_KERNELS = Path(__file__).resolve().parents[1] / "kernels"


def kernel_instances(kind: str) -> list[str]:
    """The names of the kernels in the class "exact" or "tensor cores", as plans and result files have them."""
    kernels = []
    for path in sorted(_KERNELS.glob("*/instances.h")):
        room = path.parent.name
        if kind != ("tensor cores" if room.endswith("_sm90a") or room == "portable" else "exact"):
            continue
        kernels += re.findall(r'^ +\{.*"(\w+)"', path.read_text(), re.MULTILINE)
    return kernels

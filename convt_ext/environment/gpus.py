"""Properties of GPUs, for plans on a machine without them.

Called by explain.py (``device="A100"``) and by ``bench --dry-run --gpu``. H200 and H100 are measured; the others are
the vendor's figures, scaled by the fractions of clock and memory bandwidth that an H200 reaches under load.
"""

from __future__ import annotations

# Compute capability, multiprocessors, shared memory per block and per multiprocessor (bytes), MHz, copy GB/s.
GPUS: dict[str, tuple[int, int, int, int, int, int]] = {
    "H200": (90, 132, 232448, 233472, 1891, 4213),
    "H100": (90, 132, 232448, 233472, 1890, 2933),
    "A100": (80, 108, 166912, 167936, 1347, 1784),
    "A10": (86, 72, 101376, 102400, 1619, 525),
    "L4": (89, 58, 101376, 102400, 1948, 262),
    "RTX 4090": (89, 128, 101376, 102400, 2407, 882),
    "RTX 5090": (120, 170, 101376, 102400, 2299, 1568),
}
MEASURED = frozenset({"H200", "H100"})


def words_of(name: str) -> str:
    """Returns the name of such a GPU in reports."""
    return f"an NVIDIA {name}" + ("" if name in MEASURED else " (computed from the vendor's figures, not measured)")

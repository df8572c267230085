"""GPUs that plans can be computed for without having one: what they report of themselves.

Called by explain.py (``device="A100"``) and by ``bench --dry-run --gpu``. An H200 and an H100 were measured; the others
are as their makers describe them, with the shares of clock and memory bandwidth that an H200 keeps under load.
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
    """How reports call such a GPU."""
    return f"an NVIDIA {name}" + ("" if name in MEASURED else " (computed from its maker's numbers, not measured)")

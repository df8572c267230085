"""How far results of one call may be from the exact ones: ||result - exact|| / ||exact||, exact in float64.

Called by check.py and by the demo. docs/numerics.md says what the classes promise.
"""

from __future__ import annotations

# By dtype or class. A result of few elements and products scatters around the promises, which are for 4096 elements:
# float64 and the half types get two roundings of their dtype.
ERROR_LIMITS = {
    "float32": 1e-6,
    "tf32x3": 1e-6,
    "tf32": 5e-4,
    "float64": 1e-14,
    "float16": 1e-3,
    "bfloat16": 8e-3,
}

"""The CUDA version that the installed NVIDIA driver supports, and whether the binary's runtime works with it.

Called by _extension.py, by info.py, and by tuning/, which also reads the driver's version and keeps benchmarks from
invalidating graphs that other threads capture. A torch of another CUDA version may work with a driver that is too old
for this package, so torch cannot answer this. Touches no GPU.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# The first driver of each CUDA major (CUDA Toolkit release notes, "CUDA minor version compatibility").
_OLDEST_DRIVER = {12: "525", 13: "580"}


def version() -> str:
    """Returns the driver's version, such as "580.95.05"; else the CUDA version that it supports, or ""."""
    with suppress(OSError):
        found = re.search(r"\b\d+\.\d+(\.\d+)?\b", Path("/proc/driver/nvidia/version").read_text(encoding="utf-8"))
        if found is not None:
            return found[0]
    return ".".join(map(str, cuda_of_driver() or ()))


_CAPTURE_MODE_RELAXED = 2


@contextmanager
def relaxed_capture() -> Iterator[None]:
    """Inside, CUDA calls of this thread do not invalidate a CUDA graph that another thread is capturing."""
    mode = ctypes.c_int(_CAPTURE_MODE_RELAXED)
    exchange = ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode
    exchange(ctypes.byref(mode))  # `mode` is now the previous mode
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))


@functools.cache
def cuda_of_driver() -> tuple[int, int] | None:
    """Returns the newest CUDA version that the driver supports, such as (13, 0); None without a driver."""
    try:
        query = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion
    except (OSError, AttributeError):
        return None
    version = ctypes.c_int()
    if query(ctypes.byref(version)) != 0:
        return None
    return version.value // 1000, version.value % 1000 // 10


def too_old_reason(cuda: str) -> str | None:
    """Returns None if the driver supports a binary of this CUDA version, such as "13.0", else one line with the remedy.

    Within one CUDA major version every driver supports every runtime.
    """
    served = cuda_of_driver()
    major = int(cuda.partition(".")[0])
    if served is None or served[0] >= major:
        return None
    return (
        f"this build of convt_ext uses CUDA {cuda}, but the NVIDIA driver supports only CUDA {served[0]}.{served[1]}: "
        f"update the driver to {_OLDEST_DRIVER.get(major, 'a newer one')} or newer, or install a wheel file of "
        f"convt_ext that was built with CUDA {served[0]}"
    )

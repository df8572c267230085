"""Loads the binary of the package, and stores the reason if that fails.

Called by ops.py (whether ops exist), routing.py (whether this GPU can run them) and the public
`is_available` and `build_info`. Importing this module never fails and never touches a GPU: the binary
also loads with a CPU-only PyTorch, where it can plan. Independent of the meaning of the ops.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import re
from pathlib import Path
from typing import Any

import torch

from .._version import __version__
from . import _driver, _torch

# The first release with the stable ABI of the binary.
_MINIMUM_TORCH = (2, 10)

# Contains no Python module: one file for every interpreter, free-threaded ones included.
_LIBRARY = Path(__file__).parents[1] / "libconvt_ext.so"

# Read once, so that calls do not read the environment.
DISABLED = os.environ.get("CONVT_EXT_DISABLE", "") not in ("", "0")

# Names a wheel file, because another project owns the name in the package index. Does not change torch.
_REINSTALL = (
    "install a wheel file of convt_ext for your CUDA version (pip install --force-reinstall --no-deps FILE.whl), "
    "or build one on this machine (docs/installing.md, Build from source)"
)

_NO_GPU = "PyTorch sees no CUDA GPU: CPU tensors get PyTorch's own operator"


def _load() -> str | None:
    """Loads the binary, which registers the ops. Returns None, or why there are no ops."""
    release = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])
    if release < _MINIMUM_TORCH:
        return f"convt_ext needs torch >= 2.10 and found torch {torch.__version__}: upgrade torch"
    unknown_torch = _torch.missing_reason()
    if unknown_torch is not None:
        return unknown_torch
    if not _LIBRARY.is_file():
        return f"the compiled file convt_ext/{_LIBRARY.name} is not installed: {_REINSTALL}"
    try:
        torch.ops.load_library(str(_LIBRARY))
    except OSError as error:
        return f"the compiled file of convt_ext does not load ({error}): {_REINSTALL}"
    return None


load_error: str | None = _load()


def build_info() -> dict[str, Any]:
    """Returns the build of the installed binary.

    Returns:
        A dict with "version" (of this package), "cuda" (release of the compiler), "architectures"
        (compute capabilities of the compiled code, such as "9.0a"), "optimized" (False in a developer's
        binary that compiled fast and runs slowly) and "sources" (digest of the source tree).
        Without a binary "cuda" and "sources" are None, "architectures" is empty, "optimized" is missing and
        "reason" states the fault and the remedy.

    Example:
        >>> import convt_ext
        >>> convt_ext.build_info()["version"]
        '0.1.0'
    """
    return dict(_build_info())


@functools.cache
def _build_info() -> dict[str, Any]:
    if load_error is not None:
        return {"version": __version__, "cuda": None, "architectures": [], "sources": None, "reason": load_error}
    function = _loaded().convt_ext_build_info
    function.restype = ctypes.c_char_p
    return json.loads(function())


def has_autocast() -> bool:
    """Returns whether the loaded binary found PyTorch's function that caches casts."""
    return bool(_loaded().convt_ext_has_autocast())


def _loaded() -> ctypes.CDLL:
    """Returns the library that `_load` has loaded, for its two plain C functions."""
    return ctypes.CDLL(str(_LIBRARY))


def runs_on(architecture: str, capability: tuple[int, int]) -> bool:
    """Returns whether code built for `architecture` ("8.0", "9.0a", "10.0f", "8.6+PTX") runs on a GPU of `capability`.

    Machine code runs within its major version from its minor version on; "a" code runs on exactly
    its capability; "f" code within its family, which shares the major version; PTX runs on
    everything newer. (CUDA C++ Programming Guide, "Compute capabilities" and "Family-specific features".)
    """
    match = re.fullmatch(r"(\d+)\.(\d)([af]?)(\+PTX)?", architecture.strip())
    if match is None:
        return False
    built = (int(match[1]), int(match[2]))
    if match[3] == "a":
        return capability == built
    if match[4] and capability >= built:
        return True
    return capability[0] == built[0] and capability[1] >= built[1]


@functools.cache
def capability(device_index: int) -> tuple[int, int]:
    """Returns the compute capability of an installed GPU; (0, 0) if PyTorch sees no such NVIDIA GPU: tensors on it are
    fake, or torch is a ROCm build, which numbers AMD's GPUs in the same way."""
    if torch.version.hip is not None:
        return 0, 0
    try:
        return torch.cuda.get_device_capability(device_index)
    except (RuntimeError, AssertionError):  # no driver or no GPU; a CPU build of torch
        return 0, 0


@functools.cache
def unsupported_reason(device_index: int) -> str | None:
    """Returns None if this binary can run on this GPU, else one line with the remedy.

    Queries only PyTorch and the driver: the binary's CUDA runtime raises errors if the driver is too old.
    """
    if load_error is not None:
        return load_error
    if torch.version.hip is not None:
        return (
            f"torch {torch.__version__} is a build for ROCm, but convt_ext has kernels for NVIDIA GPUs: "
            "install a build of torch for CUDA on a machine with an NVIDIA GPU"
        )
    old_driver = _driver.too_old_reason(_build_info()["cuda"])
    if old_driver is not None:
        return old_driver
    built = _build_info()["architectures"]
    found = capability(device_index)
    if found == (0, 0):
        return _NO_GPU
    if any(runs_on(architecture, found) for architecture in built):
        return None
    return (
        f"this build of convt_ext has code for compute capability {', '.join(built) or 'none'} and "
        f"{torch.cuda.get_device_name(device_index)} has {found[0]}.{found[1]}: install a wheel file that lists it, "
        f"or build one with TORCH_CUDA_ARCH_LIST={found[0]}.{found[1]}"
    )


def unavailable_reason() -> str | None:
    """Returns None if calls may run the kernels on a visible GPU, else one line with the reason."""
    if DISABLED:
        return "CONVT_EXT_DISABLE is set: unset it, or set it to 0, before the program starts"
    if load_error is not None:
        return load_error
    if not torch.cuda.is_available():
        return _NO_GPU
    reasons = [unsupported_reason(index) for index in range(torch.cuda.device_count())]
    return None if None in reasons else reasons[0]


def is_available() -> bool:
    """Returns whether the binary is loaded, a visible GPU can run it, and CONVT_EXT_DISABLE is not set.

    Never raises. If it is False, `convt_ext.conv_transpose2d` runs PyTorch's operator.

    Example:
        >>> import convt_ext
        >>> convt_ext.is_available() in (True, False)
        True
    """
    return unavailable_reason() is None

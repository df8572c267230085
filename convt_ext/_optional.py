"""What the commands say where a package is missing that convt_ext does not require.

Called by the command line and the benchmark.
"""

from __future__ import annotations

# All that is imported beside torch. Each has the same name in a package index, which a module in general has not.
_PACKAGES = ("matplotlib", "numpy", "rich")


def remedy(error: ModuleNotFoundError) -> str:
    """The error in one line, with what to install where that is known.

    A module that one of the packages misses for itself is named alone: who owns that name in an index is not known.

    >>> remedy(ModuleNotFoundError(name="rich.console"))
    'needs the package rich: pip install rich'
    >>> remedy(ModuleNotFoundError(name="PIL"))
    'needs the module PIL, which is not installed'
    """
    package = (error.name or "").partition(".")[0]
    if package in _PACKAGES:
        return f"needs the package {package}: pip install {package}"
    return f"needs the module {error.name}, which is not installed"

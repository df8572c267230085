"""The error message for a missing package that convt_ext does not require.

Called by the command line and the benchmark.
"""

from __future__ import annotations

# All imports besides torch. Each package has the name of its module, which is not true in general.
_PACKAGES = ("numpy", "rich")


def remedy(error: ModuleNotFoundError) -> str:
    """Returns the error in one line, with the package to install if it is known.

    For a missing dependency of these packages it names only the module: the owner of that name in an index is unknown.

    >>> remedy(ModuleNotFoundError(name="rich.console"))
    'needs the package rich: pip install rich'
    >>> remedy(ModuleNotFoundError(name="PIL"))
    'needs the module PIL, which is not installed'
    """
    package = (error.name or "").partition(".")[0]
    if package in _PACKAGES:
        return f"needs the package {package}: pip install {package}"
    return f"needs the module {error.name}, which is not installed"

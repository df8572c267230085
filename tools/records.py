"""Computes digests of parts of the sources, for reports of GPU runs that depend only on those parts.

The digest of all sources (convt_ext/_sources.py) covers GPU tests and the Python package, which do not affect every
report. Called by sanitize.py, sanitizer_report.py and bench_results.py.
"""

from __future__ import annotations

import runpy
from pathlib import Path

from required import require

CHECKOUT = Path(__file__).resolve().parent.parent
SOURCES = runpy.run_path(str(CHECKOUT / "convt_ext/_sources.py"))


def part_digest(entries: tuple[str, ...], root: Path = CHECKOUT) -> str:
    """Returns the digest of these files and folders without their documents."""
    files = [name for name in SOURCES["source_files"](root, entries) if not name.endswith(".md")]
    return SOURCES["sources_digest"](root, files)


def require_binary_of_the_tree() -> None:
    """Exits if the installed binary was not built from this tree, or was built without optimization."""
    import convt_ext

    info, tree = convt_ext.build_info(), SOURCES["sources_digest"](CHECKOUT)
    words = f"the installed binary was built from sources {info['sources']}, but the tree is {tree}"
    require(info["sources"] == tree, f"{words}: run `make build` and install that wheel")
    require(info["optimized"], "the installed binary was built with CONVT_EXT_FAST_COMPILE: unset it and build again")

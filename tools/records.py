"""The digest of a part of the sources, for records of GPU runs that are about that part alone.

The digest of everything (convt_ext/_sources.py) covers GPU tests and the Python package: a change of a test would make
hours of measuring stale that it cannot touch. Called by sanitizer_report.py and bench_results.py.
"""

from __future__ import annotations

import runpy
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
SOURCES = runpy.run_path(str(CHECKOUT / "convt_ext/_sources.py"))


def part_digest(entries: tuple[str, ...], root: Path = CHECKOUT) -> str:
    """The digest of these files and folders without their documents."""
    files = [name for name in SOURCES["source_files"](root, entries) if not name.endswith(".md")]
    return SOURCES["sources_digest"](root, files)


def require_binary_of_the_tree() -> None:
    """Ends the program where the installed binary is none that a record of this tree may be about."""
    import convt_ext

    info, tree = convt_ext.build_info(), SOURCES["sources_digest"](CHECKOUT)
    if info["sources"] != tree:
        raise SystemExit(
            f"convt_ext: the installed binary was built from sources {info['sources']}, but the tree is {tree}: "
            "run `make build` and install that wheel"
        )
    if not info["optimized"]:
        raise SystemExit("convt_ext: the installed binary was built with CONVT_EXT_FAST_COMPILE: build it without")

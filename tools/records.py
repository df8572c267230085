"""The digest of a part of the sources, for records of GPU runs that are about that part alone.

The digest of everything (convt_ext/_sources.py) has the tests and the Python package in it: a new CPU test would make
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
    """Ends the program where the installed binary was built from other sources, which a record would be about."""
    import convt_ext

    built, tree = convt_ext.build_info()["sources"], SOURCES["sources_digest"](CHECKOUT)
    if built != tree:
        raise SystemExit(
            f"convt_ext: the installed binary was built from sources {built}, but the tree is {tree}: "
            "run `make build` and install that wheel"
        )

"""The digest that ties a binary, a source tree and a GPU test report to each other.

Hashes the sources of the package, of its build and of its GPU tests. setup.py compiles the digest into the
binary, `convt_ext.build_info()["sources"]` returns it, and the GPU report contains it. Needs only the standard
library: setup.py runs this file before torch is imported and before the package exists.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

# The code, the tests that run on a GPU, and the build configuration.
_ROOTS = ("kernels", "convt_ext", "tests", "setup.py", "pyproject.toml")

# Files that tools leave next to the sources, and the reports, which contain the digest and so cannot be part of it.
_IGNORED_FOLDERS = ("__pycache__", "build")
# Tests that run without a GPU. The oracle and its build (tests/plan/build.py) belong to GPU tests too.
_IGNORED_TESTS = (
    "tests/cpu/",
    "tests/emulator/",
    "tests/launch/",
    "tests/packaging/",
    "tests/plan/module/",
    "tests/plan/test_",
)
_IGNORED_SUFFIXES = (".pyc", ".pyo", ".so", ".o", ".orig", ".rej", ".swp", "~")
_IGNORED_FILES = re.compile(r"tests/(gpu_report\w*|sanitizer_report)\.json")  # possibly one per GPU model


def source_files(root: str | Path, entries: Iterable[str] = _ROOTS) -> list[str]:
    """Returns the files that the digest covers: sorted paths relative to `root`, with forward slashes."""
    base = Path(root)
    names = []
    for entry in entries:
        path = base / entry
        found = path.rglob("*") if path.is_dir() else [path]
        names += [file.relative_to(base).as_posix() for file in found if file.is_file()]
    return sorted(name for name in names if not _is_ignored(name))


def sources_digest(root: str | Path, entries: Iterable[str] = _ROOTS) -> str:
    """Returns the first 16 hexadecimal digits of the SHA-256 of the sources below `root`.

    Hashes relative path and content of every file in the order of the paths, so the result is independent of the file
    system's order and of the location of the tree.

    Args:
        root: the folder that contains setup.py: a checkout or an unpacked source distribution.
        entries: the files and folders of `root` to hash; records about fewer sources pass fewer (tools/records.py).

    """
    base = Path(root)
    if not (base / "setup.py").is_file():
        raise FileNotFoundError(f"{base} is not a source tree of convt_ext: it has no setup.py")
    total = hashlib.sha256()
    for name in source_files(base, entries):
        content = (base / name).read_bytes()
        # Lengths separate a path from the content that follows it.
        total.update(f"{len(name)} {name} {len(content)} ".encode())
        total.update(content)
    return total.hexdigest()[:16]


def _is_ignored(name: str) -> bool:
    parts = name.split("/")
    hidden = any(part.startswith(".") for part in parts)
    generated = any(part in _IGNORED_FOLDERS or part.endswith(".egg-info") for part in parts)
    unused = name.startswith(_IGNORED_TESTS) or name.endswith(_IGNORED_SUFFIXES)
    return hidden or generated or unused or _IGNORED_FILES.fullmatch(name) is not None

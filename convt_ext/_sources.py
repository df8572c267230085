"""The digest that ties a binary, a source tree and a GPU test report to each other.

Computes one short text from everything that decides what the installed package does and how it was
tested. setup.py compiles it into the binary, `convt_ext.build_info()["sources"]` reads it back, and
the GPU report carries it. Needs nothing but the standard library: setup.py runs this file before
torch is imported and before the package exists.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

# What decides behaviour: the code, the tests that judged it on a GPU, and how it is built.
_ROOTS = ("kernels", "convt_ext", "tests", "setup.py", "pyproject.toml")

# What tools leave beside the sources, and the reports, which are about a digest and so cannot be in it.
_IGNORED_FOLDERS = ("__pycache__", "build")
# Tests that run without a GPU.
_IGNORED_TESTS = ("tests/cpu/", "tests/packaging/")
_IGNORED_SUFFIXES = (".pyc", ".pyo", ".so", ".o", ".orig", ".rej", ".swp", "~")
_IGNORED_FILES = re.compile(r"tests/(gpu_report\w*|sanitizer_report)\.json")  # one of each GPU model, if need be


def source_files(root: str | Path, entries: Iterable[str] = _ROOTS) -> list[str]:
    """The files the digest covers: paths relative to `root`, with forward slashes, sorted."""
    base = Path(root)
    names = []
    for entry in entries:
        path = base / entry
        found = path.rglob("*") if path.is_dir() else [path]
        names += [file.relative_to(base).as_posix() for file in found if file.is_file()]
    return sorted(name for name in names if not _is_ignored(name))


def sources_digest(root: str | Path, entries: Iterable[str] = _ROOTS) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of the sources below `root`.

    Every file counts with its relative path and its bytes, in the order of the paths, so the result
    depends neither on the order in which the file system lists them nor on where the tree lies.

    Args:
        root: the folder that holds setup.py: a checkout or an unpacked source distribution.
        entries: the files and folders of `root` that count; fewer where a record is about fewer (tools/records.py).

    Raises:
        FileNotFoundError: `root` holds no setup.py, so it is not a source tree.

    Example:
        >>> sources_digest(".")  # doctest: +SKIP
        '3f0c5e8a91b2d764'
    """
    base = Path(root)
    if not (base / "setup.py").is_file():
        raise FileNotFoundError(f"{base} is not a source tree of convt_ext: it has no setup.py")
    total = hashlib.sha256()
    for name in source_files(base, entries):
        content = (base / name).read_bytes()
        # Lengths keep a path from running into the content that follows it.
        total.update(f"{len(name)} {name} {len(content)} ".encode())
        total.update(content)
    return total.hexdigest()[:16]


def _is_ignored(name: str) -> bool:
    parts = name.split("/")
    hidden = any(part.startswith(".") for part in parts)
    generated = any(part in _IGNORED_FOLDERS or part.endswith(".egg-info") for part in parts)
    if name.startswith(_IGNORED_TESTS):
        return True
    return hidden or generated or name.endswith(_IGNORED_SUFFIXES) or _IGNORED_FILES.fullmatch(name) is not None

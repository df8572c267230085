"""The rooms of kernels/ include what kernels/README.md lets them know, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
SUFFIXES = (".h", ".cuh", ".cpp", ".cu")

# Shared rooms, and what each one knows beside itself.
SHARED = {
    "problem": set(),
    "ptx": set(),
    "element": {"problem", "ptx"},
    "pipeline": {"ptx"},
    "epilogue": {"element", "launch", "problem", "ptx"},
    "plan": {"epilogue", "problem"},
    "pack": {"element", "plan", "problem", "ptx"},
    "hopper": {"element", "pack", "pipeline", "plan", "ptx"},
    "launch": {"epilogue", "plan", "problem", "pack"},
    "reduce": {"element", "launch", "problem", "ptx"},
    "binding": {"epilogue", "launch", "plan", "problem", "reduce"},
}
# Engines know all shared rooms but the ops, and of other engines those whose code they build on.
BUILDS_ON = {
    "thin": {"simt"},
    "streamed": {"direct", "thin"},
    "mma_sm90a": {"thin"},
}
ENGINES = sorted(path.name for path in KERNELS.iterdir() if path.is_dir() and path.name not in SHARED)


def included(room: str) -> list[tuple[Path, str]]:
    """The headers of other rooms that the files of a room include."""
    found = []
    for path in sorted((KERNELS / room).rglob("*")):
        if path.suffix in SUFFIXES:
            names = re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE)
            found += [(path.relative_to(KERNELS), name) for name in names if not name.startswith(f"{room}/")]
    return found


@pytest.mark.parametrize("room", sorted(SHARED))
def test_shared_rooms(room):
    """The table of families alone includes what every engine says of its tiles."""
    for path, name in included(room):
        if path.as_posix() == "plan/families.h" and name.endswith("layout.h"):
            continue
        assert name.split("/")[0] in SHARED[room], (path, name)


@pytest.mark.parametrize("room", ENGINES)
def test_engines(room):
    known = (SHARED.keys() - {"binding"}) | BUILDS_ON.get(room, set())
    for path, name in included(room):
        assert name.split("/")[0] in known, (path, name)
        # What is planned and laid out needs no CUDA; only launches and device code do.
        host = path.suffix in (".cpp", ".h") and not re.search(r"launch|params|instances", path.name)
        assert not (host and name.startswith(("launch/", "ptx/", "pipeline/"))), (path, name)


@pytest.mark.parametrize("room", [*SHARED, *ENGINES])
def test_headers_exist(room):
    for path, name in included(room):
        assert (KERNELS / name).is_file(), (path, name)


def test_only_the_ops_know_torch():
    for path in KERNELS.rglob("*"):
        if path.suffix in SUFFIXES and path.parent.name != "binding":
            assert "#include <torch" not in path.read_text(), path


def test_only_ptx_has_inline_assembly():
    for path in KERNELS.rglob("*"):
        if path.suffix in SUFFIXES and path.parent.name != "ptx":
            assert not re.search(r"\basm\b", path.read_text()), path


@pytest.mark.parametrize("room", ENGINES)
def test_an_engine_has_a_readme(room):
    """Which the map names, as it does the room."""
    assert (KERNELS / room / "README.md").is_file()
    assert f"`{room}/`" in (KERNELS / "README.md").read_text()

"""The folders of kernels/ include only what kernels/README.md allows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
SUFFIXES = (".h", ".cuh", ".cpp", ".cu")

# Shared rooms below the engines, each after all that it includes: no include points upward.
BELOW = {
    "problem": set(),
    "ptx": set(),
    "element": {"problem", "ptx"},
    "pipeline": {"ptx"},
    "plan": {"problem"},
    "pack": {"element", "plan", "problem", "ptx"},
    "launch": {"pack", "plan", "problem"},
    "epilogue": {"element", "launch", "problem", "ptx"},
    "reduce": {"element", "launch", "problem", "ptx"},
    "tiling": {"element", "launch", "plan", "problem", "ptx"},
    "hopper": {"element", "pipeline", "plan", "ptx"},
}
# Shared rooms above the engines. The list of families alone includes engines, and no other room includes the list.
ABOVE = {
    "families": {"launch", "plan"},
    "binding": {"epilogue", "launch", "plan", "problem", "reduce"},
}
SHARED = {**BELOW, **ABOVE}
ENGINES = sorted(path.name for path in KERNELS.iterdir() if path.is_dir() and path.name not in SHARED)


def included(room: str) -> list[tuple[Path, str]]:
    """The headers of other rooms that the files of a room include."""
    found = []
    for path in sorted((KERNELS / room).rglob("*")):
        if path.suffix in SUFFIXES:
            names = re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE)
            found += [(path.relative_to(KERNELS), name) for name in names if not name.startswith(f"{room}/")]
    return found


def test_no_allowed_include_points_upward():
    rooms = [*BELOW, *ENGINES, *ABOVE]
    for place, room in enumerate(rooms):
        assert SHARED.get(room, set()) <= set(rooms[:place]), room


@pytest.mark.parametrize("room", sorted(SHARED))
def test_shared_rooms(room):
    for path, name in included(room):
        other = name.split("/")[0]
        of_an_engine = path.as_posix() == "families/families.h" and other in ENGINES and name.endswith("layout.h")
        assert of_an_engine or other in SHARED[room], (path, name)


@pytest.mark.parametrize("room", sorted(BELOW))
def test_no_header_below_the_engines_reaches_one(room):
    """Not by way of other headers either: plan/ and launch/ compile without any engine."""
    for path in (KERNELS / room).rglob("*"):
        if path.suffix in SUFFIXES:
            name = path.relative_to(KERNELS).as_posix()
            assert {found.split("/")[0] for found in reached(name, set())} <= BELOW.keys(), name


@pytest.mark.parametrize("room", ENGINES)
def test_engines(room):
    for path, name in included(room):
        assert name.split("/")[0] in BELOW, (path, name)
        # What is planned and laid out needs no CUDA; only launches and device code do.
        host = path.suffix in (".cpp", ".h") and not re.search(r"launch|params|instances", path.name)
        assert not (host and name.startswith(("launch/", "ptx/", "pipeline/"))), (path, name)


@pytest.mark.parametrize(("word", "room"), [("#include <torch", "binding"), (r"\basm\b", "ptx")])
def test_only_one_room_has(word, room):
    """The ops alone include torch, and ptx/ alone has inline assembly."""
    for path in KERNELS.rglob("*"):
        if path.suffix in SUFFIXES and path.parent.name != room:
            assert not re.search(word, path.read_text()), path


@pytest.mark.parametrize("room", ENGINES)
def test_an_engine_has_a_readme(room):
    """Which the map names, as it does the room."""
    assert (KERNELS / room / "README.md").is_file()
    assert f"`{room}/`" in (KERNELS / "README.md").read_text()


def reached(name: str, found: set[str]) -> set[str]:
    """The file and all headers of kernels/ that it includes, added to those found."""
    if name not in found and (KERNELS / name).is_file():
        found.add(name)
        for other in re.findall(r'^#include "([^"]+)"', (KERNELS / name).read_text(), re.MULTILINE):
            reached(other, found)
    return found


def test_device_code_includes_what_nvrtc_has(tools):
    """CUDA 12's compiler of device code brings no standard library: its check lists every header that is included."""
    check = tools("cuda12_device_code")
    known = {*check.FROM_CCCL, *check.NAMED_OTHERWISE, *check.OF_C, *check.DECLARED}
    of_cuda = {"cuda.h", "cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h"}
    files: set[str] = set()
    for path in KERNELS.rglob("*.cu"):
        reached(path.relative_to(KERNELS).as_posix(), files)
    assert len(files) > 100
    for name in files - check.FOR_HOST.keys():
        asked = set(re.findall(r"^#include <([^>]+)>", (KERNELS / name).read_text(), re.MULTILINE))
        assert asked <= known | of_cuda, name

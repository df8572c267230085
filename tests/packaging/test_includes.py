"""The source digest, and what the folders of kernels/ include, as kernels/README.md allows."""

from __future__ import annotations

import importlib
import re
import runpy
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
MODULE = runpy.run_path(str(CHECKOUT / "convt_ext/_sources.py"))
sources_digest = MODULE["sources_digest"]
source_files = MODULE["source_files"]

FILES = {
    "kernels/plan/plan.h": "struct Plan {};",
    "kernels/simt/forward.cu": "kernel",
    "convt_ext/__init__.py": "",
    "tests/gpu/test_one.py": "def test_one(): pass",
    "setup.py": "setup()",
    "pyproject.toml": "[project]",
}


def make_tree(root: Path, names) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(FILES[name])
    return root


@pytest.fixture
def tree(tmp_path):
    return make_tree(tmp_path / "tree", FILES)


def test_digest_does_not_depend_on_the_order_of_creation_or_the_place(tree, tmp_path):
    other = make_tree(tmp_path / "elsewhere" / "other", reversed(FILES))
    assert sources_digest(other) == sources_digest(tree)
    assert re.fullmatch("[0-9a-f]{16}", sources_digest(tree))


@pytest.mark.parametrize("name", FILES)
def test_every_source_changes_the_digest(tree, name):
    before = sources_digest(tree)
    (tree / name).write_text(FILES[name] + " ")
    assert sources_digest(tree) != before


def test_a_renamed_file_changes_the_digest(tree):
    before = sources_digest(tree)
    (tree / "kernels/plan/plan.h").rename(tree / "kernels/plan/plans.h")
    assert sources_digest(tree) != before


def test_moving_bytes_between_neighbouring_files_changes_the_digest(tree):
    (tree / "kernels/a.h").write_text("ab")
    (tree / "kernels/b.h").write_text("c")
    before = sources_digest(tree)
    (tree / "kernels/a.h").write_text("a")
    (tree / "kernels/b.h").write_text("bc")
    assert sources_digest(tree) != before


@pytest.mark.parametrize(
    "name",
    [
        "convt_ext/__pycache__/ops.cpython-311.pyc",
        "convt_ext/libconvt_ext.so",
        "tests/plan/build/_plan.o",
        "tests/plan/_plan.cpython-311-x86_64-linux-gnu.so",
        "tests/gpu_report.json",
        "tests/cpu/test_one.py",
        "tests/packaging/test_one.py",
        "tests/emulator/device.h",
        "tests/launch/recorder.cpp",
        "tests/plan/test_one.py",
        "tests/.pytest_cache/v/lastfailed",
        "kernels/simt/.forward.cu.swp",
        "README.md",
        "benchmarks/results/h200.json",
        "convt_ext.egg-info/PKG-INFO",
    ],
)
def test_generated_files_and_documents_do_not_change_the_digest(tree, name):
    before = sources_digest(tree)
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("noise")
    assert sources_digest(tree) == before


def test_the_installed_binary_is_of_this_tree():
    info = importlib.import_module("convt_ext").build_info()
    assert info["sources"] == sources_digest(CHECKOUT), "run `make install`: the installed wheel is of other sources"


# ---- includes of kernels/


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

"""The source digest: what it covers, what it ignores, and that it depends on content alone."""

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

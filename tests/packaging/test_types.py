"""Strict type checkers accept a user's program that uses every public name, and find a wrong argument in it."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import convt_ext

PROGRAM = Path(__file__).with_name("typed_program.py")
WRONG = "\nconvt_ext.conv_transpose2d(x, weight, stride='2')\n"


def packages(module) -> Path:
    return Path(module.__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def user(tmp_path_factory):
    """A folder with the program, a copy of it with an error, and an environment that contains the package and torch.

    The environment is not that of the type checker, and the package is in its site-packages, as for a user.
    """
    folder = tmp_path_factory.mktemp("user")
    (folder / "right.py").write_text(PROGRAM.read_text())
    (folder / "wrong.py").write_text(PROGRAM.read_text() + WRONG)
    site = folder / f"env/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    site.mkdir(parents=True)
    (site / "convt_ext").symlink_to(packages(convt_ext) / "convt_ext")
    (site / "torch.pth").write_text(f"{packages(importlib.import_module('torch'))}\n")
    return folder


def test_the_program_uses_every_public_name():
    used = set(re.findall(r"\w+", PROGRAM.read_text()))
    assert used >= {*convt_ext.__all__, *convt_ext.tuning.__all__}


def test_pyright(user):
    """basedpyright is pyright with Node.js in its wheel: pyright's own wheel downloads its program."""
    if importlib.util.find_spec("basedpyright") is None:
        pytest.skip("basedpyright is not installed")
    settings = {"typeCheckingMode": "strict", "include": ["*.py"], "venvPath": str(user), "venv": "env"}
    (user / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--project", str(user)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=user)
    found = json.loads(run.stdout)
    assert found["summary"]["filesAnalyzed"] == 2
    assert [(Path(one["file"]).name, one.get("rule")) for one in found["generalDiagnostics"]] == [
        ("wrong.py", "reportArgumentType")
    ], run.stdout

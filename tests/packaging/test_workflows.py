"""What the workflows must agree on with the tools that they call. How they are written is checked by `make lint-ci`."""

from __future__ import annotations

import fnmatch
import importlib
import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
WORKFLOWS = CHECKOUT / ".github/workflows"

if not WORKFLOWS.is_dir():
    pytest.skip("a source distribution has no workflows", allow_module_level=True)

WHEELS = (WORKFLOWS / "wheels.yml").read_text()


def passed_on() -> list[str]:
    """The variables that cibuildwheel hands on from the runner into the image."""
    (names,) = re.findall(r"^environment-pass = \[(.*)\]$", (CHECKOUT / "pyproject.toml").read_text(), re.MULTILINE)
    return re.findall(r'"(\w+)"', names)


def test_what_the_image_gets_has_a_value(monkeypatch):
    """From the workflow, or from tools/targets.py; without MAX_JOBS setup.py asks the machine."""
    monkeypatch.syspath_prepend(str(CHECKOUT / "tools"))
    targets = importlib.import_module("targets")
    monkeypatch.setenv("MANYLINUX_IMAGE", f"localhost:5000/{targets.IMAGE}")
    of_a_build = targets.build_variables(targets.TARGETS[0], "x86_64")
    of_all_jobs = re.findall(r"^  (\w+): ", re.findall(r"^env:\n((?:  .*\n)+)", WHEELS, re.MULTILINE)[0], re.MULTILINE)
    assert "TORCH_CPU_INDEX" in passed_on()
    assert set(passed_on()) - {"MAX_JOBS"} <= {*of_a_build, *of_all_jobs}


def test_repository_variables_are_explained():
    """A workflow that asks for one more is no use until somebody knows what to set."""
    asked = {name for path in WORKFLOWS.glob("*.yml") for name in re.findall(r"\bvars\.(\w+)", path.read_text())}
    text = (CHECKOUT / "DEVELOPERS.md").read_text()
    assert asked == {name for name in asked if name in text}


@pytest.mark.parametrize("name", ["README.md", "tests/cases.py", "tests/cpu/test_ops.py", "tests/oracle/oracle.cpp"])
def test_a_change_of_what_is_verified_starts_it(name):
    assert (CHECKOUT / name).is_file()
    (block,) = re.findall(r"^    paths:\n((?:      - .*\n)+)", WHEELS, re.MULTILINE)
    patterns = re.findall(r'- "(.*)"', block)
    assert any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
    assert all(list(CHECKOUT.glob(pattern)) for pattern in patterns)

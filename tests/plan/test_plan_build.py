"""The build of the test modules: quick when nothing changed, clear when it cannot work."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from plan import build

# A build that takes longer than the timer of a test; it is noted, and what is there is taken.
SLOW_BUILD = """
import sys, time
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session):
    from plan import build
    really = build.build
    def slowly(name, *given):
        with open("NOTES", "a") as file:
            print(name, file=file)
        time.sleep(3)
        return really(name, *given)
    build.build = slowly
"""


def run_build(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, build.__file__, *arguments], env=environment, capture_output=True, text=True, check=False
    )


def test_a_current_module_is_not_built_again(plan_module):
    first = build.build("_plan")
    compiled = first.stat().st_mtime_ns
    assert build.build("_plan") == first
    assert first.stat().st_mtime_ns == compiled


def test_no_compiler_is_one_clear_line(tmp_path):
    result = run_build("--out", str(tmp_path), CXX="no-such-compiler")
    assert result.returncode == 1
    assert result.stderr.strip() == "error: no C++ compiler found (tried no-such-compiler); install g++ or set CXX"


def test_a_source_that_does_not_compile_leaves_no_module(plan_module, monkeypatch, tmp_path):
    monkeypatch.setattr(build, "FLAGS", [*build.FLAGS, "-include", "no_such_header.h"])
    with pytest.raises(RuntimeError, match=r"_oracle does not compile(.|\n)*no_such_header\.h"):
        build.build("_oracle", tmp_path)
    assert not list(tmp_path.glob("*.so"))


def test_the_timer_of_a_test_does_not_run_while_a_module_is_built(plan_module, tmp_path):
    notes = tmp_path / "notes"
    (tmp_path / "slow_build.py").write_text(SLOW_BUILD.replace("NOTES", str(notes)))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "slow_build"]
    command += ["-o", "faulthandler_timeout=2", "plan/test_plan_phases.py", "-k", "test_the_largest_axis"]
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    result = subprocess.run(
        command,
        cwd=build.ROOT / "tests",
        env={**environment, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert result.returncode == 0, result.stdout
    assert notes.read_text().split() == ["_plan"]  # what no chosen test needs is not built
    assert "Timeout" not in result.stdout

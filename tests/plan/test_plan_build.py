"""The build of the test modules: quick when nothing changed, clear when it cannot work."""

from __future__ import annotations

import subprocess
import sys

from plan import build


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

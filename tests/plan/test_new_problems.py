"""Runs the planner's tests on problems that are new in every run. `make test-all` includes it, `make test` does not.

A failure names its seed, and CONVT_PLAN_SEED=N repeats it. A failing example is kept (plan/profile.py).
"""

from __future__ import annotations

import faulthandler
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from plan.profile import PROFILE

TESTS = Path(__file__).resolve().parents[1]
LONGEST = 1800  # seconds


@pytest.mark.slow(seconds=150)
@pytest.mark.skipif(PROFILE == "ci", reason="only in make test-all")
def test_new_problems(plan_module, record_property):
    """`plan_module`: built before, or the reason why it cannot be."""
    faulthandler.cancel_dump_traceback_later()  # the tests that this one waits for have timers of their own
    seed = os.environ.get("CONVT_PLAN_SEED") or str(random.randrange(2**32))
    record_property("seed", f"CONVT_PLAN_SEED={seed}")
    environment = {**os.environ, "CONVT_PLAN_PROFILE": "fresh", "CONVT_PLAN_SEED": seed, "PYTEST_ADDOPTS": ""}
    for name in [name for name in environment if name.startswith("PYTEST_XDIST") or name == "PYTEST_CURRENT_TEST"]:
        del environment[name]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-q", "plan"]
    run = subprocess.run(command, cwd=TESTS, env=environment, capture_output=True, text=True, timeout=LONGEST)
    assert run.returncode == 0, (
        f"CONVT_PLAN_PROFILE=fresh CONVT_PLAN_SEED={seed} pytest plan:\n{run.stdout}{run.stderr}"
    )
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed, run.stdout
    assert int(passed[1]) > 50, run.stdout  # all that draw problems

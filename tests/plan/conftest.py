"""Fixtures of the planner's tests: the module `_plan`, built when it is missing or old."""

from __future__ import annotations

import pytest
from plan import build
from plan.profile import one_thread

__all__ = ["one_thread", "plan_module"]


@pytest.fixture(scope="session")
def plan_module():
    """The planner as a Python module."""
    try:
        return build.load("_plan")
    except build.NoCompiler as error:
        pytest.skip(str(error))

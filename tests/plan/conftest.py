"""Fixtures of the planner's tests: the module `_plan`, built when it is missing or old. And which tests run for new
problems: those that draw any, by the run's seed."""

from __future__ import annotations

import pytest
from hypothesis import is_hypothesis_test, seed
from plan import build
from plan.profile import HAS_NEW_PROBLEMS, PROFILE, SEED, one_thread

__all__ = ["one_thread", "plan_module", "run_seed"]


@pytest.fixture(scope="session")
def plan_module():
    """The planner as a Python module."""
    return build.load_or_skip("_plan")


@pytest.fixture(scope="session")
def run_seed() -> int:
    """For tests that draw problems by themselves: the same in every run, or the one of new problems."""
    return SEED


def pytest_report_header():
    if HAS_NEW_PROBLEMS:
        return f"plan tests: new problems of CONVT_PLAN_PROFILE={PROFILE} CONVT_PLAN_SEED={SEED}"


def pytest_collection_modifyitems(items):
    if not HAS_NEW_PROBLEMS:
        return
    items[:] = [item for item in items if is_hypothesis_test(item.obj) or "run_seed" in item.fixturenames]
    for item in items:
        if is_hypothesis_test(item.obj):
            # A seed usually goes without kept examples, as these would come first; here they shall.
            with_database = item.obj._hypothesis_internal_use_settings
            seed(SEED)(item.obj)
            item.obj._hypothesis_internal_use_settings = with_database

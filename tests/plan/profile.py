"""How the planner's tests run: how many random problems, which, and on how many threads.

    ci      the same problems in every run: the default
    same    three times as many, and test_new_problems.py: `make test-all`
    fresh   new problems in every run: test_new_problems.py
    search  new problems for an evening: CONVT_PLAN_PROFILE=search pytest tests/plan

New problems follow from a seed, CONVT_PLAN_SEED, which is another one in each run and is printed. What fails is kept in
KEPT_EXAMPLES and tried first from then on; for other machines hypothesis prints a line, @reproduce_failure(...).
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

# Examples of one test in the profile "same". Some fifteen tests use it: 24,000 problems in about 90 s on one core.
EXAMPLES = 1500
KEPT_EXAMPLES = Path(__file__).resolve().parents[2] / ".hypothesis" / "examples"


def _profile(examples: int, new: bool) -> settings:
    return settings(
        max_examples=examples,
        derandomize=not new,
        database=DirectoryBasedExampleDatabase(KEPT_EXAMPLES) if new else None,
        print_blob=True,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
    )


PROFILES = {
    "same": _profile(EXAMPLES, False),
    "ci": _profile(EXAMPLES // 3, False),
    "fresh": _profile(EXAMPLES // 3, True),
    "search": _profile(40 * EXAMPLES, True),
}
PROFILE = os.environ.get("CONVT_PLAN_PROFILE", "ci")
HAS_NEW_PROBLEMS = PROFILE in ("fresh", "search")
# Tests that draw their problems by themselves begin with it.
SEED = 0 if not HAS_NEW_PROBLEMS else int(os.environ.get("CONVT_PLAN_SEED") or random.randrange(2**32))
many_problems = PROFILES[PROFILE]
few_problems = settings(many_problems, max_examples=many_problems.max_examples // 5)  # for simple statements


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """For problems this small the threads of PyTorch's convolution wait for one another, mostly on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)

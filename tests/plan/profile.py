"""How the planner's tests run: how many random problems, on how many threads."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import HealthCheck, settings

# Examples of one test in the profile of CI. Some fifteen tests use it: 24,000 problems in about 90 s on one core.
EXAMPLES = 1500


def _profile(examples: int, derandomize: bool) -> settings:
    return settings(
        max_examples=examples,
        derandomize=derandomize,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
    )


# `ci` runs the same examples every time; `search` looks for new ones, for an evening:
#     CONVT_PLAN_PROFILE=search pytest tests/plan
PROFILES = {"ci": _profile(EXAMPLES, True), "search": _profile(40 * EXAMPLES, False)}
many_problems = PROFILES[os.environ.get("CONVT_PLAN_PROFILE", "ci")]
few_problems = settings(many_problems, max_examples=many_problems.max_examples // 5)  # for simple statements


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """For problems this small the threads of PyTorch's convolution wait for one another, mostly on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)

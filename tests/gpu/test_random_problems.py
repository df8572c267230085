"""Random problems of every family of tensor-core kernels: each plan that the family has of them, forced.

Other problems in every run: the run's seed (tests/seeds.py) is in the report and in every failure. Judged by float64 as
in test_tensor_cores.py, where NaN lay in the result's memory, in the workspace and in shared memory before.
"""

from __future__ import annotations

import pytest
import torch
from families import FAMILIES, Family
from gpu.test_tensor_cores import assert_within, exact_and_bound
from raw_ops import Call, GradientCall, assert_same_bits, copy_of, forced, nan_like, run_poisoned, words_of
from seeds import SEED, generator

BLOCKS, PROBLEMS_PER_BLOCK = 3, 3

FAMILIES_AND_CLASSES = [(family, kind) for family in FAMILIES for kind in family.classes]

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability()[0] != 9, reason="the engines are Hopper's"
)


def check(family: Family, call: Call | GradientCall, kind: str) -> None:
    """Every plan of the family: within the budget, and again with the same bits."""
    exact, bound = exact_and_bound(call.map(lambda tensor: copy_of(tensor, "cpu")), kind)
    full_of_nan = call.map(nan_like)
    for number, plan in forced(call):
        if not family.has(plan):
            continue
        what = words_of(number, plan)
        full_of_nan.run(number)
        result = run_poisoned(call, exact.numel(), number, plan["workspace_bytes"])
        assert result.shape == exact.shape, what
        assert_within(result, exact, bound, what)
        assert_same_bits(call.run(number), result, what)


@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.parametrize(
    ("family", "kind"), FAMILIES_AND_CLASSES, ids=[f"{family.name}-{kind}" for family, kind in FAMILIES_AND_CLASSES]
)
def test_random_problems(family, kind, block):
    rng = generator(family.name, kind, block)
    for _ in range(PROBLEMS_PER_BLOCK):
        call, problem = family.problem(rng, kind)
        try:
            check(family, call, kind)
        except Exception as error:  # the report has room for one line, and that must say how to see this again
            raise AssertionError(f"CONVT_TEST_SEED={SEED}, {problem}: {type(error).__name__}: {error}") from None

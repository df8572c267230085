"""The families of tests/families.py are all tensor-core kernels, and each draws problems that it has a plan of."""

from __future__ import annotations

import random

import pytest
from cpu_kernels import needs_binary
from families import FAMILIES, family_of
from plan.problems import H200
from raw_ops import tensor_core_kernels

SEEDS = (0, 1)


def test_every_kernel_is_of_a_family():
    """Of one in a direction, and in a class that the family has; and no family is without a kernel."""
    found = set()
    for kernel in tensor_core_kernels():
        families = [family for family in FAMILIES if family.has({"kernel": kernel})]
        assert families, kernel
        for family in families:
            assert family_of(kernel, family.direction) is family
            kind = kernel.split("_")[1]
            assert kind in family.classes, kernel
            found.add((family.name, kind))
    assert found == {(family.name, kind) for family in FAMILIES for kind in family.classes}


@needs_binary
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_draws_its_problems(family):
    """Which a seed decides: the same ones again, and others for another."""
    for kind in family.classes:
        drawn = [family.problem(random.Random(seed), kind, "cpu", H200) for seed in (*SEEDS, *SEEDS)]
        assert [words for _, words in drawn[:2]] == [words for _, words in drawn[2:]]
        assert drawn[0][1] != drawn[1][1]
        for call, _ in drawn[:2]:
            assert any(family.has(plan) for plan in call.candidates(H200))

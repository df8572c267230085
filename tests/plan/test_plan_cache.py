"""The plan cache: the candidates that it keeps for a problem, its size, and the order of eviction."""

from __future__ import annotations

import itertools
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan.layers import LAYERS
from plan.problems import DEVICES, FLOAT32, FLOAT64, H200, from_row, problems
from plan.profile import few_problems

# A call may have tensors that are not aligned to 16 bytes.
VECTORS = ("source_on_vectors", "weight_on_vectors", "result_on_vectors")
NEEDS = ("workspace_bytes", *VECTORS)


def needs(plan) -> set[str]:
    return {name for name in NEEDS if plan[name]}


def first(plans, missing: tuple[str, ...], free: float):
    """Returns the plan of a call without these alignments and with this many free bytes."""
    fitting = (plan for plan in plans if not needs(plan) & set(missing) and plan["workspace_bytes"] <= free)
    return next(fitting, None)


@few_problems
@given(problem=problems(dtypes=True), device=st.sampled_from(sorted(DEVICES)))
def test_the_cache_keeps_every_plan_that_a_call_may_need(plan_module, problem, device):
    keys = (*NEEDS, "kernel", "estimate_us")
    candidates = [{key: plan[key] for key in keys} for plan in plan_module.candidates(problem, DEVICES[device])]
    remembered = plan_module.cached_plans(problem, DEVICES[device])
    plans = remembered.plans
    assert remembered.same(plan_module.cached_plans(problem, DEVICES[device]))
    for missing in _subsets():
        assert first(plans, missing, inf) == first(candidates, missing, inf)
        for free in {0, *(plan["workspace_bytes"] for plan in candidates)}:
            wanted, found = first(candidates, missing, free), first(plans, missing, free)
            # The cache keeps one of several plans with similar workspaces, within a quarter.
            assert found == wanted or wanted["workspace_bytes"] > 0
            assert found is not None or first(candidates, missing, free / 4) is None
    every = [first(plans, missing, free) for missing in _subsets() for free in _levels(plans)]
    assert all(plan in every for plan in plans), "a plan that no call needs"


def _subsets():
    return [names for count in range(4) for names in itertools.combinations(VECTORS, count)]


def _levels(plans):
    return [inf, *(plan["workspace_bytes"] for plan in plans)]


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("precision", [0, 3])
def test_a_forward_call_always_has_a_plan_without_needs(plan_module, name, precision):
    """The last plan needs neither a workspace nor aligned tensors."""
    plans = plan_module.cached_plans(from_row(*LAYERS[name], precision=precision), H200).plans
    assert not needs(plans[-1])


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64])
def test_the_cache_distinguishes_devices(plan_module, dtype):
    """Planning reads every number of a device, so a device that differs in one of them has its own plans."""
    problem = from_row(*LAYERS["fcn8s"], dtype=dtype)
    others = [75, 66, 65536, 116736, 1000, 2000]
    for device in [H200, *([*H200[:i], other, *H200[i + 1 :]] for i, other in enumerate(others))]:
        first = plan_module.candidates(problem, device)[0]
        assert plan_module.cached_plans(problem, device).plans[0]["estimate_us"] == first["estimate_us"]


def test_the_least_recently_used_entry_is_evicted_first(plan_module):
    """The cache stays within its limit, so that a process with ever new shapes does not grow."""
    used = plan_module.cached_plans(from_row(1, 1, 1, (1, 1), (1, 1)), H200)
    unused = plan_module.cached_plans(from_row(1, 1, 1, (1, 2), (1, 1)), H200)
    for batch in range(2, 4000):
        plan_module.cached_plans(from_row(batch, 1, 1, (1, 1), (1, 1)), H200)
        assert used.same(plan_module.cached_plans(from_row(1, 1, 1, (1, 1), (1, 1)), H200))
        entries, held, limit = plan_module.plan_cache_size()
        assert held <= limit == 2 << 20
    assert 1500 < entries < 3000
    assert not unused.same(plan_module.cached_plans(from_row(1, 1, 1, (1, 2), (1, 1)), H200))


@few_problems
@given(problem=problems(dtypes=True), device=st.sampled_from(sorted(DEVICES)))
def test_the_choice_alone_is_the_first_of_all_plans(plan_module, problem, device):
    """The search is shorter, and the cache keeps the choice separately."""
    choice = plan_module.cached_choice(problem, DEVICES[device])
    plans = plan_module.cached_plans(problem, DEVICES[device]).plans
    assert choice.plans == plans[:1]
    assert choice.same(plan_module.cached_choice(problem, DEVICES[device]))


@few_problems
@given(problem=problems(dtypes=True), preferred=st.integers(0, 40))
def test_a_preferred_candidate_comes_first(plan_module, problem, preferred):
    """Plans for calls that cannot use it follow. A number without a candidate counts as 0."""
    keys = (*NEEDS, "kernel", "estimate_us")
    candidates = [{key: plan[key] for key in keys} for plan in plan_module.candidates(problem, H200)]
    plans = plan_module.cached_plans(problem, H200, preferred).plans
    expected = candidates[preferred if preferred < len(candidates) else 0]
    assert plans[0] == expected
    for missing in _subsets():
        if needs(expected) & set(missing):
            assert first(plans[1:], missing, inf) == first(candidates, missing, inf)
    assert plan_module.cached_plans(problem, H200).plans[0] == candidates[0]


@few_problems
@given(problem=problems(dtypes=True), most=st.integers(1, 8))
def test_contenders_are_few_and_of_several_kernels(plan_module, problem, most):
    candidates = plan_module.candidates(problem, H200)
    numbers = plan_module.contenders(problem, H200, most)
    assert numbers[0] == 0
    assert len(numbers) == len(set(numbers)) <= most
    assert all(candidates[number]["estimate_us"] <= 2.5 * candidates[0]["estimate_us"] + 4 for number in numbers)
    # No candidate is dropped for another tile of its kernel with a larger estimate.
    for number in range(len(candidates)):
        if number not in numbers and len(numbers) == most:
            worse = [one for one in numbers[1:] if candidates[one]["kernel"] == candidates[number]["kernel"]]
            assert all(candidates[one]["estimate_us"] <= candidates[number]["estimate_us"] for one in worse)

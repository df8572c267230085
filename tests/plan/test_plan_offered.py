"""Every kernel instance is a candidate of some case on an H200, so the GPU tests run all of them there.

`explain` describes each of these candidates. Each family of tests/families.py draws problems that it has a plan of."""

from __future__ import annotations

import functools
import importlib
import random
from itertools import product
from pathlib import Path

import pytest
from cases import CASES, STAGED_CASES
from cpu_kernels import needs_binary
from families import FAMILIES, HALF_AND_TF32, family_of
from gpu.test_tensor_cores import CONTAINED, contained_call
from plan.problems import DEVICES, H200
from raw_ops import (
    CLASSES,
    DIRECTIONS,
    DTYPES,
    TENSOR_CORE_CLASSES,
    Call,
    GradientCall,
    gradient_kernels,
    kernel_names,
    portable_kernels,
    tensor_core_kernels,
)

from convt_ext.explain import _plan_lines, _tile

pytestmark = needs_binary

ALL_CASES = [*CASES, *STAGED_CASES]
LAYOUTS = (False, True)  # channels_last


described: set[str] = set()  # kernels that `explain` has described


def candidates(call, gpu=H200) -> list[dict]:
    """Returns the planner's candidates, and checks that `explain` describes each kernel."""
    plans = call.candidates(gpu)
    new = [plan for plan in plans if plan["kernel"] not in described]
    text = "\n".join(_plan_lines({"plan": plans[0], "candidates": new, "floor_us": 1.0, "torch_us": 0.0}, "a GPU"))
    assert all(_tile(plan) and _tile(plan) in text for plan in new)
    described.update(plan["kernel"] for plan in new)
    return plans


def offered(calls) -> set[str]:
    return {plan["kernel"] for call in calls for plan in candidates(call)}


def test_exact_kernels_of_the_forward_pass():
    calls = (
        Call.of(case, dtype, precision, channels_last, device="cpu")
        for case, (dtype, precision), channels_last in product(ALL_CASES, CLASSES.values(), LAYOUTS)
    )
    assert offered(calls) == set(kernel_names())


@pytest.mark.parametrize("direction", ["grad_input", "grad_weight"])
def test_exact_kernels_of_gradients(direction):
    gradients = (
        GradientCall.of(direction, Call.of(case, dtype, device="cpu")).replace(channels_last=channels_last)
        for case, dtype, channels_last in product(ALL_CASES, DTYPES, LAYOUTS)
    )
    assert offered(gradients) - set(tensor_core_kernels()) == set(gradient_kernels(direction))


BY_NAME = {case.name: case for case in ALL_CASES}


@functools.cache
def tensor_core_plans(name: str, kind: str, direction: str, channels_last: bool, gpu: str = "h200") -> list[dict]:
    """The candidates of a case on tensor cores. Several tests read them."""
    case, (dtype, precision) = BY_NAME[name], TENSOR_CORE_CLASSES[kind]
    call = Call.of(case, dtype, precision, channels_last, device="cpu")
    call = call if direction == "forward" else GradientCall.of(direction, call).in_layout(channels_last)
    kernels = set(tensor_core_kernels())
    return [plan for plan in candidates(call, DEVICES[gpu]) if plan["kernel"] in kernels]


def kernels_of(names, kinds, direction: str, gpu: str = "h200") -> set[str]:
    """The tensor-core kernels that any of the cases has as candidates."""
    problems = product(names, kinds, (direction,), LAYOUTS)
    return {plan["kernel"] for problem in problems for plan in tensor_core_plans(*problem, gpu)}


@pytest.mark.parametrize("kind", TENSOR_CORE_CLASSES)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_tensor_core_kernels(kind, direction):
    expected = {kernel for kernel in tensor_core_kernels() if kernel.split("_")[1] == kind}
    of_weight = {kernel for kernel in expected if "_weight_" in kernel or kernel.startswith("correlate_")}
    of_input = {kernel for kernel in expected if "gather" in kernel or "grad_input" in kernel}
    if direction == "grad_weight":
        expected = of_weight
    elif direction == "grad_input":  # has one W phase, and patches are gathered
        everywhere = ("window_", "nhwc_", "portable_")
        expected = of_input | {kernel for kernel in expected if kernel.startswith(everywhere) or "_1x" in kernel}
        expected -= of_weight
    else:
        expected -= of_input | of_weight
    assert kernels_of(BY_NAME, [kind], direction) == expected


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_portable_kernels(direction):
    """They are also candidates on GPUs other than Hopper with tensor cores."""
    expected = {kernel for kernel in portable_kernels() if ("_weight_" in kernel) is (direction == "grad_weight")}
    assert kernels_of([case.name for case in CASES], HALF_AND_TF32, direction, "a100") == expected


@pytest.mark.parametrize("kind", TENSOR_CORE_CLASSES)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_nan_and_inf_meet_every_tensor_core_kernel(kind, direction):
    """Each kernel has a problem in every direction in which some case has a plan of it, and each problem has a plan."""
    served: set[str] = set()
    for case, of_kind, channels_last in CONTAINED[direction]:
        if of_kind == kind:
            call = contained_call(case, kind, direction, channels_last, device="cpu")
            kernels = offered([call]) & set(tensor_core_kernels())
            assert kernels, (case.name, channels_last)
            served |= kernels
    assert kernels_of(BY_NAME, [kind], direction) - served == set()


@pytest.mark.parametrize("short", [False, True])
def test_the_sanitizers_problems_meet_every_tensor_core_kernel(short, monkeypatch):
    """The short list leaves out kernels that reduce in a cluster."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "tools"))
    workload = importlib.import_module("sanitize_workload")
    met = set()
    for name, *others in product(workload.names_for_tensor_cores(short), TENSOR_CORE_CLASSES, DIRECTIONS, LAYOUTS):
        plans = tensor_core_plans(name, *others)
        met |= {plan["kernel"] for plan in plans if not short or workload.in_short(name, plan)}
    assert set(tensor_core_kernels()) - met == set()


# ---- families


SEEDS = (0, 1)


def test_every_kernel_is_of_a_family():
    """A kernel is in one family of a direction, in a class of the family, and every family has a kernel."""
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
    """A seed draws the same problems again, and another seed draws others."""
    for kind in family.classes:
        drawn = [family.problem(random.Random(seed), kind, "cpu", H200) for seed in (*SEEDS, *SEEDS)]
        assert [words for _, words in drawn[:2]] == [words for _, words in drawn[2:]]
        assert drawn[0][1] != drawn[1][1]
        for call, _ in drawn[:2]:
            assert any(family.has(plan) for plan in call.candidates(H200))

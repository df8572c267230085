"""Properties of the plans of every family: they can be launched, support the class, direction, format and GPU, and are
sorted by their estimates."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from families import FAMILIES
from hypothesis import given
from hypothesis import strategies as st
from plan.layers import LAYERS
from plan.legal import assert_cluster_is_legal, assert_launchable, assert_served, assert_simt_is_legal
from plan.problems import ATEN, DEVICES, GRAD_INPUT, GRAD_WEIGHT, H200, IEEE, PRECISIONS, from_row, of_case, problems
from plan.profile import PROFILE, many_problems
from plan.tensor_cores import KINDS, plans_of
from raw_ops import DIRECTIONS

DRAWS = 15 if PROFILE == "ci" else 30  # of a family and class


def assert_candidates(module, problem, device) -> list[dict]:
    candidates = module.candidates(problem, device)
    # Gradients of the weight are planned for 63 KiB of shared memory, which every supported GPU has.
    least = 63 * 1024 if problem["direction"] == GRAD_WEIGHT else 0
    for plan in candidates:
        assert_launchable(plan, [*device[:2], max(device[2], least)])
        assert_served(problem, device, plan)
        assert_cluster_is_legal(problem, device, plan)
        if plan["family"] == "simt":
            assert_simt_is_legal(module, problem, plan)
    choice, *others = (plan["estimate_us"] for plan in candidates)
    assert others == sorted(others)
    # The search for the choice leaves out what cannot be better, and of the gradient of the weight on tensor cores a
    # little more.
    longer = 1.1 if problem["direction"] == GRAD_WEIGHT and problem["precision"] not in (IEEE, ATEN) else 1
    assert choice <= longer * min(others, default=choice)
    assert module.choose(problem, device) == candidates[0]
    assert candidates.count(candidates[0]) == 1
    return candidates


@many_problems
@given(problem=problems(dtypes=True), device=st.sampled_from(sorted(DEVICES)), direction=st.integers(0, 2))
def test_every_candidate(plan_module, problem, device, direction):
    problem = {**problem, "direction": direction, "has_bias": problem["has_bias"] and direction == 0}
    assert_candidates(plan_module, problem, DEVICES[device])


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_family(plan_module, run_seed, family):
    """Problems that the family supports have its plans, in both formats; GPUs without its instructions have none."""
    offered = 0
    for kind in family.classes:
        draw = Random(f"{run_seed} {family.name} {kind}")
        for _ in range(DRAWS):
            case = family.draw(draw, 4 if kind.startswith("tf32") else 8)
            if min(case.output_size) < 1:
                continue
            dtype, precision = KINDS[kind]
            options = {
                "dtype": dtype,
                "precision": precision,
                "channels_last": draw.choice((*family.formats, False, True)),
            }
            problem = of_case(case, DIRECTIONS.index(family.direction), **options)
            offered += any(family.has(plan) for plan in assert_candidates(plan_module, problem, H200))
            assert_candidates(plan_module, problem, DEVICES[draw.choice(sorted(DEVICES))])
    assert offered > DRAWS // 8


@pytest.mark.parametrize("name", LAYERS)
def test_layers(plan_module, name):
    for dtype, precisions in PRECISIONS.items():
        for precision, direction in product(precisions, range(3)):
            problem = from_row(*LAYERS[name], dtype=dtype, precision=precision)
            assert_candidates(plan_module, problem | {"direction": direction}, H200)


@pytest.mark.parametrize("engine", ["rows_sm90a", "nhwc_sm90a", "patch_sm90a"])
def test_clusters_share_few_tiles(plan_module, engine):
    """CTAs of clusters share tiles if there are fewer than half as many tiles as SMs."""
    layers = {"rows_sm90a": (1, 256, 128, 32, 4, 2, 1), "nhwc_sm90a": (128, 512, 256, 4, 4, 2, 1),
              "patch_sm90a": (1, 64, 128, 9, 2, 2)}  # fmt: skip
    found = set()
    for kind in ("tf32", "bf16"):
        dtype, precision = KINDS[kind]
        options = {"dtype": dtype, "precision": precision, "channels_last": engine == "nhwc_sm90a"}
        problem = from_row(*layers[engine], **options) | {"direction": GRAD_INPUT}
        found |= {plan["splits"] for plan in plans_of(engine, plan_module, problem) if "splits" in plan}
    assert found > {1}

"""Plans of the gradients: bits do not depend on the GPU, and the workspace is bounded."""

from __future__ import annotations

import json
from itertools import product
from math import prod

import pytest
from hypothesis import given
from plan.layers import EXTREMES, LAYERS
from plan.legal import assert_launchable, assert_simt_is_legal
from plan.problems import (
    ATEN,
    DEVICES,
    FLOAT16,
    FLOAT32,
    GRAD_INPUT,
    GRAD_WEIGHT,
    H200,
    TF32,
    from_row,
    problems,
    sizes_of,
)
from plan.profile import many_problems
from plan.tensor_cores import on_tensor_cores

WORKSPACE = 2**28

# Fields of tiles that determine the order of accumulation of a gradient of the weight.
ORDER = ("strip", "units_per_chunk", "rows", "tile_h", "tile_w", "tile_w_log2", "tiles_per_chunk", "splits", "terms")


def of_family(plan):
    """Returns every field for the simt engine, whose tiles are chosen for one GPU."""
    return (*ORDER, *plan["fields"], "instance") if plan["engine"] == "simt" else ORDER


def assert_one_order(module, problem) -> None:
    """The kernel and the fields that determine the order of accumulation are the same on every GPU."""
    problem = {**problem, "direction": GRAD_WEIGHT}
    chosen = set()
    for device in DEVICES.values():
        # The orders of tensor-core engines are their plans', which GPUs do not share.
        plans = [plan for plan in module.candidates(problem, device) if not on_tensor_cores(plan)]
        chosen.add(json.dumps([(plan["kernel"], *(plan.get(field) for field in of_family(plan))) for plan in plans]))
    assert len(chosen) == 1


@many_problems
@given(problem=problems(dtypes=True))
def test_bits_do_not_depend_on_the_gpu(plan_module, problem):
    assert_one_order(plan_module, problem)


@pytest.mark.parametrize("name", LAYERS)
def test_bits_of_layers_do_not_depend_on_the_gpu(plan_module, name):
    for dtype, channels_last in product((FLOAT32, FLOAT16), (False, True)):
        assert_one_order(plan_module, from_row(*LAYERS[name], dtype=dtype, channels_last=channels_last))


@pytest.mark.parametrize("name", {**LAYERS, **EXTREMES})
@pytest.mark.parametrize("direction", [GRAD_INPUT, GRAD_WEIGHT])
def test_large_problems_have_plans(plan_module, name, direction):
    """The workspace of partials is bounded, except that one slab, or one for each split, may be larger."""
    problem = {**from_row(*{**LAYERS, **EXTREMES}[name]), "direction": direction}
    plans = plan_module.candidates(problem, H200)
    assert plans
    slab = 4 * prod(sizes_of(problem)[1])
    for plan in plans:
        assert_launchable(plan, H200)
        if direction == GRAD_WEIGHT:
            splits = plan["splits"] if plan["engine"] == "simt" else 1
            assert plan["workspace_bytes"] <= max(WORKSPACE, splits * slab), plan
            assert plan["workspace_bytes"] % slab == 0, plan
        elif plan["engine"] == "simt":
            assert_simt_is_legal(plan_module, problem, plan)
    written = json.loads(plan_module.to_json(problem, H200))
    assert [plan["workspace_bytes"] for plan in written["candidates"]] == [plan["workspace_bytes"] for plan in plans]


@pytest.mark.parametrize("direction", [GRAD_INPUT, GRAD_WEIGHT])
def test_every_float32_class_has_one_order(plan_module, direction):
    """aten runs as ieee, and so do the classes of tensor cores on GPUs without these engines."""
    for precision, device in ((ATEN, H200), (TF32, [80, *H200[1:]])):
        problem = {**from_row(*LAYERS["kb75"]), "direction": direction, "precision": precision}
        written = json.loads(plan_module.to_json(problem, device))
        assert written["plan"]["served_precision"] == "ieee"

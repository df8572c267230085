"""The thin engine's plans: legal for every GPU, and exact when executed, whatever the tile."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from plan import thin
from plan.exact import assert_exact
from plan.problems import ATEN, DEVICES, FLOAT32, FLOAT64, H200, IEEE, from_row, problems
from plan.profile import few_problems
from plan.test_plan_choice import LAYERS


def thin_plans(module, problem, device=H200):
    """The plans of tiles. plan/test_plan_thin_depthwise.py tests the depthwise engine."""
    return [plan for plan in module.candidates(problem, device) if plan["engine"] == "thin"]


@few_problems
@given(problem=problems(dtypes=True), device=st.sampled_from(sorted(DEVICES)), data=st.data())
def test_candidates_are_legal(plan_module, problem, device, data):
    plans = thin_plans(plan_module, problem, DEVICES[device])
    assume(plans)
    thin.assert_thin_is_legal(plan_module, problem, DEVICES[device], data.draw(st.sampled_from(plans)))


@few_problems
@given(problem=problems(), data=st.data())
def test_any_tile_is_exact(plan_module, problem, data):
    """Tiles that divide nothing too, not only those that the planner would choose."""
    draw = data.draw
    assume(problem["dtype"] == FLOAT32 and problem["precision"] == IEEE)
    group_ci, group_co = (problem[key] // problem["groups"] for key in ("c_in", "c_out"))
    block_groups = draw(st.sampled_from([1, 1, 2, 3]))
    plan = {
        "instance": draw(st.integers(0, 3)),
        "tile_h": draw(st.integers(1, 5)),
        "tile_w": draw(st.integers(1, 40)),
        "tiles_per_block": draw(st.integers(1, 3)),
        "block_co": group_co if block_groups > 1 else draw(st.integers(1, group_co)),
        "block_groups": block_groups,
        "split_phases": draw(st.booleans()),
        "chunk_ci": group_ci if block_groups > 1 else draw(st.integers(1, group_ci)),
    }
    layout = plan_module.thin_layout(problem, plan)
    assume(layout is not None and layout["num_blocks"] <= 300)
    shared = {key: layout[key] for key in ("threads", "shared_bytes", "num_blocks")}
    times = dict.fromkeys(("compute_us", "memory_us", "estimate_us"), 1.0)
    thin.assert_thin_is_legal(plan_module, problem, [90, 132, 2**21, 2**21], {**plan, **shared, **times})
    assert_exact(problem, partial(thin.run, plan_module, problem, plan))


@pytest.mark.parametrize("name", ["kb75", "kb81", "dw_up", "dcgan_rgb", "fcn8s", "fsrcnn"])
def test_thin_layers_have_thin_plans(plan_module, name):
    problem = from_row(*LAYERS[name])
    plans = thin_plans(plan_module, problem)
    assert plans
    for plan in plans:
        thin.assert_thin_is_legal(plan_module, problem, H200, plan)


@pytest.mark.parametrize(("dtype", "precision"), [(FLOAT64, IEEE), (FLOAT32, ATEN)])
def test_other_orders_have_none(plan_module, dtype, precision):
    assert not thin_plans(plan_module, from_row(*LAYERS["dw_up"], dtype=dtype, precision=precision))

"""The mma engine's plans: legal, exact when executed whatever the tile, and offered where the engine serves."""

from __future__ import annotations

import functools
from functools import partial

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from plan import mma, mma_rows
from plan.exact import assert_exact
from plan.problems import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    FORWARD,
    H200,
    IEEE,
    TF32,
    TF32X3,
    channels_last_strides,
    contiguous_strides,
    from_row,
    problems,
    sizes_of,
)
from plan.profile import few_problems
from plan.tensor_cores import CLASS_OF_DTYPE, plans_of
from plan.test_plan_choice import LAYERS

engine_plans = functools.partial(plans_of, "mma_sm90a")


def assert_is_legal(module, problem, device, plan):
    """Of either kind of tile."""
    rows = "_rows_" in plan["kernel"]
    (mma_rows.assert_mma_rows_is_legal if rows else mma.assert_mma_is_legal)(module, problem, device, plan)


def in_class(problem):
    """The forward pass in the engine's class for a dtype, with an NCHW result."""
    dtype = FLOAT32 if problem["dtype"] == FLOAT64 else problem["dtype"]
    served = {"direction": FORWARD, "dtype": dtype, "precision": CLASS_OF_DTYPE[dtype]}
    return {**problem, **served, "y_stride": contiguous_strides(sizes_of(problem)[2])}


@few_problems
@given(problem=problems(dtypes=True), data=st.data())
def test_candidates_are_legal(plan_module, problem, data):
    problem = in_class(problem)
    plans = engine_plans(plan_module, problem)
    if plans:  # taps beyond the tables have none
        assert_is_legal(plan_module, problem, H200, data.draw(st.sampled_from(plans)))


@few_problems
@given(problem=problems(dtypes=True), data=st.data())
def test_any_tile_is_exact(plan_module, problem, data):
    """Tiles that divide nothing too, not only those that the planner would choose."""
    draw = data.draw
    problem = in_class(problem)
    group_co = problem["c_out"] // problem["groups"]
    plan = {
        "instance": [FLOAT32, FLOAT16, BFLOAT16].index(problem["dtype"]),
        "threads": draw(st.sampled_from([128, 256])),
        "tile_h": draw(st.integers(1, 5)),
        "tile_w": draw(st.integers(1, 40)),
        "block_co": draw(st.integers(1, group_co)),
        "split_phases": draw(st.booleans()),
        "chunk_steps": draw(st.integers(1, 3)),
        "raw_slots": draw(st.integers(1, 2)),
        "blocks_per_pass": draw(st.integers(1, 3)),
    }
    layout = plan_module.mma_layout(problem, plan)
    assume(layout is not None and layout["num_tiles"] * layout["passes"] <= 200)
    times = dict.fromkeys(("compute_us", "memory_us", "estimate_us"), 1.0)
    shared = {key: layout[key] for key in ("shared_bytes", "num_blocks")}
    mma.assert_mma_is_legal(plan_module, problem, [90, 132, 2**21, 2**21], {**plan, **shared, **times})
    assert_exact(problem, partial(mma.run, plan_module, problem, plan))


@few_problems
@given(problem=problems(dtypes=True), data=st.data())
def test_any_tile_of_whole_rows_is_exact(plan_module, problem, data):
    draw = data.draw
    problem = in_class(problem)
    problem["x_stride"] = contiguous_strides(sizes_of(problem)[0])
    tile_h, slots = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    plan = {
        "instance": [FLOAT32, FLOAT16, BFLOAT16].index(problem["dtype"]),
        "warps": draw(st.integers(1, min(14, tile_h * slots))),
        "tile_h": tile_h,
        "block_co": draw(st.integers(1, problem["c_out"] // problem["groups"])),
        "slots": slots,
        "padding": draw(st.integers(0, 3)),
        "interleaved": draw(st.booleans()),
        "blocks_per_pass": draw(st.integers(1, 3)),
    }
    layout = plan_module.mma_rows_layout(problem, plan)
    assume(layout is not None and layout["num_tiles"] * layout["passes"] <= 100)
    made = dict.fromkeys(("compute_us", "memory_us", "estimate_us"), 1.0)
    made |= {key: layout[key] for key in ("threads", "shared_bytes", "num_blocks")}
    mma_rows.assert_mma_rows_is_legal(plan_module, problem, [90, 132, 2**21, 2**21], {**plan, **made})
    assert_exact(problem, partial(mma_rows.run, plan_module, problem, plan))


@pytest.mark.parametrize("dtype", CLASS_OF_DTYPE)
@pytest.mark.parametrize("name", ["kb75", "kb81", "dcgan_rgb", "fcn8s", "fsrcnn"])
def test_layers_of_few_channels_have_plans(plan_module, name, dtype):
    problem = from_row(*LAYERS[name], dtype=dtype, precision=CLASS_OF_DTYPE[dtype])
    plans = engine_plans(plan_module, problem)
    assert plans
    for plan in plans:
        assert_is_legal(plan_module, problem, H200, plan)


def test_what_it_does_not_serve(plan_module):
    problem = from_row(*LAYERS["kb81"], precision=TF32)
    assert not engine_plans(plan_module, problem, [80, *H200[1:]])
    for other in (IEEE, TF32X3):
        assert not engine_plans(plan_module, problem | {"precision": other})
    assert not engine_plans(plan_module, problem | {"y_stride": channels_last_strides(sizes_of(problem)[2])})

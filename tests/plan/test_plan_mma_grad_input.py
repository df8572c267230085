"""The mma engine's plans of the gradient of the input: legal, exact when executed whatever the tile, and offered."""

from __future__ import annotations

import functools
from functools import partial

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from plan import mma_grad_input
from plan.exact import assert_exact
from plan.problems import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    GRAD_INPUT,
    H200,
    IEEE,
    TF32,
    TF32X3,
    from_row,
    problems,
    sizes_of,
)
from plan.profile import few_problems
from plan.tensor_cores import CLASS_OF_DTYPE, HALF, plans_of
from plan.test_plan_choice import LAYERS

engine_plans = functools.partial(plans_of, "mma_sm90a")


# kernels/mma_sm90a/instances.h
INSTANCES = {
    (FLOAT32, TF32): range(4),
    (FLOAT16, HALF): range(4, 8),
    (BFLOAT16, HALF): range(8, 12),
    (FLOAT32, TF32X3): range(12, 15),
}


def in_class(problem):
    """The gradient of the input in the engine's class for a dtype, tf32x3 for float64's."""
    dtype = problem["dtype"]
    dtype, precision = (FLOAT32, TF32X3) if dtype == FLOAT64 else (dtype, CLASS_OF_DTYPE[dtype])
    return {**problem, "direction": GRAD_INPUT, "dtype": dtype, "precision": precision, "has_bias": False}


@few_problems
@given(problem=problems(dtypes=True), data=st.data())
def test_candidates_are_legal(plan_module, problem, data):
    problem = in_class(problem)
    plans = engine_plans(plan_module, problem)
    if plans:  # taps beyond the masks have none
        mma_grad_input.assert_is_legal(plan_module, problem, H200, data.draw(st.sampled_from(plans)))


@few_problems
@given(problem=problems(dtypes=True), data=st.data())
def test_any_tile_is_exact(plan_module, problem, data):
    """Tiles that divide nothing too, not only those that the planner would choose."""
    draw = data.draw
    problem = in_class(problem)
    group_co = problem["c_out"] // problem["groups"]
    splits = draw(st.sampled_from([1, 1, 2, 3]))
    plan = {
        "instance": draw(st.sampled_from(INSTANCES[problem["dtype"], problem["precision"]])),
        "warps": splits * draw(st.integers(1, 11 // splits)),
        "splits": splits,
        "tile_h": draw(st.integers(1, 5)),
        "tile_w": draw(st.one_of(st.integers(1, 40), st.sampled_from([8, 16, 32]))),
        "chunk_co": draw(st.sampled_from([n for n in range(1, group_co + 1) if group_co % n == 0])),
        "stages": draw(st.integers(1, 4)),
        "blocks_per_group": draw(st.integers(1, 3)),
        "order": draw(st.sampled_from([0, 1, 2])),
        "padding": draw(st.integers(0, 7)),
    }
    layout = plan_module.mma_grad_input_layout(problem, plan)
    assume(layout is not None and layout["num_tiles"] * layout["groups"] * layout["positions"] <= 400)
    times = dict.fromkeys(("compute_us", "memory_us", "estimate_us"), 1.0)
    shared = {key: layout[key] for key in ("threads", "shared_bytes", "num_blocks")}
    mma_grad_input.assert_is_legal(plan_module, problem, [90, 132, 2**21, 2**21], {**plan, **shared, **times})
    assert_exact(problem, partial(mma_grad_input.run, problem, layout))


@pytest.mark.parametrize("dtype", [*CLASS_OF_DTYPE, FLOAT64])
@pytest.mark.parametrize("name", ["kb75", "kb81", "dcgan_rgb", "fsrcnn"])
def test_layers_of_few_channels_have_plans(plan_module, name, dtype):
    problem = in_class(from_row(*LAYERS[name], dtype=dtype))
    plans = engine_plans(plan_module, problem)
    assert plans
    for plan in plans:
        mma_grad_input.assert_is_legal(plan_module, problem, H200, plan)
    assert plan_module.choose(problem, H200)["engine"] in ("mma_sm90a", "rows_sm90a")


@pytest.mark.parametrize("dtype", CLASS_OF_DTYPE)
@pytest.mark.parametrize("name", ["dcgan_rgb", "fsrcnn"])
def test_channels_last_of_few_output_channels_is_its(plan_module, name, dtype):
    problem = in_class(from_row(*LAYERS[name], dtype=dtype, channels_last=True))
    plans = engine_plans(plan_module, problem)
    for plan in plans:
        layout = mma_grad_input.assert_is_legal(plan_module, problem, H200, plan)
        assert layout["result_channels_last"]
        assert layout["wide"]
    assert plan_module.choose(problem, H200)["engine"] == "mma_sm90a"


def test_what_it_does_not_serve(plan_module):
    problem = in_class(from_row(*LAYERS["kb81"]))
    assert not engine_plans(plan_module, problem, [80, *H200[1:]])
    assert not engine_plans(plan_module, problem | {"precision": IEEE})
    assert not engine_plans(plan_module, in_class(from_row(*LAYERS["fcn8s"])))  # more weights than shared memory
    for key, sizes in zip(("x_stride", "y_stride"), sizes_of(problem)[::2], strict=True):
        n, c, h, w = sizes
        assert not engine_plans(plan_module, problem | {key: [c * w * h * n, n * h, n, 2 * n]})

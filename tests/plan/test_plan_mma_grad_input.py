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


# kernels/mma_sm90a/instances.h; the last of a class reads vectors.
INSTANCES = {
    (FLOAT32, TF32): range(5),
    (FLOAT16, HALF): range(5, 10),
    (BFLOAT16, HALF): range(10, 15),
    (FLOAT32, TF32X3): range(15, 19),
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
    splits, kernel = draw(st.sampled_from([1, 1, 2, 3])), problem["h"]["kernel"]
    plan = {
        "instance": draw(st.sampled_from(INSTANCES[problem["dtype"], problem["precision"]])),
        "warps": splits * draw(st.integers(1, 11 // splits)),
        "splits": splits,
        "tile_h": draw(st.integers(1, 5)),
        "tile_w": draw(st.one_of(st.integers(1, 40), st.sampled_from([8, 16, 32]))),
        "chunk_co": draw(st.sampled_from([n for n in range(1, group_co + 1) if group_co % n == 0])),
        "chunk_kh": draw(st.sampled_from([n for n in range(1, kernel + 1) if kernel % n == 0][::-1])),
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


@pytest.mark.parametrize("chunk_co", [2, 4])
def test_a_stage_of_some_rows_of_taps_has_all_channels(plan_module, chunk_co):
    problem = in_class(from_row(1, 1, 4, (1, 1), (2, 8), (1, 4), (0, 0), dtype=FLOAT16))
    plan = {"warps": 9, "splits": 1, "tile_h": 1, "tile_w": 1, "chunk_co": chunk_co, "chunk_kh": 1, "stages": 1}
    plan |= {"blocks_per_group": 1, "order": 0, "padding": 0}
    layouts = [
        plan_module.mma_grad_input_layout(problem, {**plan, "instance": instance})
        for instance in INSTANCES[problem["dtype"], problem["precision"]]
    ]
    assert any(layouts) == (chunk_co == 4)


@pytest.mark.parametrize("width", [8, 9])
@pytest.mark.parametrize("dtype", [*CLASS_OF_DTYPE, FLOAT64])
def test_a_block_s_only_tile_is_zero_around_the_image(plan_module, dtype, width):
    """Where rows of the image begin and end on vectors."""
    problem = in_class(from_row(2, 5, 3, (6, width), (4, 8), (2, 8), (1, 4), dtype=dtype))
    vectors = INSTANCES[problem["dtype"], problem["precision"]][-1]
    numbers = {"warps": 4, "splits": 1, "tile_h": 3, "tile_w": 8, "chunk_co": 1, "chunk_kh": 4, "stages": 2}
    numbers |= {"order": 0, "padding": 0}
    for blocks, zeroed in ((100, True), (1, False)):
        plan = {"instance": vectors, "blocks_per_group": blocks, **numbers}
        layout = plan_module.mma_grad_input_layout(problem, plan)
        assert layout["zeroed"] == zeroed
        assert_exact(problem, partial(mma_grad_input.run, problem, layout))


@pytest.mark.parametrize("dtype", [*CLASS_OF_DTYPE, FLOAT64])
@pytest.mark.parametrize("name", ["kb75", "kb81", "dcgan_rgb", "fcn8s", "fsrcnn"])
def test_layers_of_few_channels_have_plans(plan_module, name, dtype):
    problem = in_class(from_row(*LAYERS[name], dtype=dtype))
    plans = engine_plans(plan_module, problem)
    assert plans
    for plan in plans:
        mma_grad_input.assert_is_legal(plan_module, problem, H200, plan)
    assert plan_module.choose(problem, H200)["engine"] == "mma_sm90a"


@pytest.mark.parametrize("chunk_kh", [1, 2, 4])
@pytest.mark.parametrize(("stride", "padding"), [((2, 2), (1, 2)), ((1, 4), (0, 4)), ((4, 2), (2, 0))])
@pytest.mark.parametrize("dtype", [*CLASS_OF_DTYPE, FLOAT64])
def test_rows_of_taps_by_stages(plan_module, dtype, stride, padding, chunk_kh):
    """Vectors in channels_last: tiles that meet the image's edges, some of them the same block's."""
    problem = in_class(from_row(2, 5, 4, (6, 20), (4, 8), stride, padding, dtype=dtype, channels_last=True))
    vectors = INSTANCES[problem["dtype"], problem["precision"]][-1]
    plan = {"instance": vectors, "warps": 8, "splits": 1, "tile_h": 2, "tile_w": 16, "chunk_co": 4}
    plan |= {"chunk_kh": chunk_kh, "stages": 2, "blocks_per_group": 3, "order": 1, "padding": 0}
    layout = plan_module.mma_grad_input_layout(problem, plan)
    shared = {key: layout[key] for key in ("threads", "shared_bytes", "num_blocks")}
    times = dict.fromkeys(("compute_us", "memory_us", "estimate_us"), 1.0)
    mma_grad_input.assert_is_legal(plan_module, problem, H200, {**plan, **shared, **times})
    assert_exact(problem, partial(mma_grad_input.run, problem, layout))


@pytest.mark.parametrize("dtype", [*CLASS_OF_DTYPE, FLOAT64])
def test_channels_last_weights_that_come_by_stages(plan_module, dtype):
    problem = in_class(from_row(*LAYERS["fcn8s"], dtype=dtype, channels_last=True))
    plans = engine_plans(plan_module, problem)
    assert plans
    for plan in plans:
        layout = mma_grad_input.assert_is_legal(plan_module, problem, H200, plan)
        assert layout["row_chunks"] > 1
    assert plan_module.choose(problem, H200)["engine"] == "mma_sm90a"
    # Channels of the weight that are no neighbours.
    _, c, h, w = sizes_of(problem)[1]
    assert not engine_plans(plan_module, problem | {"w_stride": [c * h * w, h * w, w, 1]})


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
    for key, sizes in zip(("x_stride", "y_stride"), sizes_of(problem)[::2], strict=True):
        n, c, h, w = sizes
        assert not engine_plans(plan_module, problem | {key: [c * w * h * n, n * h, n, 2 * n]})

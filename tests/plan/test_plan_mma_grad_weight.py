"""The mma engine's plans of the gradient of the weight, executed as kernels/mma_sm90a/grad_weight.cuh does."""

from __future__ import annotations

from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from plan.exact import assert_exact_grad_weight
from plan.legal import assert_launch_is_of
from plan.problems import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    GRAD_WEIGHT,
    H200,
    IEEE,
    TF32,
    TF32X3,
    channels_last_strides,
    element_bytes,
    from_row,
    problems,
    sizes_of,
)
from plan.profile import few_problems
from plan.tensor_cores import CLASS_OF_DTYPE
from plan.test_plan_choice import LAYERS
from plan.test_plan_gradients import terms
from plan.test_plan_thin_grad_weight import Stage, fill_stage, memory_of, places_of, stages_of


def plans_of(module, problem, device=H200):
    plans = module.candidates({**problem, "direction": GRAD_WEIGHT}, device)
    return [plan for plan in plans if plan["engine"] == "mma_sm90a"]


def in_class(problem):
    dtype = problem["dtype"] if problem["dtype"] in CLASS_OF_DTYPE else FLOAT32
    return {**problem, "direction": GRAD_WEIGHT, "dtype": dtype, "precision": CLASS_OF_DTYPE[dtype]}


def fill_pixels(problem, layout, place, rows, elems):
    """The copies of kernels/mma_sm90a/grad_weight_pixels.cuh. Returns both operands and their origins' places."""
    h, w = problem["h"], problem["w"]
    element = element_bytes(problem)
    xs, ys = problem["x_stride"], problem["y_stride"]
    pixels = min(layout["strip"], w["in"] - place["w"])
    first = place["image"] * xs[0] + (place["group"] * layout["group_ci"] + place["ci"]) * xs[1]
    first += place["h"] * xs[2] + place["w"] * xs[3]
    channels = min(layout["block_ci"], layout["group_ci"] - place["ci"])
    x = Stage(elems, layout["gy_begin"] // element)
    x_shift = first % elems if layout["x_runs"] else 0
    for row in range(rows):
        at, offset = x_shift + row * layout["x_row"], first + row * xs[2]
        copy_pixels(x, at, offset, pixels, channels, layout["x_pixel"], xs[3], layout["x_runs"])

    row_0 = place["h"] * h["stride"] - h["padding"] + place["kh"] * h["dilation"]
    column_0 = place["w"] * w["stride"] - w["padding"] + place["kw"] * w["dilation"]
    first = place["image"] * ys[0] + (place["group"] * layout["group_co"] + place["co"]) * ys[1]
    first += row_0 * ys[2] + column_0 * ys[3]
    channels = min(layout["block_co"], layout["group_co"] - place["co"])
    gy = Stage(elems, (layout["stage_bytes"] - layout["gy_begin"]) // element)
    gy_shift = first % elems if layout["gy_runs"] else 0
    apart = layout["columns_apart"]
    columns = (pixels - 1) * w["stride"] + (layout["thread_kw"] - 1) * w["dilation"] + 1
    for slot, tap in product(range(layout["slots"]), range(layout["thread_kw"] if apart else 1)):
        q, k = divmod(slot, layout["block_kh"]) if layout["apart"] else (0, 0)
        row = q * h["stride"] + k * h["dilation"] if layout["apart"] else slot * layout["row_step"]
        at = gy_shift + tap * layout["gy_tap_column"]
        at += q * layout["gy_position"] + k * layout["gy_tap"] if layout["apart"] else slot * layout["gy_slot"]
        begin = column_0 + tap * w["dilation"]
        step, count = (w["stride"], pixels) if apart else (1, columns)
        existing = [i for i in range(count) if 0 <= begin + i * step < w["out"]]
        if not 0 <= row_0 + row < h["out"] or not existing:
            continue
        offset = first + row * ys[2] + (tap * w["dilation"] + existing[0] * step) * ys[3]
        at += existing[0] * layout["gy_column"]
        copy_pixels(gy, at, offset, len(existing), channels, layout["gy_column"], step * ys[3], layout["gy_runs"])
    return x, x_shift, gy, gy_shift


def copy_pixels(stage, at, offset, pixels, channels, pitch, step, run):
    """Channels of each pixel, `step` apart in memory and `pitch` in the stage, or, where these are one, a whole run."""
    if run:
        assert pitch == step
        stage.copy(at, offset, (pixels - 1) * pitch + channels, 1)
        return
    for pixel in range(pixels):
        assert channels <= pitch
        assert (at + pixel * pitch) % stage.elems == 0
        for channel in range(channels):
            stage.copy(at + pixel * pitch + channel, offset + pixel * step + channel, 1, 0)


def run(problem, layout, grad_output, x):
    """Executes a plan. Returns the slabs, and how often each of their elements was written."""
    h, w = problem["h"], problem["w"]
    elems = 4 if problem["dtype"] == FLOAT32 else 8
    slabs = np.full((layout["chunks"], *sizes_of(problem)[1]), np.nan)
    writes = np.zeros(slabs.shape, dtype=np.int32)
    x_memory, gy_memory = (memory_of(a, problem[key]) for a, key in ((x, "x_stride"), (grad_output, "y_stride")))
    assert sorted(layout["pixels"]) == list(range(layout["strip"]))
    for block in range(layout["num_blocks"]):
        place, chunk = places_of(layout, block)
        sums = {}
        rows_of_gemm = [
            row for row in layout["rows"]
            if place["co"] + row[0] < layout["group_co"]
            and place["kh"] + row[1] < h["kernel"] and place["kw"] + row[2] < w["kernel"]
        ]  # fmt: skip
        channels = range(min(layout["block_ci"], layout["group_ci"] - place["ci"]))
        for image, pixel_h, pixel_w, rows in stages_of(layout, h["in"], chunk):
            stage = {**place, "image": image, "h": pixel_h, "w": pixel_w}
            fill = fill_pixels if layout["channels_inner"] else fill_stage
            s_x, x_shift, s_gy, gy_shift = fill(problem, layout, stage, rows, elems)
            for row in range(rows):
                for column in layout["pixels"]:
                    if pixel_w + column >= w["in"]:
                        continue
                    for co, kh, kw, at in rows_of_gemm:
                        oh = (pixel_h + row) * h["stride"] - h["padding"] + (place["kh"] + kh) * h["dilation"]
                        ow = (pixel_w + column) * w["stride"] - w["padding"] + (place["kw"] + kw) * w["dilation"]
                        if not (0 <= oh < h["out"] and 0 <= ow < w["out"]):
                            continue
                        at_gy = gy_shift + at + row * layout["gy_position"] + column * layout["gy_pixel"]
                        gy = gy_memory[s_gy.read(at_gy)]
                        for ci in channels:
                            at_x = x_shift + ci * layout["x_channel"] + row * layout["x_row"]
                            at_x += column * layout["x_pixel"]
                            key = (place["ci"] + ci, place["co"] + co, place["kh"] + kh, place["kw"] + kw)
                            sums[key] = sums.get(key, 0) + x_memory[s_x.read(at_x)] * gy
        for co, kh, kw, _ in rows_of_gemm:
            for ci in channels:
                key = (place["ci"] + ci, place["co"] + co, place["kh"] + kh, place["kw"] + kw)
                target = (chunk, place["group"] * layout["group_ci"] + key[0], *key[1:])
                slabs[target] = sums.get(key, 0)
                writes[target] += 1
    return slabs, writes


def assert_legal(module, problem, plan):
    layout = module.mma_grad_weight_layout(problem, plan)
    assert layout is not None, plan
    assert_launch_is_of(layout, plan, H200)
    assert plan["threads"] == 32 * (layout["warps"] + layout["loaders"]) <= 512
    assert plan["workspace_bytes"] == layout["chunks"] * 4 * np.prod(sizes_of(problem)[1]) <= 2**28
    return layout


@few_problems
@given(
    problem=problems(dtypes=True).filter(lambda problem: terms(problem) < 3_000),
    seed=st.integers(0, 2**31),
    data=st.data(),
)
def test_candidates_add_every_term_once(plan_module, problem, seed, data):
    problem = in_class(problem)
    plans = plans_of(plan_module, problem)
    assume(plans)
    plan = data.draw(st.sampled_from(plans))
    layout = assert_legal(plan_module, problem, plan)
    assert_exact_grad_weight(problem, partial(run, problem, layout), seed)


@few_problems
@given(
    problem=problems(dtypes=True).filter(lambda problem: terms(problem) < 3_000),
    seed=st.integers(0, 2**31),
    data=st.data(),
)
def test_any_tile_adds_every_term_once(plan_module, problem, seed, data):
    """Tiles that the planner would not choose too."""
    draw = data.draw
    problem = in_class(problem)
    plan = {
        "instance": draw(st.integers(0, plan_module.num_mma_grad_weight_instances - 1)),
        "strip": 8 * draw(st.integers(1, 6)),
        "units_per_chunk": draw(st.integers(1, 9)),
        "block_ci": draw(st.integers(1, 20)),
        "block_co": draw(st.sampled_from([*range(1, 13), 16, 32])),
        "block_kh": draw(st.integers(1, 3)),
        "block_kw": draw(st.integers(1, 3)),
        "tile_units": draw(st.integers(1, 5)),
        "stages": draw(st.integers(2, 4)),
        "loaders": draw(st.integers(1, 4)),
        "taps_first": draw(st.booleans()),
        "pixel_order": draw(st.integers(0, 4)),
        "x_padding": draw(st.integers(0, 7)),
        "gy_padding": draw(st.integers(0, 7)),
    }
    layout = plan_module.mma_grad_weight_layout(problem, plan)
    assume(layout is not None and layout["num_blocks"] <= 200)
    assert_exact_grad_weight(problem, partial(run, problem, layout), seed)


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT16, BFLOAT16])
@pytest.mark.parametrize("name", ["kb75", "kb81", "dcgan_rgb", "fsrcnn", "fcn8s"])
def test_layers_of_few_channels_have_plans(plan_module, name, dtype):
    problem = in_class(from_row(*LAYERS[name], dtype=dtype))
    plans = plans_of(plan_module, problem)
    assert plans
    for plan in plans:
        assert_legal(plan_module, problem, plan)


def test_what_it_does_not_serve(plan_module):
    problem = {**from_row(*LAYERS["kb81"], precision=TF32), "direction": GRAD_WEIGHT}
    assert plans_of(plan_module, problem)
    assert not plans_of(plan_module, problem, [80, *H200[1:]])
    for other in (IEEE, TF32X3):
        assert not plans_of(plan_module, problem | {"precision": other})
    y_strides = {"y_stride": channels_last_strides(sizes_of(problem)[2])}
    assert not plans_of(plan_module, problem | y_strides)
    assert plans_of(plan_module, problem | y_strides | {"x_stride": channels_last_strides(sizes_of(problem)[0])})

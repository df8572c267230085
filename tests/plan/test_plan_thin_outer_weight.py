"""The thin engine's outer products for the gradient of the weight, executed as kernels/thin/outer_weight.cuh does."""

from __future__ import annotations

import json
from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from plan.exact import assert_exact_grad_weight
from plan.problems import (
    BFLOAT16,
    DEVICES,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    GRAD_WEIGHT,
    H200,
    from_row,
    make_problem,
    problems,
    sizes_of,
)
from plan.profile import few_problems
from plan.test_plan_choice import LAYERS
from plan.test_plan_gradients import terms

ORDER = ("tile_h", "tile_w", "tiles_per_chunk", "splits")
CHANNELS = COLUMNS = 8  # of a thread


def in_channels_last(problem):
    """The problem's sizes, without groups."""
    options = {"has_bias": False, "channels_last": True}
    axes = (problem["h"], problem["w"])
    made = make_problem(problem["batch"], problem["c_in"], problem["c_out"], *axes, groups=1, **options)
    return {**made, "direction": GRAD_WEIGHT}


served_problems = problems().map(in_channels_last).filter(lambda problem: terms(problem) < 3_000)


def plans_of(module, problem, device=H200):
    plans = module.candidates({**problem, "direction": GRAD_WEIGHT}, device)
    return [plan for plan in plans if "_outer_" in plan["kernel"]]


def vectors_of(layout, first):
    """What list_vectors() writes: the place of each vector in a stage, in elements, its position and its tap row."""
    width = layout["width"]
    for index in range(layout["threads_columns"] * (COLUMNS // width)):
        kh, vector = divmod(index, layout["block_vectors"])
        vector += first
        if kh >= layout["block_kh"] or vector >= layout["row_vectors"]:
            yield layout["gy_begin"] // 4, 0, 0
            continue
        position = layout["positions"][vector * width]
        place = kh * layout["rows"]["step"] * layout["gy_pitch"] + position - layout["positions"][first * width]
        yield layout["gy_begin"] // 4 + place, position, kh


def fill_stage(problem, layout, block, image, pixel_h, pixel_w):
    """A stage: place -> (image, row, element of the row), of the input and then of grad_output."""
    h, w, c_in, c_out = problem["h"], problem["w"], problem["c_in"], problem["c_out"]
    stage = {}
    for row, column, ci in product(range(layout["tile_h"]), range(layout["tile_w"]), range(layout["block_ci"])):
        if pixel_h + row < h["in"] and pixel_w + column < w["in"] and block["ci"] + ci < c_in:
            place = (row * layout["tile_w"] + column) * layout["block_ci"] + ci
            stage[place] = (image, pixel_h + row, (pixel_w + column) * c_in + block["ci"] + ci)
    first = (pixel_w * w["stride"] - w["padding"]) * c_out + layout["positions"][block["vector"] * layout["width"]]
    rows = layout["rows"]
    for slot, element in product(range(rows["extent"]), range(layout["gy_pitch"])):
        copy, within = divmod(slot, layout["tile_h"])
        row = copy * h["dilation"] + within * h["stride"] if rows["copies"] else slot * rows["unit"]
        row += pixel_h * h["stride"] - h["padding"] + block["kh"] * h["dilation"]
        if 0 <= row < h["out"] and 0 <= first + element < w["out"] * c_out:
            place = layout["gy_begin"] // 4 + slot * layout["gy_pitch"] + element
            assert 4 * place < layout["stage_bytes"]
            stage[place] = (image, row, first + element)
    return stage


def blocks_of(layout):
    for index in range(layout["num_blocks"]):
        rest, vector = divmod(index, layout["vector_tiles"])
        rest, kh = divmod(rest, layout["kh_tiles"])
        chunk, ci = divmod(rest, layout["ci_tiles"])
        yield {
            "vector": vector * layout["block_vectors"],
            "kh": kh * layout["block_kh"],
            "ci": ci * layout["block_ci"],
            "chunk": chunk,
        }


def pixels_of(problem, layout, chunk):
    """(image, first row, first column) of a chunk's tiles, and the pixels of each split in order."""
    begin = chunk * layout["tiles_per_chunk"]
    for index in range(begin, min(begin + layout["tiles_per_chunk"], layout["pixel_tiles"])):
        row, w_tile = divmod(index, layout["w_tiles"])
        image, h_tile = divmod(row, layout["h_tiles"])
        pixel_h, pixel_w = h_tile * layout["tile_h"], w_tile * layout["tile_w"]
        rows = range(min(layout["tile_h"], problem["h"]["in"] - pixel_h))
        columns = range(min(layout["tile_w"], problem["w"]["in"] - pixel_w))
        yield image, pixel_h, pixel_w, list(product(rows, columns))


def run(problem, layout, grad_output, x):
    """Executes a plan. Returns the slabs, and how often each of their elements was written."""
    h, w, c_in, c_out = problem["h"], problem["w"], problem["c_in"], problem["c_out"]
    width = layout["width"]
    slabs = np.full((layout["chunks"], c_in, h["kernel"], layout["columns"]), np.nan)
    writes = np.zeros(slabs.shape, dtype=np.int32)
    x_rows, gy_rows = (a.transpose(0, 2, 3, 1).reshape(a.shape[0], a.shape[2], -1) for a in (x, grad_output))
    for block in blocks_of(layout):
        vectors = list(vectors_of(layout, block["vector"]))
        jobs = []  # (channel, vector's number): of threads that share channels, each every threads_columns-th vector
        for thread_ci, thread in product(range(layout["threads_ci"]), range(layout["threads_columns"])):
            for ci, v in product(range(CHANNELS), range(COLUMNS // width)):
                jobs.append((thread_ci * CHANNELS + ci, v * layout["threads_columns"] + thread))
        stored = []
        for ci, number in jobs:
            kh, vector = divmod(number, layout["block_vectors"])
            for i in range(width):
                column = (block["vector"] + vector) * width + i
                exists = kh < layout["block_kh"] and block["kh"] + kh < h["kernel"] and column < layout["columns"]
                if exists and block["ci"] + ci < c_in:
                    stored.append((ci, number, i, (block["ci"] + ci, block["kh"] + kh, column)))
        sums = np.zeros(slabs.shape[1:])
        for image, pixel_h, pixel_w, pixels in pixels_of(problem, layout, block["chunk"]):
            stage = fill_stage(problem, layout, block, image, pixel_h, pixel_w)
            for row, column in pixels:
                position = ((pixel_w + column) * w["stride"] - w["padding"]) * c_out
                oh = (pixel_h + row) * h["stride"] - h["padding"] + block["kh"] * h["dilation"]
                at_x = (row * layout["tile_w"] + column) * layout["block_ci"]
                at_gy = row * layout["rows"]["position_step"] * layout["gy_pitch"] + column * w["stride"] * c_out
                for ci, number, i, target in stored:
                    place, vector_position, kh = vectors[number]
                    if not 0 <= oh + kh * h["dilation"] < h["out"]:
                        continue
                    if not 0 <= position + vector_position + i < w["out"] * c_out:
                        continue
                    assert (place + at_gy) % width == 0
                    sums[target] += x_rows[stage[at_x + ci]] * gy_rows[stage[place + at_gy + i]]
        for *_, target in stored:
            slabs[block["chunk"]][target] = sums[target]
            writes[block["chunk"]][target] += 1
    shape = (layout["chunks"], c_in, h["kernel"], w["kernel"], c_out)
    return slabs.reshape(shape).transpose(0, 1, 4, 2, 3), writes.reshape(shape).transpose(0, 1, 4, 2, 3)


def assert_legal(module, problem, plan):
    layout = module.thin_outer_weight_layout(problem, plan)
    assert layout is not None, plan
    for key in ("threads", "shared_bytes", "num_blocks"):
        assert plan[key] == layout[key], plan
    assert layout["jobs"] == layout["threads_ci"] * layout["threads_columns"]
    assert layout["jobs"] * layout["splits"] <= plan["threads"] <= 256
    assert plan["shared_bytes"] <= 63 * 1024
    assert layout["list_begin"] >= 2 * layout["stage_bytes"]
    assert layout["list_begin"] >= layout["splits"] // 2 * layout["jobs"] * CHANNELS * COLUMNS * 4
    assert layout["stage_bytes"] % 16 == layout["gy_begin"] % 16 == layout["list_begin"] % 16 == 0
    weight = 4 * np.prod(sizes_of(problem)[1], dtype=np.int64)
    assert plan["workspace_bytes"] == layout["chunks"] * weight <= max(2**28, weight)
    return layout


@few_problems
@given(
    problem=served_problems,
    device=st.sampled_from(sorted(DEVICES)),
    seed=st.integers(0, 2**31),
    data=st.data(),
)
def test_candidates_add_every_term_once(plan_module, problem, device, seed, data):
    plans = plans_of(plan_module, problem, DEVICES[device])
    assume(plans)  # what is in both formats may have other strides
    plan = data.draw(st.sampled_from(plans))
    layout = assert_legal(plan_module, problem, plan)
    assert_exact_grad_weight(problem, partial(run, problem, layout), seed)


@few_problems
@given(problem=served_problems, seed=st.integers(0, 2**31), data=st.data())
def test_any_tile_adds_every_term_once(plan_module, problem, seed, data):
    """Tiles that the planner would not choose too."""
    draw = data.draw
    plan = {
        "instance": draw(st.integers(0, plan_module.num_thin_outer_weight_instances - 1)),
        "tile_h": draw(st.integers(1, 5)),
        "tile_w": draw(st.integers(1, 9)),
        "tiles_per_chunk": draw(st.integers(1, 9)),
        "splits": draw(st.sampled_from([1, 2, 4, 8])),
        "block_ci": 8 * draw(st.integers(1, 2)),
        "block_kh": draw(st.integers(1, 3)),
        "block_vectors": draw(st.integers(1, 20)),
    }
    layout = plan_module.thin_outer_weight_layout(problem, plan)
    assume(layout is not None and layout["num_blocks"] <= 100)
    assert_exact_grad_weight(problem, partial(run, problem, layout), seed)


@pytest.mark.parametrize("name", ["kb57", "kb81", "dcgan_rgb", "fsrcnn", "fcn8s"])
def test_order_is_the_same_on_every_gpu(plan_module, name):
    problem = {**from_row(*LAYERS[name], channels_last=True), "direction": GRAD_WEIGHT}
    orders = set()
    for device in DEVICES.values():
        plans = plans_of(plan_module, problem, device)
        assert plans
        for plan in plans:
            assert_legal(plan_module, problem, plan)
        orders.add(json.dumps([(plan["kernel"], *(plan[key] for key in ORDER)) for plan in plans]))
    assert len(orders) == 1


@pytest.mark.parametrize("dtype", [FLOAT64, FLOAT16, BFLOAT16])
def test_other_dtypes_have_none(plan_module, dtype):
    assert not plans_of(plan_module, from_row(*LAYERS["kb81"], dtype=dtype, channels_last=True))


def test_nchw_has_none(plan_module):
    assert not plans_of(plan_module, from_row(*LAYERS["kb81"], dtype=FLOAT32))

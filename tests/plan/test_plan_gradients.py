"""Plans of the gradients: every result is written once, everything fits, and bits do not depend on the GPU."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan import interpreter
from plan.exact import assert_exact, assert_exact_grad_weight
from plan.legal import assert_legal
from plan.problems import (
    ATEN,
    DEVICES,
    FLOAT64,
    GRAD_INPUT,
    GRAD_WEIGHT,
    H200,
    TF32,
    from_row,
    problems,
    sizes_of,
)  # fmt: skip
from plan.profile import few_problems, many_problems
from plan.tensor_cores import on_tensor_cores
from plan.test_plan_choice import EXTREMES, LAYERS

WORKSPACE = 2**28
SHARED = 64 * 1024  # what every GPU has


@few_problems
@given(
    problem=problems(dtypes=True), device=st.sampled_from(sorted(DEVICES)), seed=st.integers(0, 2**31), data=st.data()
)
def test_grad_input_plans(plan_module, problem, device, seed, data):
    """Legal, every element written once, and exact: executed on the adjoint problem."""
    problem = {**problem, "direction": GRAD_INPUT}
    candidates = plan_module.candidates(problem, DEVICES[device])
    plan = data.draw(st.sampled_from([plan for plan in candidates if plan["engine"] == "simt"]))
    assert_legal(plan_module, problem, DEVICES[device], plan)
    assert plan["workspace_bytes"] == 0
    assert_exact(problem, partial(interpreter.run_grad_input, plan_module, problem, plan), seed)


def run_grad_weight(module, problem, plan, grad_output, x):
    """Executes a plan: blocks, their chunks of pixels, slabs. Returns the slabs and how often each was written."""
    shape, h, w, groups = sizes_of(problem)[1], problem["h"], problem["w"], problem["groups"]
    tile, instance = plan, module.grad_weight_instances()[plan["instance"]]
    grid = module.grad_weight_grid(problem, tile)
    group_ci, group_co, tile_w = problem["c_in"] // groups, problem["c_out"] // groups, 1 << tile["tile_w_log2"]
    slabs = np.full((grid["chunks"] * tile["splits"], *shape), np.nan)
    writes = np.zeros(slabs.shape, dtype=np.int32)
    for block in range(grid["num_blocks"]):
        place = module.grad_weight_tile(problem, tile, block)
        ci = slice(place["ci_begin"], min(place["ci_begin"] + tile["block_ci"], group_ci))
        co = slice(place["co_begin"], min(place["co_begin"] + tile["block_co"], group_co))
        first_ci, first_co = place["group"] * group_ci, place["group"] * group_co
        kw_begin = place["run_begin"] * instance["thread_kw"]
        taps_h = range(place["kh_begin"], min(place["kh_begin"] + tile["block_kh"], h["kernel"]))
        taps_w = range(kw_begin, min(kw_begin + tile["block_runs"] * instance["thread_kw"], w["kernel"]))
        begin = place["chunk"] * tile["tiles_per_chunk"]
        sums = np.zeros((tile["splits"], ci.stop - ci.start, co.stop - co.start, len(taps_h), len(taps_w)))
        for index in range(begin, min(begin + tile["tiles_per_chunk"], grid["pixel_tiles"])):
            row, w_tile = divmod(index, grid["w_tiles"])
            image, h_tile = divmod(row, grid["h_tiles"])
            for pixel in range(tile["tile_h"] * tile_w):
                ih, iw = h_tile * tile["tile_h"] + pixel // tile_w, w_tile * tile_w + pixel % tile_w
                if ih >= h["in"] or iw >= w["in"]:
                    continue
                vector = x[image, first_ci + ci.start : first_ci + ci.stop, ih, iw]
                for (a, kh), (b, kw) in itertools.product(enumerate(taps_h), enumerate(taps_w)):
                    oh = ih * h["stride"] - h["padding"] + kh * h["dilation"]
                    ow = iw * w["stride"] - w["padding"] + kw * w["dilation"]
                    if 0 <= oh < h["out"] and 0 <= ow < w["out"]:
                        other = grad_output[image, first_co + co.start : first_co + co.stop, oh, ow]
                        sums[pixel % tile["splits"], :, :, a, b] += np.outer(vector, other)
        for split in range(tile["splits"]):
            target = (
                place["chunk"] * tile["splits"] + split, slice(first_ci + ci.start, first_ci + ci.stop), co,
                slice(taps_h.start, taps_h.stop), slice(taps_w.start, taps_w.stop),
            )  # fmt: skip
            slabs[target] = sums[split]
            writes[target] += 1
    return slabs, writes


def terms(problem) -> int:
    """Products of the gradient of the weight, about."""
    (batch, _, h, w), weight, _ = sizes_of(problem)
    return batch * h * w * weight[2] * weight[3] * weight[0]


@few_problems
@given(
    problem=problems(dtypes=True).filter(lambda problem: terms(problem) < 20_000),
    device=st.sampled_from(sorted(DEVICES)),
    seed=st.integers(0, 2**31),
    data=st.data(),
)
def test_grad_weight_plans(plan_module, problem, device, seed, data):
    problem = {**problem, "direction": GRAD_WEIGHT}
    plans = simt_plans(plan_module.candidates(problem, DEVICES[device]))
    assert_grad_weight_legal(plan_module, problem, plans)
    plan = data.draw(st.sampled_from(plans))
    assert_exact_grad_weight(problem, partial(run_grad_weight, plan_module, problem, plan), seed)


def simt_plans(plans):
    """Those of the simt engine: test_plan_thin_gradients.py is about the others."""
    return [plan for plan in plans if plan["engine"] == "simt"]


def assert_grad_weight_legal(module, problem, plans):
    for plan in plans:
        tile, instance = plan, module.grad_weight_instances()[plan["instance"]]
        assert instance["dtype"] == problem["dtype"]
        assert tile["block_ci"] % instance["thread_ci"] == tile["block_co"] % instance["thread_co"] == 0
        jobs = tile["block_ci"] // instance["thread_ci"] * (tile["block_co"] // instance["thread_co"])
        jobs *= tile["block_kh"] * tile["block_runs"] * tile["splits"]
        assert jobs <= plan["threads"] <= 384
        assert plan["threads"] % 32 == 0
        pixels = tile["tile_h"] << tile["tile_w_log2"]
        assert pixels % (2 * tile["splits"]) == 0  # the mainloop takes pixels in pairs
        layout, grid = module.grad_weight_layout(problem, tile), module.grad_weight_grid(problem, tile)
        assert layout["bytes"] == plan["shared_bytes"] < SHARED
        assert layout["output_elems"] == pixels * layout["ci_pitch"]
        window = layout["rows"]["extent"] * layout["columns"]["extent"]
        assert layout["stage_elems"] == layout["output_elems"] + window * layout["co_pitch"]
        element_bytes = 8 if problem["dtype"] == FLOAT64 else 4
        assert layout["places_bytes_begin"] == 2 * layout["stage_elems"] * element_bytes
        assert layout["places_bytes_begin"] % 8 == 0
        assert layout["ci_pitch"] >= tile["block_ci"]
        assert layout["co_pitch"] >= tile["block_co"]
        slabs = grid["chunks"] * tile["splits"]
        weight = np.prod(sizes_of(problem)[1], dtype=np.int64) * element_bytes
        assert plan["workspace_bytes"] == slabs * weight
        assert plan["workspace_bytes"] <= max(WORKSPACE, tile["splits"] * weight)
        assert 0 < plan["num_blocks"] == grid["num_blocks"] < 2**31


@many_problems
@given(problem=problems(dtypes=True), data=st.data())
def test_windows_hold_every_tap_of_every_pixel(plan_module, problem, data):
    """What the loader's list puts at an element of grad_output's window is what the mainloop reads there."""
    plans = simt_plans(plan_module.candidates({**problem, "direction": GRAD_WEIGHT}, H200))
    plan = data.draw(st.sampled_from(plans))
    layout = plan_module.grad_weight_layout(problem, plan)
    taps = plan["block_runs"] * plan_module.grad_weight_instances()[plan["instance"]]["thread_kw"]
    for key, axis, num_taps, tile in (
        ("row", problem["h"], plan["block_kh"], plan["tile_h"]),
        ("column", problem["w"], taps, 1 << plan["tile_w_log2"]),
    ):
        window = layout[f"{key}s"]
        for tap, pixel in itertools.product(range(num_taps), range(tile)):
            element = tap * window["step"] + pixel * window["position_step"]
            assert 0 <= element < window["extent"]
            copy, within = divmod(element, tile)
            listed = copy * axis["dilation"] + within * axis["stride"] if window["copies"] else element * window["unit"]
            assert listed == pixel * axis["stride"] + tap * axis["dilation"]


# Fields of tiles that decide in which order the sums of a gradient of the weight are added up.
ORDER = ("strip", "units_per_chunk", "rows", "tile_h", "tile_w", "tile_w_log2", "tiles_per_chunk", "splits", "terms")


def of_family(plan):
    """Of the simt engine's tiles, which are chosen for one GPU, every field."""
    return (*ORDER, *plan["fields"], "instance") if plan["engine"] == "simt" else ORDER


@many_problems
@given(problem=problems(dtypes=True))
def test_bits_do_not_depend_on_the_gpu(plan_module, problem):
    """What decides the order of the sums of the weight's gradient, and which kernel runs, is the same everywhere."""
    problem = {**problem, "direction": GRAD_WEIGHT}
    chosen = set()
    for device in DEVICES.values():
        # The orders of tensor-core engines are their plans', which GPUs do not share.
        plans = [plan for plan in plan_module.candidates(problem, device) if not on_tensor_cores(plan)]
        chosen.add(json.dumps([(plan["kernel"], *(plan.get(field) for field in of_family(plan))) for plan in plans]))
    assert len(chosen) == 1


@pytest.mark.parametrize("name", {**LAYERS, **EXTREMES})
@pytest.mark.parametrize("direction", [GRAD_INPUT, GRAD_WEIGHT])
def test_large_problems_have_plans(plan_module, name, direction):
    """And the workspace is bounded, except by what one slab takes."""
    problem = {**from_row(*{**LAYERS, **EXTREMES}[name]), "direction": direction}
    plans = plan_module.candidates(problem, H200)
    assert max(Counter(plan["instance"] for plan in plans).values()) > 0
    if direction == GRAD_WEIGHT:
        assert_grad_weight_legal(plan_module, problem, simt_plans(plans))
    else:
        for plan in simt_plans(plans):
            assert_legal(plan_module, problem, H200, plan)
    written = json.loads(plan_module.to_json(problem, H200))
    assert written["problem"]["direction"] == ["forward", "grad_input", "grad_weight"][direction]
    assert [plan["workspace_bytes"] for plan in written["candidates"]] == [plan["workspace_bytes"] for plan in plans]


@pytest.mark.parametrize("direction", [GRAD_INPUT, GRAD_WEIGHT])
def test_every_float32_class_has_one_order(plan_module, direction):
    """aten, and without tensor-core engines their classes too, are served by ieee."""
    for precision, device in ((ATEN, H200), (TF32, [80, *H200[1:]])):
        problem = {**from_row(*LAYERS["kb75"]), "direction": direction, "precision": precision}
        written = json.loads(plan_module.to_json(problem, device))
        assert written["plan"]["served_precision"] == "ieee"

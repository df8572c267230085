"""The thin engine's plans of the gradient of the weight, executed as kernels/thin/grad_weight.cuh does."""

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
    element_bytes,
    from_row,
    problems,
    sizes_of,
)
from plan.profile import few_problems
from plan.test_plan_choice import LAYERS
from plan.test_plan_gradients import terms

ORDER = ("strip", "units_per_chunk")


def plans_of(module, problem, device=H200):
    plans = module.candidates({**problem, "direction": GRAD_WEIGHT}, device)
    return [plan for plan in plans if plan["engine"] == "thin" and "strip" in plan]


class Stage:
    """A stage's operands in shared memory: place -> offset in memory, in elements."""

    def __init__(self, elems: int, capacity: int):
        self.elems, self.capacity, self.places = elems, capacity, {}

    def copy(self, place: int, offset: int, count: int, step: int) -> None:
        """A row whose columns are `step` apart. Neighbours come by whole vectors, which must not lie on other rows."""
        elems = self.elems if step == 1 else 1
        assert (place - offset) % elems == 0
        begin = place // elems * elems
        end = -(-(place + count) // elems) * elems
        assert begin >= 0
        assert end <= self.capacity
        assert not any(at in self.places for at in range(place, place + count))
        for at in range(begin, end):
            if place <= at < place + count:
                self.places[at] = offset + (at - place) * step
            else:
                assert at not in self.places

    def read(self, place: int) -> int:
        return self.places[place]


def fill_stage(problem, layout, place, rows, elems):
    """The copies of kernels/tiling/strip_loader.cuh. Returns both operands and their origins' places."""
    h, w = problem["h"], problem["w"]
    element = element_bytes(problem)
    xs, ys = problem["x_stride"], problem["y_stride"]
    image, pixel_h, pixel_w = place["image"], place["h"], place["w"]
    x_first = image * xs[0] + (place["group"] * layout["group_ci"] + place["ci"]) * xs[1]
    x_first += pixel_h * xs[2] + pixel_w * xs[3]
    x = Stage(elems, layout["gy_begin"] // element)
    x_shift = x_first % elems
    for channel in range(min(layout["block_ci"], layout["group_ci"] - place["ci"])):
        if layout["merged_rows"]:
            at = x_shift + channel * layout["x_channel"]
            x.copy(at, x_first + channel * xs[1], rows * w["in"], xs[3])
            continue
        for row in range(rows):
            at = x_shift + channel * layout["x_channel"] + row * layout["x_row"]
            count = min(layout["strip"], w["in"] - pixel_w)
            x.copy(at, x_first + channel * xs[1] + row * xs[2], count, xs[3])

    row_0 = pixel_h * h["stride"] - h["padding"] + place["kh"] * h["dilation"]
    column_0 = pixel_w * w["stride"] - w["padding"] + place["kw"] * w["dilation"]
    gy_first = image * ys[0] + (place["group"] * layout["group_co"] + place["co"]) * ys[1]
    gy_first += row_0 * ys[2] + column_0 * ys[3]
    gy = Stage(elems, (layout["stage_bytes"] - layout["gy_begin"]) // element)
    gy_shift = gy_first % elems
    begin, end = max(0, -column_0), min(layout["columns"], w["out"] - column_0)
    for channel, slot in product(
        range(min(layout["block_co"], layout["group_co"] - place["co"])), range(layout["slots"])
    ):
        at = gy_shift + channel * layout["gy_channel"]
        if layout["apart"]:
            q, k = divmod(slot, layout["block_kh"])
            row = q * h["stride"] + k * h["dilation"]
            at += q * layout["gy_position"] + k * layout["gy_tap"]
        else:
            row = slot * layout["row_step"]
            at += slot * layout["gy_slot"]
        if 0 <= row_0 + row < h["out"] and begin < end:
            gy.copy(at + begin, gy_first + channel * ys[1] + row * ys[2] + begin * ys[3], end - begin, ys[3])
    return x, x_shift, gy, gy_shift


def places_of(layout, block):
    """The CTA's first channels and taps, and its chunk."""
    index, place = block, {}
    for key, count, size in (
        ("kw", layout["run_tiles"], layout["block_runs"] * layout["thread_kw"]),
        ("kh", layout["kh_tiles"], layout["block_kh"]),
        ("co", layout["co_tiles"], layout["block_co"]),
        ("ci", layout["ci_tiles"], layout["block_ci"]),
        ("group", layout["groups"], 1),
    ):
        index, digit = divmod(index, count)
        place[key] = digit * size
    return place, index


def stages_of(layout, height, chunk):
    """(image, first row, first column, rows) of a chunk's stages."""
    unit, end = chunk * layout["units_per_chunk"], min((chunk + 1) * layout["units_per_chunk"], layout["num_units"])
    while unit < end:
        rest, first = divmod(unit, layout["units_of_strip"])
        image, strip = divmod(rest, layout["strips"])
        units = min(layout["tile_units"], end - unit, layout["units_of_strip"] - first)
        h = first * layout["unit_rows"]
        yield image, h, strip * layout["strip"], min(units * layout["unit_rows"], height - h)
        unit += units


def run(problem, layout, grad_output, x):
    """Executes a plan. Returns the slabs, and how often each of their elements was written."""
    h, w = problem["h"], problem["w"]
    elems = 4 if problem["dtype"] == FLOAT32 else 8
    shape = sizes_of(problem)[1]
    slabs = np.full((layout["chunks"], *shape), np.nan)
    writes = np.zeros(slabs.shape, dtype=np.int32)
    x_memory, gy_memory = (memory_of(a, problem[key]) for a, key in ((x, "x_stride"), (grad_output, "y_stride")))
    for block in range(layout["num_blocks"]):
        place, chunk = places_of(layout, block)
        sums = {}
        channels_ci = range(place["ci"], min(place["ci"] + layout["block_ci"], layout["group_ci"]))
        channels_co = range(place["co"], min(place["co"] + layout["block_co"], layout["group_co"]))
        taps_h = range(place["kh"], min(place["kh"] + layout["block_kh"], h["kernel"]))
        taps_w = range(place["kw"], min(place["kw"] + layout["block_runs"] * layout["thread_kw"], w["kernel"]))
        jobs = list(product(channels_ci, channels_co, taps_h, taps_w))
        for image, pixel_h, pixel_w, rows in stages_of(layout, h["in"], chunk):
            stage = {**place, "image": image, "h": pixel_h, "w": pixel_w}
            s_x, x_shift, s_gy, gy_shift = fill_stage(problem, layout, stage, rows, elems)
            for row, column in product(range(rows), range(min(layout["strip"], w["in"] - pixel_w))):
                for ci, co, kh, kw in jobs:
                    oh = (pixel_h + row) * h["stride"] - h["padding"] + kh * h["dilation"]
                    ow = (pixel_w + column) * w["stride"] - w["padding"] + kw * w["dilation"]
                    if not (0 <= oh < h["out"] and 0 <= ow < w["out"]):
                        continue
                    at_x = x_shift + (ci - place["ci"]) * layout["x_channel"] + row * layout["x_row"] + column
                    at_gy = gy_shift + (co - place["co"]) * layout["gy_channel"] + row * layout["gy_position"]
                    at_gy += (kh - place["kh"]) * layout["gy_tap"] + column * w["stride"]
                    at_gy += (kw - place["kw"]) * w["dilation"]
                    term = x_memory[s_x.read(at_x)] * gy_memory[s_gy.read(at_gy)]
                    sums[ci, co, kh, kw] = sums.get((ci, co, kh, kw), 0) + term
        for ci, co, kh, kw in jobs:
            target = (chunk, place["group"] * layout["group_ci"] + ci, co, kh, kw)
            slabs[target] = sums.get((ci, co, kh, kw), 0)
            writes[target] += 1
    return slabs, writes


def memory_of(array, stride):
    """A tensor's elements by their offset."""
    return {
        sum(i * step for i, step in zip(index, stride, strict=True)): value for index, value in np.ndenumerate(array)
    }


def assert_legal(module, problem, plan, device):
    layout = module.thin_grad_weight_layout(problem, plan)
    assert layout is not None, plan
    for key in ("threads", "shared_bytes", "num_blocks"):
        assert plan[key] == layout[key], plan
    warps = layout["warps_ci"] * layout["warps_co"] * layout["block_runs"] * layout["block_kh"]
    assert plan["threads"] == 32 * warps <= 384
    assert plan["shared_bytes"] <= max(device[2], 63 * 1024)
    assert plan["workspace_bytes"] == layout["chunks"] * 4 * np.prod(sizes_of(problem)[1])
    assert plan["workspace_bytes"] <= max(2**28, plan["workspace_bytes"] // layout["chunks"])
    return layout


@few_problems
@given(
    problem=problems(dtypes=True).filter(lambda problem: terms(problem) < 3_000),
    device=st.sampled_from(sorted(DEVICES)),
    seed=st.integers(0, 2**31),
    data=st.data(),
)
def test_candidates_add_every_term_once(plan_module, problem, device, seed, data):
    problem = {**problem, "direction": GRAD_WEIGHT}
    plans = plans_of(plan_module, problem, DEVICES[device])
    assume(plans)
    plan = data.draw(st.sampled_from(plans))
    layout = assert_legal(plan_module, problem, plan, DEVICES[device])
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
    assume(problem["dtype"] in (FLOAT32, FLOAT16, BFLOAT16))
    problem = {**problem, "direction": GRAD_WEIGHT}
    instance = draw(st.integers(0, plan_module.num_thin_grad_weight_instances - 1))
    plan = {
        "instance": instance,
        "strip": draw(st.sampled_from([1, 2, 8, 16, 32, 64])),
        "units_per_chunk": draw(st.integers(1, 9)),
        "block_kh": draw(st.integers(1, 3)),
        "block_runs": draw(st.integers(1, 2)),
        "tile_units": draw(st.integers(1, 5)),
        "stages": draw(st.integers(2, 4)),
        "block_ci": 8 * draw(st.integers(1, 2)),
        "block_co": 12 * draw(st.integers(1, 2)),
    }
    layout = plan_module.thin_grad_weight_layout(problem, plan)
    assume(layout is not None and layout["num_blocks"] <= 200)
    assert_exact_grad_weight(problem, partial(run, problem, layout), seed)


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT16])
@pytest.mark.parametrize("name", ["kb75", "kb81", "dcgan_rgb", "fsrcnn", "fcn8s"])
def test_order_of_thin_layers_is_the_same_on_every_gpu(plan_module, name, dtype):
    problem = {**from_row(*LAYERS[name], dtype=dtype), "direction": GRAD_WEIGHT}
    orders = set()
    for device in DEVICES.values():
        plans = plans_of(plan_module, problem, device)
        assert plans
        for plan in plans:
            assert_legal(plan_module, problem, plan, device)
        orders.add(json.dumps([(plan["kernel"], *(plan[key] for key in ORDER)) for plan in plans]))
    assert len(orders) == 1


def test_float64_has_none(plan_module):
    assert not plans_of(plan_module, from_row(*LAYERS["kb81"], dtype=FLOAT64))

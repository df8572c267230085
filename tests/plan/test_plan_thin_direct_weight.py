"""The thin engine's plans of small layers' gradients of the weight: what a thread adds up, pixel by pixel, as
kernels/direct/kernel.cuh does."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from plan.exact import assert_exact_grad_weight
from plan.problems import (
    DEVICES,
    FLOAT64,
    FORWARD,
    GRAD_INPUT,
    GRAD_WEIGHT,
    H200,
    from_row,
    problems,
    sizes_of,
)
from plan.profile import few_problems
from plan.test_plan_choice import LAYERS
from plan.test_plan_thin_direct import PWC_NET, direct_plans, strided

CENTER_NET = {"n": 1, "c_in": 128, "c_out": 128, "size": 32, "kernel": 4, "stride": 2, "padding": 1, "groups": 128}


def weight_problem(**row):
    return {**from_row(**row), "direction": GRAD_WEIGHT}


def run(problem, plan, layout, grad_output, x):
    """The only slab, and how often each weight was written."""
    x_memory, gy_memory = strided(x, problem["x_stride"]), strided(grad_output, problem["y_stride"])
    size = sizes_of(problem)[1]
    slab, writes = np.full(size, np.nan), np.zeros(size, dtype=np.int32)
    h, w = problem["h"], problem["w"]
    for block in range(plan["num_blocks"]):
        rest, run_of_taps = divmod(block, layout["runs"])
        rest, kh = divmod(rest, layout["kernel_h"])
        ci, co = divmod(rest, layout["group_co"])
        gy_channel = ci // layout["group_ci"] * layout["group_co"] + co
        for kw in range(run_of_taps * layout["taps"], min((run_of_taps + 1) * layout["taps"], w["kernel"])):
            sums = np.zeros(plan["threads"])
            for pixel in range(layout["pixels"]):
                rest, iw = divmod(pixel, layout["columns"])
                image, ih = divmod(rest, layout["rows"])
                oh = ih * h["stride"] - h["padding"] + kh * h["dilation"]
                ow = iw * w["stride"] - w["padding"] + kw * w["dilation"]
                if not (0 <= oh < h["out"] and 0 <= ow < w["out"]):
                    continue
                value = x_memory[np.dot((image, ci, ih, iw), layout["x_stride"])]
                gradient = gy_memory[np.dot((image, gy_channel, oh, ow), layout["gy_stride"])]
                sums[pixel % plan["threads"]] += value * gradient
            slab[ci, co, kh, kw] = sums.sum()
            writes[ci, co, kh, kw] += 1
    return slab[None], writes[None]


@few_problems
@given(problem=problems(dtypes=True))
def test_every_weight_is_its_sum(plan_module, problem):
    problem = {**problem, "direction": GRAD_WEIGHT}
    layout = plan_module.thin_direct_weight_layout(problem)
    plans = direct_plans(plan_module, problem)
    assume(plans and np.prod(sizes_of(problem)[1]) * layout["pixels"] <= 4000)
    assert layout["weight_stride"] == tuple(problem["w_stride"])
    for plan in plans:
        assert plan["num_blocks"] == layout["num_blocks"]
        assert plan["terms"] == -(-layout["pixels"] // plan["threads"])
        assert plan["shared_bytes"] == plan["workspace_bytes"] == 0
        assert_exact_grad_weight(problem, lambda gy, x, plan=plan: run(problem, plan, layout, gy, x))


@pytest.mark.parametrize("channels_last", [False, True])
def test_small_layers_get_it(plan_module, channels_last):
    problem = weight_problem(**{**PWC_NET, "has_bias": False}, channels_last=channels_last)
    assert plan_module.choose(problem, H200)["kernel"] == "thin_grad_weight_f32_direct"


def test_depthwise_layers_get_it_where_a_warp_reads_neighbours(plan_module):
    assert plan_module.choose(weight_problem(**CENTER_NET), H200)["kernel"] == "thin_grad_weight_f32_direct"
    channels_last = weight_problem(**CENTER_NET, channels_last=True)
    assert plan_module.choose(channels_last, H200)["kernel"] == "thin_grad_weight_f32_k4s2_channels_last"


@pytest.mark.parametrize("device", sorted(DEVICES))
def test_its_threads_are_the_same_on_every_gpu(plan_module, device):
    problem = weight_problem(**CENTER_NET)
    plans, reference = (direct_plans(plan_module, problem, gpu) for gpu in (DEVICES[device], H200))
    assert [plan["threads"] for plan in plans] == [plan["threads"] for plan in reference]
    assert plans[0]["threads"] == 128


def test_what_it_does_not_serve(plan_module):
    for name in ("kb57", "kb81", "dw_up", "fsrcnn"):
        assert not direct_plans(plan_module, {**from_row(*LAYERS[name]), "direction": GRAD_WEIGHT})
    assert not direct_plans(plan_module, weight_problem(**{**PWC_NET, "dtype": FLOAT64}))
    for direction in (FORWARD, GRAD_INPUT):
        assert plan_module.thin_direct_weight_layout({**from_row(**PWC_NET), "direction": direction}) is None


@pytest.mark.parametrize(("height", "width"), list(product((0, 1), (0, 1))))
def test_pixels_without_any_tap_bring_nothing(plan_module, height, width):
    """Paddings that cut off whole rows or columns of pixels."""
    problem = weight_problem(n=2, c_in=2, c_out=3, size=4, kernel=3, stride=1, padding=(2 * height, 2 * width))
    layout = plan_module.thin_direct_weight_layout(problem)
    for plan in direct_plans(plan_module, problem):
        assert_exact_grad_weight(problem, lambda gy, x, plan=plan: run(problem, plan, layout, gy, x))

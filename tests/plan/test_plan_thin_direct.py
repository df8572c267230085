"""The thin engine's plans of small layers: what a thread reads, term by term, as kernels/direct/kernel.cuh does."""

from __future__ import annotations

from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from plan.exact import assert_exact
from plan.problems import (
    ATEN,
    FLOAT32,
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

PWC_NET = {"n": 1, "c_in": 2, "c_out": 2, "size": 32, "kernel": 4, "stride": 2, "padding": 1, "has_bias": True}


def direct_plans(module, problem, device=H200):
    return [plan for plan in module.candidates(problem, device) if plan["kernel"].endswith("_direct")]


def strided(tensor, stride):
    """The tensor's elements where the strides put them."""
    extent = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, stride, strict=True))
    memory = np.full(extent, np.nan)
    for index in np.ndindex(*tensor.shape):
        memory[np.dot(index, stride)] = tensor[index]
    return memory


def run_strided(compute, problem, layout, source, weight, bias=None):
    """compute(layout, source, weight, bias, size) of operands that lie in memory by the problem's strides."""
    forward = problem["direction"] == FORWARD
    x_size, _, y_size = sizes_of(problem)
    memory = strided(source, problem["x_stride" if forward else "y_stride"])
    return compute(layout, memory, strided(weight, problem["w_stride"]), bias, y_size if forward else x_size)


def run(layout, source, weight, bias, size):
    """The results, and how often each was written."""
    result, writes = np.full(size, np.nan), np.zeros(size, dtype=np.int32)
    for number in range(layout["results"]):
        rest, digits = number, []
        for digit in layout["digits"]:
            rest, value = divmod(rest, digit)
            digits.append(value)
        channel, column, row = digits if layout["channels_last"] else (digits[2], digits[0], digits[1])
        position_h, phase_h = divmod(row, len(layout["phases_h"]))
        position_w, phase_w = divmod(column, len(layout["phases_w"]))
        group, of_group = divmod(channel, layout["group_co"])
        h, w = layout["phases_h"][phase_h], layout["phases_w"][phase_w]
        total = 0.0
        for ci, t_h, t_w in product(range(layout["group_ci"]), range(h["num_taps"]), range(w["num_taps"])):
            i = position_h * layout["row_step"] + h["first_shift"] - t_h * h["shift_step"]
            j = position_w * layout["column_step"] + w["first_shift"] - t_w * w["shift_step"]
            if not (0 <= i < layout["rows"] and 0 <= j < layout["columns"]):
                continue
            tap = (h["first_tap"] + t_h * h["tap_step"], w["first_tap"] + t_w * w["tap_step"])
            at = np.dot((rest, group * layout["group_ci"] + ci, i, j), layout["source_stride"])
            of = np.dot((ci, of_group, *tap), layout["weight_stride"]) + group * layout["weight_group_stride"]
            total += source[at] * weight[of]
        result[rest, channel, row, column] = total + (0 if bias is None else bias[channel])
        writes[rest, channel, row, column] += 1
    return result, writes


@few_problems
@given(problem=problems(dtypes=True), direction=st.sampled_from([FORWARD, GRAD_INPUT]))
def test_every_result_is_its_sum(plan_module, problem, direction):
    problem = {**problem, "direction": direction}
    layout = plan_module.thin_direct_layout(problem)
    assume(layout is not None and layout["results"] * layout["terms"] <= 4000)
    for plan in direct_plans(plan_module, problem):
        assert plan["num_blocks"] == layout["num_blocks"] == -(-layout["results"] // plan["threads"])
        assert plan["terms"] == layout["terms"]
        assert plan["shared_bytes"] == plan["workspace_bytes"] == 0
    assert_exact(problem, partial(run_strided, run, problem, layout))


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("direction", [FORWARD, GRAD_INPUT])
def test_small_layers_get_it(plan_module, direction, channels_last):
    problem = {**from_row(**PWC_NET, channels_last=channels_last), "direction": direction}
    assert plan_module.choose(problem, H200)["kernel"].endswith("_f32_direct")


@pytest.mark.parametrize("name", ["kb57", "kb81", "dw_up", "fsrcnn"])
@pytest.mark.parametrize("direction", [FORWARD, GRAD_INPUT, GRAD_WEIGHT])
def test_large_layers_do_not(plan_module, name, direction):
    assert not direct_plans(plan_module, {**from_row(*LAYERS[name]), "direction": direction})


def test_what_it_does_not_serve(plan_module):
    assert direct_plans(plan_module, from_row(**PWC_NET))
    for change in ({"dtype": FLOAT64}, {"dtype": FLOAT32, "precision": ATEN}, {"stride": 9}):
        assert not direct_plans(plan_module, from_row(**{**PWC_NET, **change}))
    # Its gradient of the weight has another layout: ThinDirectWeightLayout.
    assert plan_module.thin_direct_layout({**from_row(**PWC_NET), "direction": GRAD_WEIGHT}) is None

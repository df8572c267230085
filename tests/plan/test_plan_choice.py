"""choose() and candidates(): pure, quick and legal in every class; floor_us and torch_us. For each plan:
test_plan_contract.py."""

from __future__ import annotations

import copy
import time
from math import isfinite, prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan.layers import EXTREMES, LAYERS
from plan.legal import assert_launchable, assert_simt_is_legal
from plan.problems import (
    ATEN,
    BFLOAT16,
    DEVICES,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    H200,
    HALF,
    IEEE,
    PRECISIONS,
    TF32,
    TF32X3,
    from_row,
    make_axis,
    make_problem,
    problems,
    sizes_of,
)
from plan.profile import few_problems, many_problems

CLASSES = [(dtype, precision) for dtype, precisions in PRECISIONS.items() for precision in precisions]


@given(problem=problems(dtypes=True), other=problems(dtypes=True))
def test_planning_is_pure(plan_module, problem, other):
    """Neither the arguments nor what was planned before make a difference."""
    before = copy.deepcopy(problem)
    first = plan_module.candidates(problem, H200)
    plan_module.candidates(other, DEVICES["small_sm75"])
    assert plan_module.candidates(problem, H200) == first
    assert problem == before


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", [*LAYERS, *EXTREMES])
def test_large_problems_are_planned_quickly(plan_module, name, device):
    for dtype, precision in CLASSES:
        for channels_last in (False, True):
            options = {"dtype": dtype, "precision": precision, "channels_last": channels_last, "has_bias": True}
            problem = from_row(*{**LAYERS, **EXTREMES}[name], **options)
            begin = time.thread_time()
            candidates = plan_module.candidates(problem, DEVICES[device])
            seconds = time.thread_time() - begin
            for plan in candidates:
                assert_launchable(plan, DEVICES[device])
                if plan["engine"] == "simt":
                    assert_simt_is_legal(plan_module, problem, plan)
            assert candidates[0] == plan_module.choose(problem, DEVICES[device])
            # Every shape is planned in a call. Of the processor's time, as the machine may be busy.
            assert seconds < 0.05, f"{seconds * 1e3:.1f} ms for {len(candidates)} candidates"


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [(dtype, precision) for dtype in (FLOAT64, FLOAT16, BFLOAT16) for precision in (ATEN, TF32X3, TF32)],
)
def test_a_class_without_a_kernel_is_an_error(plan_module, dtype, precision):
    """The planner never falls back to another order of accumulation silently."""
    problem = make_problem(1, 2, 2, make_axis(3, 3), make_axis(3, 3), dtype=dtype, precision=precision)
    for call in (plan_module.choose, plan_module.candidates, plan_module.to_json):
        with pytest.raises(ValueError, match=r"precision '(aten|tf32x3|tf32)' is defined for float32"):
            call(problem, H200)


@pytest.mark.parametrize(("dtype", "precision"), CLASSES)
def test_every_class_has_a_kernel(plan_module, dtype, precision):
    problem = from_row(*LAYERS["kb57"], dtype=dtype, precision=precision)
    kernel = plan_module.choose(problem, H200)["kernel"]
    half = {FLOAT16: "_f16_", BFLOAT16: "_bf16_"}.get(dtype)
    expected = {IEEE: "_ieee_", ATEN: "_aten_", TF32: "_tf32_", TF32X3: "_tf32x3_", HALF: half}[precision]
    assert expected in kernel
    assert precision != HALF or "_ieee_" not in kernel


@many_problems
@given(problem=problems(dtypes=True), direction=st.integers(0, 2))
def test_no_kernel_without_tensor_cores_is_estimated_near_their_rate(plan_module, problem, direction):
    """choose() does not look at these families where their floor, times this, would already be too long."""
    problem = {**problem, "direction": direction}
    longer = 1.7 if direction == 2 else 2.1
    floor = plan_module.floor_us(problem, (*H200[:5], 10**9))  # of the multiply-adds alone
    for plan in plan_module.candidates(problem, H200):
        if plan["engine"] in ("simt", "thin", "depthwise", "gather") and problem["dtype"] != FLOAT64:
            assert plan["estimate_us"] > longer * floor


def test_a_tile_is_read_as_its_own_type_alone(plan_module):
    read = set()
    for layer in LAYERS.values():
        problem = from_row(*layer, dtype=FLOAT32, precision=TF32)
        plan = plan_module.choose(problem, H200)
        read.add(plan["family"] == "window")
        if plan["family"] == "window":
            assert plan_module.window_instance(problem, H200) == plan["instance"]
        else:
            with pytest.raises(RuntimeError, match="belongs to another kernel family"):
                plan_module.window_instance(problem, H200)
    assert read == {True, False}


# ---- floor_us against a count by brute force, and torch_us


def pairs(axis) -> int:
    """(input coordinate, tap) pairs that land on an output."""
    inputs = np.arange(axis["in"])[:, None] * axis["stride"]
    outputs = inputs - axis["padding"] + np.arange(axis["kernel"]) * axis["dilation"]
    return int(((outputs >= 0) & (outputs < axis["out"])).sum())


def count_floor_us(problem, device, rate_tflops: float) -> float:
    capability, num_sms, _, _, clock_mhz, copy_gb_per_s = device
    x_size, w_size, y_size = sizes_of(problem)
    elements = prod(x_size) + prod(w_size) + prod(y_size) + problem["has_bias"] * problem["c_out"]
    memory_us = elements * {FLOAT32: 4, FLOAT64: 8}.get(problem["dtype"], 2) / copy_gb_per_s / 1e3
    multiply_adds = problem["batch"] * prod(w_size[:2]) * pairs(problem["h"]) * pairs(problem["w"])
    lanes = {80: 32, 90: 64, 100: 64}.get(capability, 2) if problem["dtype"] == FLOAT64 else 128
    rate = rate_tflops * 1e6 if rate_tflops > 0 else 2 * lanes * num_sms * clock_mhz
    return max(memory_us, 2 * multiply_adds / rate)


@many_problems
@given(
    problem=problems(dtypes=True),
    device=st.sampled_from(sorted(DEVICES)),
    rate=st.sampled_from([0.0, -1.0, 1e-6, 64.0, 480.0]),
)
def test_floor_is_the_count(plan_module, problem, device, rate):
    expected = count_floor_us(problem, DEVICES[device], rate)
    assert plan_module.floor_us(problem, DEVICES[device], rate) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("layer", LAYERS)
def test_no_estimate_is_below_the_floor(plan_module, layer):
    """An estimate under what the hardware can do would be a mistake in the cost model."""
    problem = from_row(*LAYERS[layer])
    floor = plan_module.floor_us(problem, H200)
    assert all(plan["estimate_us"] > 0.9 * floor for plan in plan_module.candidates(problem, H200))


@few_problems
@given(problem=problems(dtypes=True), device=st.sampled_from(sorted(DEVICES)))
def test_torch_us_is_known_where_pytorch_was_measured(plan_module, problem, device):
    torch_us = plan_module.torch_us(problem, DEVICES[device])
    assert isfinite(torch_us)
    known = [(FLOAT32, IEEE), (FLOAT32, ATEN), (FLOAT32, TF32), (FLOAT64, IEEE), (FLOAT16, HALF), (BFLOAT16, HALF)]
    assert (torch_us > 0) == ((problem["dtype"], problem["precision"]) in known)
    assert torch_us >= 0

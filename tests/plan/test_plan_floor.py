"""floor_us against a count by brute force and against the published floors; torch_us where it is known."""

from __future__ import annotations

from math import isfinite, prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan.layers import LAYERS
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
    TF32,
    from_row,
    problems,
    sizes_of,
)
from plan.profile import few_problems, many_problems


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

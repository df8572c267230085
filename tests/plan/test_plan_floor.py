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


@pytest.mark.parametrize(
    ("layer", "floor"), [("kb57", 9663.7), ("kb65", 5637.1), ("kb75", 203.1), ("kb81", 197.2), ("dw_up", 78.0)]
)
def test_published_floors(plan_module, layer, floor):
    assert plan_module.floor_us(from_row(*LAYERS[layer]), H200, 64.0) == pytest.approx(floor, abs=0.1)


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


# PyTorch's times of the layers that its estimate of depthwise ones is fitted to, default precision: batch, channels,
# height and width, kernel, stride, padding, output padding; channels_last; forward, gradients of input and weight, us.
DEPTHWISE = [
    ((16, 64, 128, 3, 2, 1, 1), False, (847.3, 161.3, 306.2)),
    ((16, 64, 128, 3, 2, 1, 1), True, (331.0, 87.5, 102.3)),
    ((16, 64, 256, 3, 1, 1, 0), False, (848.8, 327.6, 459.2)),
    ((16, 64, 256, 3, 1, 1, 0), True, (209.2, 179.8, 144.4)),
    ((16, 512, 32, 3, 1, 1, 0), False, (109.8, 48.6, 81.3)),
    ((16, 512, 32, 3, 1, 1, 0), True, (31.3, 28.4, 37.3)),
    ((16, 64, 128, 5, 2, 2, 1), True, (706.0, 155.4, 215.8)),
    ((16, 64, 128, 5, 1, 2, 0), True, (122.9, 121.1, 103.4)),
]


@pytest.mark.parametrize(("layer", "channels_last", "times"), DEPTHWISE)
def test_torch_us_of_depthwise_layers(plan_module, layer, channels_last, times):
    """No more than PyTorch was measured to take, and no less than half of it; tf32 and ieee have the same kernels."""
    batch, channels, size, kernel, stride, padding, output_padding = layer
    for direction, measured in enumerate(times):
        for precision in (TF32, IEEE):
            problem = from_row(
                batch, channels, channels, size, kernel, stride, padding, output_padding, channels, precision=precision,
                channels_last=channels_last,
            )  # fmt: skip
            torch_us = plan_module.torch_us({**problem, "direction": direction, "has_bias": False}, H200)
            assert 0.5 * measured <= torch_us <= 1.02 * measured, (direction, precision)


def test_a_depthwise_layer_that_pytorch_has_a_kernel_for_is_left_to_it(plan_module):
    """5 x 5 in channels_last, where ours took 460 us and more."""
    problem = from_row(16, 64, 64, 128, 5, 1, 2, 0, 64, precision=TF32, channels_last=True)
    for direction in range(3):
        problem = {**problem, "direction": direction, "has_bias": False}
        assert plan_module.candidates(problem, H200)[0]["estimate_us"] > plan_module.torch_us(problem, H200)

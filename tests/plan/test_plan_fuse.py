"""problem/fuse.h: W phases as output channels are the same problem, term by term."""

from __future__ import annotations

import pytest
from hypothesis import given
from plan.layers import LAYERS
from plan.problems import H200, from_row, problems, taps_of
from plan.profile import few_problems, many_problems
from plan.test_plan_choice import CLASSES

# Layers whose stride is a power of two that divides the kernel.
FUSABLE_LAYERS = ["dcgan_512", "dcgan_rgb", "unet_1024", "maskrcnn", "dpt_4x4", "dw_up", "fcn8s"]


@few_problems
@given(problem=problems())
def test_what_can_be_fused(plan_module, problem):
    """Every phase with as many taps, neighbours of one another, and a power of two of phases that a tile can hold."""
    w = problem["w"]
    expected = w["stride"] in (2, 4, 8, 16) and w["dilation"] == 1 and w["kernel"] % w["stride"] == 0
    assert plan_module.can_fuse_phases(problem) == expected


@pytest.mark.parametrize("stride", [2, 4, 8, 16])
def test_channels_stay_32_bit(plan_module, stride):
    for c_out, expected in ((2**30 // stride - 1, True), (2**30 // stride, False)):
        problem = from_row(1, 1, c_out, (1, 1), (1, stride), (1, stride))
        assert plan_module.can_fuse_phases(problem) == expected
        assert plan_module.choose(problem, H200)["num_blocks"] > 0


@few_problems
@given(problem=problems(dtypes=True, fusable=True))
def test_what_fusing_changes(plan_module, problem):
    fused, w = plan_module.fuse_phases(problem), problem["w"]
    positions = -(-(w["out"] + w["padding"]) // w["stride"])
    kernel = w["kernel"] // w["stride"]
    axis = {"in": w["in"], "out": positions, "kernel": kernel, "stride": 1, "padding": 0, "dilation": 1}
    *strides, tap_stride = problem["w_stride"]
    expected = {"c_out": problem["c_out"] * w["stride"], "w": axis, "w_stride": [*strides, tap_stride * w["stride"]]}
    assert fused == {**problem, **expected}
    assert not plan_module.can_fuse_phases(fused)


@many_problems
@given(problem=problems(fusable=True))
def test_fusing_keeps_the_order_of_the_terms(plan_module, problem):
    """So that both kinds of plan give the same bits: the taps of every output column, with the inputs they read."""
    w, fused_w = problem["w"], plan_module.fuse_phases(problem)["w"]
    fused_taps = taps_of(plan_module.make_phase(fused_w, 0))
    phases = [taps_of(plan_module.make_phase(w, phase)) for phase in range(min(w["stride"], w["out"]))]
    for column in range(w["out"]):
        position, phase = divmod(column, w["stride"])
        terms = [(tap, position + shift) for tap, shift in phases[phase]]
        q, v = divmod(column + w["padding"], w["stride"])
        assert [(v + w["stride"] * tap, q + shift) for tap, shift in fused_taps] == terms


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_fused_where_they_can_be(plan_module, name):
    """Not every class: where a tile of all phases would not fit, or is slower, the planner may leave them."""
    for dtype, precision in CLASSES:
        problem = from_row(*LAYERS[name], dtype=dtype, precision=precision)
        assert plan_module.can_fuse_phases(problem) == (name in FUSABLE_LAYERS)
        plans = plan_module.candidates(problem, H200)
        fused = {plan["fused_w"] for plan in plans if plan["engine"] == "simt"}
        assert fused <= {1, problem["w"]["stride"]}
        if name in FUSABLE_LAYERS:
            assert problem["w"]["stride"] in fused, (dtype, precision)

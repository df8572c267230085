"""The JSON text of a plan: its keys, its agreement with the planner, and that the wheel's op gives the same."""

from __future__ import annotations

import importlib
import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from plan.layers import EXTREMES, LAYERS
from plan.legal import served_precision
from plan.problems import DEVICES, H200, from_row, output_padding_of, problems, sizes_of, taps_of
from plan.profile import many_problems
from plan.tensor_cores import on_tensor_cores

DTYPE_NAMES = ["float32", "float64", "float16", "bfloat16"]
DIRECTION_NAMES = ["forward", "grad_input", "grad_weight"]
PRECISION_NAMES = ["ieee", "aten", "tf32x3", "tf32", "half"]
LAUNCH_KEYS = ["shared_bytes", "num_blocks", "workspace_bytes", "packed_bytes"]
TIME_KEYS = ["compute_us", "memory_us", "estimate_us"]
NAME_KEYS = [
    *("kernel", "engine", "family", "fuses", "gives_grad_bias", "requested_precision", "served_precision", "threads"),
]


KEYS = ["problem", "device", "plan", "candidates", "phases_h", "phases_w", "floor_us", "torch_us"]
LISTED = 64  # phases, and taps of a phase, that the text lists

NAMED = {**LAYERS, **EXTREMES}


def assert_plan(problem, written, plan):
    """The text has every field that the plan's family has, and nothing more."""
    keys = list(written)
    assert keys[: len(NAME_KEYS)] == NAME_KEYS
    assert keys[-len(LAUNCH_KEYS + TIME_KEYS) :] == LAUNCH_KEYS + TIME_KEYS
    assert written["requested_precision"] == PRECISION_NAMES[problem["precision"]]
    served = problem["precision"] if on_tensor_cores(plan) else served_precision(problem)
    assert written["served_precision"] == PRECISION_NAMES[served]
    tile = keys[len(NAME_KEYS) : -len(LAUNCH_KEYS + TIME_KEYS)]
    assert tile == plan["fields"] != []
    expected = {
        key: plan[key] for key in ("kernel", "engine", "family", "gives_grad_bias", "threads", *tile, *LAUNCH_KEYS)
    }
    assert {key: written[key] for key in expected} == expected
    for key in TIME_KEYS:
        assert written[key] == pytest.approx(plan[key], abs=0.0006)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("kernel", [2, 3, 4])
def test_json_of_depthwise_plans(plan_module, kernel, channels_last):
    """Random problems hold hardly any."""
    problem = from_row(2, 8, 8, 33, kernel, 2, (kernel - 1) // 2, groups=8, channels_last=channels_last)
    written = json.loads(plan_module.to_json(problem, H200))["candidates"]
    plans = plan_module.candidates(problem, H200)
    assert any(plan["family"] in ("thin_depthwise", "thin_channels_last") for plan in plans)
    for one, plan in zip(written, plans, strict=True):
        assert_plan(problem, one, plan)


@many_problems
@given(problem=problems(dtypes=True), device=st.sampled_from(sorted(DEVICES)))
def test_json_is_the_plan(plan_module, problem, device):
    text = json.loads(plan_module.to_json(problem, DEVICES[device]))
    assert list(text) == KEYS
    assert text["problem"] == {
        "direction": DIRECTION_NAMES[problem["direction"]],
        **{key: problem[key] for key in ("batch", "c_in", "c_out", "groups", "h", "w", "has_bias")},
        "dtype": DTYPE_NAMES[problem["dtype"]],
        "precision": PRECISION_NAMES[problem["precision"]],
    }
    numbers = list(text["device"].values())
    assert numbers == pytest.approx([*DEVICES[device][:4], DEVICES[device][4] / 1000, DEVICES[device][5]])
    candidates = plan_module.candidates(problem, DEVICES[device])
    assert text["plan"] == text["candidates"][0]
    for written, plan in zip(text["candidates"], candidates, strict=True):
        assert_plan(problem, written, plan)
    for key in ("h", "w"):
        axis = problem[key]
        assert text[f"phases_{key}"] == [
            {"phase": phase, "taps": [list(tap) for tap in taps_of(plan_module.make_phase(axis, phase))]}
            for phase in range(min(axis["stride"], axis["out"]))
        ]
    for key in ("floor_us", "torch_us"):
        assert text[key] == pytest.approx(getattr(plan_module, key)(problem, DEVICES[device]), abs=0.0006)


@pytest.mark.parametrize("name", NAMED)
def test_json_of_large_problems(plan_module, name):
    """Long lists of phases and taps are cut; everything else is whole."""
    problem = from_row(*NAMED[name])
    text = plan_module.to_json(problem, H200)
    content = json.loads(text)
    assert list(content) == KEYS
    for key in ("h", "w"):
        phases = content[f"phases_{key}"]
        assert len(phases) == min(LISTED, problem[key]["stride"], problem[key]["out"])
        assert max(len(phase["taps"]) for phase in phases) <= LISTED
    assert len(text) < 200_000


def wheel_json(problem, device) -> str:
    x_size, w_size, _ = sizes_of(problem)
    h, w = problem["h"], problem["w"]
    text = torch.ops.convt_ext.explain(
        x_size, problem["x_stride"], w_size, problem["w_stride"], problem["has_bias"],
        [h["stride"], w["stride"]], [h["padding"], w["padding"]], [output_padding_of(h), output_padding_of(w)],
        problem["groups"], [h["dilation"], w["dilation"]], problem["dtype"], problem["precision"],
        problem["y_stride"][1] == 1 and problem["y_stride"][3] != 1, device, problem["direction"],
    )  # fmt: skip
    return bytes(text.tolist()).decode()


@pytest.fixture(scope="module")
def wheel():
    """The installed wheel's plan op."""
    try:
        importlib.import_module("convt_ext")
    except ImportError as error:
        pytest.skip(f"convt_ext is not installed ({error})")
    if not hasattr(torch.ops.convt_ext, "plan"):
        pytest.skip("the installed convt_ext has no binary")


@pytest.mark.parametrize("name", NAMED)
def test_the_wheel_plans_the_same(wheel, plan_module, name):
    """The published wheel contains the planner of these tests."""
    for channels_last in (False, True):
        problem = from_row(*NAMED[name], channels_last=channels_last, has_bias=channels_last)
        for device in DEVICES.values():
            assert json.loads(wheel_json(problem, device)) == json.loads(plan_module.to_json(problem, device))


@many_problems
@given(problem=problems(dtypes=True), device=st.sampled_from(sorted(DEVICES)))
def test_the_wheel_plans_random_problems_the_same(wheel, plan_module, problem, device):
    assert json.loads(wheel_json(problem, DEVICES[device])) == json.loads(plan_module.to_json(problem, DEVICES[device]))


def test_h200_is_the_default_device(plan_module):
    """explain() plans for it on a machine without a GPU."""
    numbers = list(plan_module.h200())
    assert numbers[:4] == H200[:4]
    assert numbers[4:] == [H200[4] / 1000, H200[5]]

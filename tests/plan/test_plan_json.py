"""The JSON text of a plan: its keys, its agreement with the planner, and that the wheel's op gives the same."""

from __future__ import annotations

import importlib
import json
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from plan.interpreter import taps_of
from plan.legal import served_precision
from plan.problems import DEVICES, H200, from_row, output_padding_of, problems, sizes_of
from plan.profile import many_problems
from plan.test_plan_choice import EXTREMES, LAYERS

DTYPE_NAMES = ["float32", "float64", "float16", "bfloat16"]
DIRECTION_NAMES = ["forward", "grad_input", "grad_weight"]
PRECISION_NAMES = ["ieee", "aten", "tf32x3", "tf32"]
TILE_KEYS = [
    "threads", "block_co", "tile_n", "tile_h", "tile_w", "fused_w", "phases_w", "chunk_ci", "chunk_kh", "chunk_kw",
    "stages", "shared_bytes", "num_blocks", "workspace_bytes", "packed_bytes",
]  # fmt: skip
THIN_KEYS = [
    "threads", "block_co", "block_groups", "tile_h", "tile_w", "tiles_per_block", "split_phases", "chunk_ci",
    "shared_bytes", "num_blocks", "workspace_bytes", "packed_bytes",
]  # fmt: skip
WGMMA_KEYS = [
    "threads", "block_n", "split_phases", "shape", "blocks", "tile_n", "tile_h", "tile_w", "num_tiles", "k_steps",
    "num_chunks", "source_slots", "weight_slots", "slot_taps", "shared_bytes", "num_blocks", "workspace_bytes",
    "packed_bytes",
]  # fmt: skip
FLAT_KEYS = [
    "threads", "phases", "consumers", "sums", "split_channels", "tile_positions", "window", "num_tiles", "k_steps",
    "num_chunks", "source_slots", "weight_slots", "slot_taps", "shared_bytes", "num_blocks", "workspace_bytes",
    "packed_bytes",
]  # fmt: skip
PATCH_KEYS = [
    "threads", "blocks", "consumers", "tile_positions", "num_tiles", "num_chunks", "parts", "source_slots",
    "weight_slots", "resident", "shared_bytes", "num_blocks", "workspace_bytes", "packed_bytes",
]  # fmt: skip
STRIDED_KEYS = [
    "threads", "block_n", "parts", "alternate", "tile_positions", "strip_width", "num_tiles", "num_chunks",
    "source_slots", "weight_slots", "shared_bytes", "num_blocks", "workspace_bytes", "packed_bytes",
]  # fmt: skip
MMA_KEYS = [
    "threads", "block_co", "split_phases", "tile_h", "tile_w", "chunk_steps", "raw_slots", "blocks_per_pass",
    "shared_bytes", "num_blocks", "workspace_bytes", "packed_bytes",
]  # fmt: skip
NHWC_KEYS = [
    "threads", "block_n", "parts", "direct", "staged", "tile_n", "tile_h", "tile_w", "num_tiles",
    "num_chunks", "source_slots", "weight_slots", "shared_bytes", "num_blocks", "workspace_bytes", "packed_bytes",
]  # fmt: skip
SCATTER_KEYS = [
    "threads", "strips", "tile_h", "chunk_steps", "stages", "shared_bytes", "num_blocks", "workspace_bytes",
    "packed_bytes",
]  # fmt: skip
UPSAMPLE_KEYS = [
    "threads", "block_co", "tile_h", "shares", "slots", "shared_bytes", "num_blocks", "workspace_bytes",
    "packed_bytes",
]  # fmt: skip
PATCH_DIRECT_KEYS = [
    "threads", "consumers", "tiles", "slots", "shared_bytes", "num_blocks", "workspace_bytes", "packed_bytes",
]  # fmt: skip
PATCH_RUNS_KEYS = [
    "threads", "channels", "rows", "parts", "slots", "shared_bytes", "num_blocks", "workspace_bytes", "packed_bytes",
]  # fmt: skip
MMA_ROWS_KEYS = [
    "threads", "block_co", "tile_h", "warps", "slots", "padding", "interleaved", "blocks_per_pass",
    "shared_bytes", "num_blocks", "workspace_bytes", "packed_bytes",
]  # fmt: skip
KEYS_OF = {
    "simt": TILE_KEYS,
    "thin": THIN_KEYS,
    "wgmma_sm90a": WGMMA_KEYS,
    "flat_sm90a": FLAT_KEYS,
    "patch_sm90a": PATCH_KEYS,
    "strided_sm90a": STRIDED_KEYS,
    "mma_sm90a": MMA_KEYS,
    "nhwc_sm90a": NHWC_KEYS,
    "scatter_sm90a": SCATTER_KEYS,
    "upsample_sm90a": UPSAMPLE_KEYS,
}
SHAPES = ["lines", "squares", "flat"]
TIME_KEYS = ["compute_us", "memory_us", "estimate_us", "measured"]
NAME_KEYS = ["kernel", "engine", "requested_precision", "served_precision"]
KEYS = ["problem", "device", "plan", "candidates", "phases_h", "phases_w", "floor_us", "torch_us", "torch_estimate_us"]
LISTED = 64  # phases, and taps of a phase, that the text lists

NAMED = {**LAYERS, **EXTREMES}


def assert_plan(module, problem, written, plan):
    tile_keys = MMA_ROWS_KEYS if "_rows_" in plan["kernel"] else KEYS_OF[plan["engine"]]
    if "_direct_" in plan["kernel"]:
        tile_keys = PATCH_DIRECT_KEYS
    if "_runs_" in plan["kernel"]:
        tile_keys = PATCH_RUNS_KEYS
    assert list(written) == [*NAME_KEYS, *tile_keys, *TIME_KEYS]
    assert written["kernel"] == plan["kernel"]
    assert written["engine"] == plan["engine"]
    assert written["requested_precision"] == PRECISION_NAMES[problem["precision"]]
    served = problem["precision"] if plan["engine"].endswith("_sm90a") else served_precision(problem)
    assert written["served_precision"] == PRECISION_NAMES[served]
    if plan["kernel"].endswith("_direct"):  # a thread a result
        tile = {"block_co": 1, "block_groups": 1, "tile_h": 1, "tile_w": plan["threads"], "tiles_per_block": 1}
        plan = {**plan, **tile, "split_phases": False, "chunk_ci": 1}
    if "rows" in plan and plan["engine"] == "thin":  # depthwise: what a warp, or in channels_last a CTA, walks down
        tile = {
            "block_co": 1,
            "block_groups": plan.get("channels", 1),
            "tile_h": plan["rows"],
            "tile_w": plan["columns"],
        }
        plan = {**plan, **tile, "tiles_per_block": 1, "split_phases": False, "chunk_ci": 1}
    if "_gather_" in plan["kernel"]:  # a phase's positions
        sums, lanes = int(plan["kernel"][-1]), plan["lanes_channels"]
        plan = {**plan, "block_groups": 1, "tile_h": 1, "tiles_per_block": 1, "split_phases": True}
        plan["block_co"] = plan["warps_channels"] * lanes * sums
        plan["tile_w"] = plan["warps_positions"] * 32 // lanes * sums
    if "_streamed_" in plan["kernel"]:  # likewise
        channels, positions = map(int, re.search(r"_(\d+)x(\d+)", plan["kernel"]).groups())
        plan = {**plan, "block_groups": 1, "tile_h": 1, "tiles_per_block": 1, "split_phases": True, "chunk_ci": 1}
        plan["block_co"] = plan["warps_channels"] * channels
        plan["tile_w"] = plan["warps_positions"] * 32 * positions
    expected = {key: plan[key] for key in tile_keys}
    if "shape" in expected:
        expected["shape"] = SHAPES[expected["shape"]]
    assert {key: written[key] for key in tile_keys} == expected
    for key in TIME_KEYS:
        assert written[key] == pytest.approx(plan[key], abs=0.0006)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("kernel", [2, 3, 4])
def test_json_of_depthwise_plans(plan_module, kernel, channels_last):
    """Random problems hold hardly any."""
    problem = from_row(2, 8, 8, 33, kernel, 2, (kernel - 1) // 2, groups=8, channels_last=channels_last)
    written = json.loads(plan_module.to_json(problem, H200))["candidates"]
    plans = plan_module.candidates(problem, H200)
    assert any("rows" in plan for plan in plans)
    for one, plan in zip(written, plans, strict=True):
        assert_plan(plan_module, problem, one, plan)


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
        assert_plan(plan_module, problem, written, plan)
    for key in ("h", "w"):
        axis = problem[key]
        assert text[f"phases_{key}"] == [
            {"phase": phase, "taps": [list(tap) for tap in taps_of(plan_module.make_phase(axis, phase))]}
            for phase in range(min(axis["stride"], axis["out"]))
        ]
    for key in ("floor_us", "torch_us", "torch_estimate_us"):
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
    """The published wheel holds the planner that these tests judge."""
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

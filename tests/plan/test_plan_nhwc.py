"""Plans of the NHWC engine: how it brings sources and divides waves. What it computes: tests/emulator/test_nhwc.py."""

from __future__ import annotations

import functools

import pytest
from plan.problems import BFLOAT16, FORWARD, GRAD_INPUT, HALF, TF32, from_row
from plan.tensor_cores import CLASSES_WITH_TF32X3, plans_of

engine_plans = functools.partial(plans_of, "nhwc_sm90a")

DIRECTIONS = [FORWARD, GRAD_INPUT]


def layer(*row, channels_last=True, **others):
    return from_row(*row, channels_last=channels_last, **others)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("channels", [(64, 64), (62, 64), (64, 62), (60, 56)], ids=str)
def test_sources_without_a_tensor_map_are_gathered_or_packed(plan_module, channels, groups, direction):
    """Pixels and their groups begin on 16 bytes: here on four numbers."""
    problem = layer(4, *channels, 32, 4, 2, 1, 0, groups, precision=TF32) | {"direction": direction}
    k_channels = channels[direction == GRAD_INPUT]
    lies = k_channels % (4 * groups) == 0
    found = {(plan["gathers"], plan["packs_source"]) for plan in engine_plans(plan_module, problem)}
    assert found >= {(False, False) if lies else (False, True)}  # who lies on 16 bytes may begin elsewhere
    assert found <= {(True, False), (False, not lies)}


def test_large_sources_are_not_packed(plan_module):
    """A workspace of a GiB at most."""
    for batch, packed in ((16, True), (17, False)):
        problem = from_row(batch, 32, 32, 1024, 3, 1, 1, dtype=BFLOAT16, precision=HALF)
        assert any(plan["packs_source"] for plan in engine_plans(plan_module, problem)) == packed


def test_weights_are_copied_without_packing_if_their_source_channels_are_contiguous(plan_module):
    problem = layer(4, 64, 64, 32, 4, 2, 1, precision=TF32) | {"direction": GRAD_INPUT}
    in_nchw = problem | {"w_stride": [64 * 16, 16, 4, 1]}
    every_second = problem | {"w_stride": [2 * stride for stride in problem["w_stride"]]}
    for one, direct in ((problem, True), (in_nchw, False), (every_second, False)):
        assert {plan["direct"] for plan in engine_plans(plan_module, one)} == {direct}


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("kind", CLASSES_WITH_TF32X3)
def test_results_of_one_position_have_a_box_for_each_tap(plan_module, kind, channels_last):
    """DCGAN's first layer, whose gradient reads 16 places for each of its positions: no box of all taps has room."""
    dtype, precision = CLASSES_WITH_TF32X3[kind]
    row = (64, 104, 512, 1, 4)
    problem = layer(*row, dtype=dtype, precision=precision, channels_last=channels_last) | {"direction": GRAD_INPUT}
    assert any(plan["apart"] and plan["num_windows"] == 16 for plan in engine_plans(plan_module, problem))
    large = layer(4, 64, 64, 64, 4, 2, 1, dtype=dtype, precision=precision) | {"direction": GRAD_INPUT}
    assert not any(plan["apart"] for plan in engine_plans(plan_module, large))


@pytest.mark.parametrize("kind", CLASSES_WITH_TF32X3)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_last_wave_is_divided(plan_module, direction, kind):
    """300 tiles of 128 x 128 results are two waves of 132 and 36 tiles, of which three parts are 108."""
    dtype, precision = CLASSES_WITH_TF32X3[kind]
    problem = layer(1, 768, 768, 80, 3, 1, 1, dtype=dtype, precision=precision) | {"direction": direction}
    plans = engine_plans(plan_module, problem)
    found = [plan for plan in plans if plan["num_tiles"] == 300 and plan["parts"] > 1]
    assert {(plan["parts"], plan["divided"], plan["num_blocks"]) for plan in found} == {(3, 36, 132)}
    # Whole ones stay candidates, which measurements may prefer.
    assert {plan["kernel"] for plan in found} & {plan["kernel"] for plan in plans if plan["parts"] == 1}

"""Plans of the flat engine: one sequence of positions computes the operator, and everything lies where it has room."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from plan.exact import operands_and_result
from plan.problems import (
    FORWARD,
    GRAD_INPUT,
    GRAD_WEIGHT,
    H200,
    IEEE,
    TF32X3,
    from_row,
    problems,
)
from plan.profile import many_problems
from plan.tensor_cores import CLASSES, plans_of

engine_plans = functools.partial(plans_of, "flat_sm90a")

DIRECTIONS = st.sampled_from([FORWARD, GRAD_INPUT])


def pack(source: np.ndarray, program, geometry, residue_h: int, residue_w: int) -> np.ndarray:
    """The sequences of one residue, [channel][position], with as many zeros behind them as before."""
    batch, channels = source.shape[:2]
    elements = source[:, :, residue_h :: program["source_step_h"], residue_w :: program["source_step_w"]]
    assert elements.shape[2] <= geometry["rows"] <= geometry["image_rows"]
    assert elements.shape[3] <= geometry["columns"] <= geometry["pitch"]
    padded = np.zeros((channels, batch, geometry["image_rows"], geometry["pitch"]))
    padded[:, :, : elements.shape[2], : elements.shape[3]] = elements.transpose(1, 0, 2, 3)
    margin = np.zeros((channels, geometry["lead"]))
    behind = np.zeros((channels, 64 * geometry["pitch"] + 64))
    return np.concatenate([margin, padded.reshape(channels, -1), behind], axis=1)


def flat_result(program, geometry, source, weight, shape, step, forward: bool) -> np.ndarray:
    """The result of one group: every tap of a phase at one distance in the sequence for all positions."""
    result = np.full(shape, np.nan)
    positions = geometry["positions"]
    steps_h, steps_w = step if forward else (1, 1)
    phases_w = program["phases_w"]
    phases = [(0, 0)]
    if forward:
        phases = list(itertools.product(range(len(program["runs"]) // phases_w), range(phases_w)))
    for phase_h, phase_w in phases:
        sums = np.zeros((shape[1], positions))
        runs = [program["runs"][phase_h * phases_w + phase_w]] if forward else program["runs"]
        for run in runs:
            sub_h, sub_w = (phase_h, phase_w) if forward else divmod(run["sub"], program["sub_w"])
            h, w = program["window_h"][sub_h], program["window_w"][sub_w]
            sequence = pack(source, program, geometry, h["residue"], w["residue"])
            for i, j in itertools.product(range(run["num_h"]), range(run["num_w"])):
                row = h["shift"] + run["row"] + i * run["row_step"]
                column = w["shift"] + run["column"] + j * run["column_step"]
                first = geometry["lead"] + row * geometry["pitch"] + column
                assert first >= 0
                tap = weight[:, :, run["kh"] + i * run["kh_step"], run["kw"] + j * run["kw_step"]]
                sums += (tap.T if forward else tap) @ sequence[:, first : first + positions]
        image_size = geometry["image_rows"] * geometry["pitch"]
        for position in range(positions):
            image, place = divmod(position, image_size)
            p_h, p_w = divmod(place, geometry["pitch"])
            o_h, o_w = p_h * steps_h + phase_h, p_w * steps_w + phase_w
            if image < shape[0] and o_h < shape[2] and o_w < shape[3]:
                assert np.isnan(result[image, :, o_h, o_w]).all()  # every result has one position
                result[image, :, o_h, o_w] = sums[:, position]
    return result


@many_problems
@given(problem=problems(), direction=DIRECTIONS, seed=st.integers(0, 2**31))
def test_one_sequence_computes_the_operator(plan_module, problem, direction, seed):
    problem = problem | {"direction": direction, "has_bias": False}
    program = plan_module.tap_program(problem)
    assume(program is not None)
    geometry = plan_module.flat_geometry(problem)
    (source, weight, *_), expected = operands_and_result(problem, seed)
    groups, step = problem["groups"], (problem["h"]["stride"], problem["w"]["stride"])
    shape = [expected.shape[0], expected.shape[1] // groups, *expected.shape[2:]]
    parts = [
        flat_result(program, geometry, one.numpy(), of_group.numpy(), shape, step, direction == FORWARD)
        for one, of_group in zip(source.chunk(groups, 1), weight.chunk(groups, 0), strict=True)
    ]
    assert np.array_equal(np.concatenate(parts, axis=1), expected.numpy())


@many_problems
@given(
    problem=problems(),
    kind=st.sampled_from(sorted(CLASSES)),
    direction=DIRECTIONS,
    n=st.sampled_from([1, 5, 70]),
    channels=st.sampled_from([1, 24, 80]),
)
def test_plans_are_legal(plan_module, problem, kind, direction, n, channels):
    dtype, precision = CLASSES[kind]
    problem = problem | {"dtype": dtype, "precision": precision, "direction": direction, "batch": n}
    problem |= {"c_in": channels * problem["c_in"], "c_out": channels * problem["c_out"]}
    program = plan_module.tap_program(problem)
    for plan in engine_plans(plan_module, problem):
        geometry = plan_module.flat_geometry(problem)
        assert geometry["pitch"] * plan["phases"] % 4 == 0, plan  # the four columns of a lane are of one row
        assert plan["tile_positions"] == plan["sums"] // plan["phases"] * (
            1 if plan["split_channels"] else plan["consumers"]
        ), plan
        assert plan["phases"] == program["phases_w"], plan
        # All that windows read exists: from the first tile's lowest tap to the last tile's highest.
        tiles = -(-geometry["positions"] // plan["tile_positions"])
        plane = plan["plane_bytes"] // 16
        for h, w in itertools.product(program["window_h"], program["window_w"]):
            first = geometry["lead"] + h["shift"] * geometry["pitch"] + w["shift"]
            assert first >= 0, plan
            assert first + (tiles - 1) * plan["tile_positions"] + plan["window"] <= plane, plan
        assert plan["window"] == plan["tile_positions"] + program["extra_h"] * geometry["pitch"] + program["extra_w"]
        # And has room in shared memory, as have the weights, staged results and barriers.
        assert plan["shared_bytes"] <= (H200[2] if plan["consumers"] == 2 else H200[3] // 2 - 1024), plan
        assert plan["source_slots"] * 2 * plan["k_steps"] * plan["window"] * 16 <= plan["weights_begin"], plan
        slot = plan["slot_taps"] * plan["tap_bytes"] * (plan["consumers"] if plan["split_channels"] else 1)
        assert plan["weights_begin"] + plan["weight_slots"] * slot <= plan["staged_begin"], plan
        assert plan["barriers_begin"] + 16 * (plan["source_slots"] + plan["weight_slots"]) <= plan["shared_bytes"], plan
        assert plan["source_slots"] >= 2, plan
        assert plan["packed_bytes"] % 256 == 0, plan
        planes = problem["groups"] * plan["num_chunks"] * 2 * plan["k_steps"] * program["sub_h"] * program["sub_w"]
        assert plan["workspace_bytes"] == plan["packed_bytes"] + planes * plan["plane_bytes"] <= 256 << 20, plan
        assert 1 <= plan["num_blocks"] <= H200[1] * (3 - plan["consumers"]), plan


@pytest.mark.parametrize("kind", CLASSES)
def test_layers_of_many_channels_get_plans(plan_module, kind):
    dtype, precision = CLASSES[kind]
    problem = from_row(4, 256, 128, 32, 4, 2, 1, dtype=dtype, precision=precision)
    for direction in (FORWARD, GRAD_INPUT):
        plans = engine_plans(plan_module, problem | {"direction": direction})
        shapes = {(plan["consumers"], plan["sums"]) for plan in plans}
        assert shapes == {(1, 128), (2, 256)} | (
            {(1, 256)} if direction == FORWARD else set()
        )  # which has two W phases
    assert not engine_plans(plan_module, problem | {"direction": GRAD_WEIGHT})
    assert not engine_plans(plan_module, problem, [80, *H200[1:]])  # no wgmma before Hopper, none of it after
    for other in (IEEE, TF32X3):
        assert not engine_plans(plan_module, from_row(4, 256, 128, 32, 4, 2, 1, precision=other))
    # Three W phases do not lie in one thread's registers as neighbours.
    assert not engine_plans(plan_module, from_row(4, 256, 128, 32, 3, 3, dtype=dtype, precision=precision))

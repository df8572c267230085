"""Plans of the wgmma engine: blocks own every position of a tile once, and everything stays in shared memory."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan.problems import (
    FLOAT32,
    FORWARD,
    GRAD_INPUT,
    GRAD_WEIGHT,
    H200,
    IEEE,
    from_row,
    problems,
)
from plan.profile import many_problems
from plan.tensor_cores import CLASSES_WITH_TF32X3, plans_of

engine_plans = functools.partial(plans_of, "wgmma_sm90a")


@many_problems
@given(
    problem=problems(),
    kind=st.sampled_from(sorted(CLASSES_WITH_TF32X3)),
    direction=st.sampled_from([FORWARD, GRAD_INPUT]),
    n=st.sampled_from([1, 5, 70]),
)
def test_plans_are_legal(plan_module, problem, kind, direction, n):
    dtype, precision = CLASSES_WITH_TF32X3[kind]
    problem = problem | {"dtype": dtype, "precision": precision, "direction": direction, "batch": n}
    program = plan_module.tap_program(problem)
    for plan in engine_plans(plan_module, problem):
        image = plan["rows"] * plan["pitch"]
        owned = []
        last = 0
        for origin in plan["block_origin"]:
            for m in range(64):
                position = origin + m // 8 * plan["block_row_step"] + m % 8
                last = max(last, position)
                number, inside = divmod(position, image)
                row, column = divmod(inside, plan["pitch"])
                if number < plan["tile_n"] and row < plan["tile_h"] and column < plan["tile_w"]:
                    owned.append((number, row, column))
        assert len(owned) == len(set(owned)) == plan["tile_n"] * plan["tile_h"] * plan["tile_w"], plan

        # Two CTAs an SM, 1 KiB of each the system's.
        assert 2 * (plan["shared_bytes"] + 1024) <= H200[3], plan
        ends = [plan[key + "_begin"] for key in ("raw", "weights", "staged", "lists", "barriers")]
        ends.append(plan["shared_bytes"])
        assert ends == sorted(ends), plan
        assert plan["weights_begin"] % 16 == 0, plan
        parts = 2 if kind == "tf32x3" else 1
        planes = plan["source_slots"] * parts * 2 * plan["k_steps"]
        assert planes * plan["plane_positions"] * 16 <= plan["raw_begin"], plan
        # The last row of the last block, at the last tap of the last plane: read, though not always used.
        sub_tiles = program["sub_h"] * program["sub_w"]
        furthest = last + program["extra_h"] * plan["pitch"] + program["extra_w"]
        furthest += (sub_tiles - 1) * plan["tile_n"] * image
        assert ((planes - 1) * plan["plane_positions"] + furthest + 1) * 16 <= plan["shared_bytes"], plan
        # Lists have a word for each position, and one for each row that comes by way of raw slots.
        positions = sub_tiles * plan["tile_n"] * image
        assert positions <= plan["plane_positions"], plan
        assert 4 * (positions + plan["raw_lines"]) <= plan["barriers_begin"] - plan["lists_begin"], plan
        if plan["by_channels"]:
            assert plan["source_slots"] >= 3, plan
        else:
            assert plan["raw_lines"] == program["sub_h"] * plan["tile_n"] * plan["rows"], plan
            assert plan["raw_slots"] in (2, 3), plan
            assert plan["raw_pitch"] * (4 if dtype == FLOAT32 else 2) % 16 == 0, plan
            assert plan["raw_slots"] * plan["raw_bytes"] <= plan["weights_begin"] - plan["raw_begin"], plan
        assert 1 <= plan["num_blocks"] <= 2 * H200[1], plan
        assert plan["workspace_bytes"] <= 256 << 20, plan


@pytest.mark.parametrize("kind", CLASSES_WITH_TF32X3)
def test_large_layers_get_plans(plan_module, kind):
    dtype, precision = CLASSES_WITH_TF32X3[kind]
    problem = from_row(8, 64, 64, 1024, 3, dtype=dtype, precision=precision)
    for direction in (FORWARD, GRAD_INPUT):
        assert engine_plans(plan_module, problem | {"direction": direction})
    assert not engine_plans(plan_module, problem | {"direction": GRAD_WEIGHT})
    assert not engine_plans(plan_module, problem, [80, *H200[1:]])  # no wgmma before Hopper, none of it after
    assert not engine_plans(plan_module, problem | {"precision": IEEE})

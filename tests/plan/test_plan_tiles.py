"""tile.h, phases.h and the stage order for any legal plan, not only for those that the planner would choose."""

from __future__ import annotations

from functools import partial
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan import interpreter
from plan.exact import assert_exact
from plan.problems import ATEN, IEEE, from_row, make_axis, make_problem, problems
from plan.profile import many_problems

MAX_TILES = 200  # keeps one example at a few milliseconds


def draw_plan(draw, module, problem):
    """Any plan that plan.h allows: sizes that divide nothing, splits or fusing of the W phases, every chunking."""
    fused_w = problem["w"]["stride"] if module.can_fuse_phases(problem) and draw(st.booleans()) else 1
    plan = {"fused_w": fused_w}
    problem = interpreter.computed_problem(module, problem, plan)
    h, w = problem["h"], problem["w"]
    positions_h, positions_w = module.num_positions(h, 0), module.num_positions(w, 0)
    c_in = problem["c_in"] // problem["groups"]
    plan |= {
        "block_co": fused_w * 2 ** draw(st.integers(0, 5)),
        "tile_h": draw(st.integers(1, positions_h + 1)),
        "tile_w": 4 * draw(st.integers(1, (positions_w + 7) // 4)),
        "phases_w": draw(st.integers(1, min(w["stride"], w["out"]))),
    }
    plan["tile_n"] = draw(st.integers(1, 4)) if plan["tile_h"] >= positions_h else 1
    for key, step in (("tile_w", 2), ("block_co", 4), ("tile_h", 2), ("phases_w", 2)):
        while module.num_tiles(problem, plan) > MAX_TILES and plan[key] < 1024:
            plan[key] *= step
    plan["phases_w"] = min(plan["phases_w"], w["stride"], w["out"])

    taps_h, taps_w = module.max_taps(h), module.max_taps(w)
    if problem["precision"] == ATEN:
        return {**plan, "chunk_ci": draw(st.integers(1, c_in)), "chunk_kh": 1, "chunk_kw": 1}
    split = draw(st.sampled_from(["channels", "rows", "columns"]))
    if split == "channels":
        return {**plan, "chunk_ci": draw(st.integers(1, c_in)), "chunk_kh": taps_h, "chunk_kw": taps_w}
    if split == "rows":
        return {**plan, "chunk_ci": 1, "chunk_kh": draw(st.integers(1, taps_h)), "chunk_kw": taps_w}
    return {**plan, "chunk_ci": 1, "chunk_kh": 1, "chunk_kw": draw(st.integers(1, taps_w))}


def assert_order(module, problem, plan):
    """The terms of every output come in the documented order, each once."""
    aten = problem["precision"] == ATEN
    c_in = problem["c_in"] // problem["groups"]
    num_taps = [
        {module.make_phase(axis, phase)["num_taps"] for phase in range(min(axis["stride"], axis["out"]))}
        for axis in (problem["h"], problem["w"])
    ]
    for num_h in num_taps[0]:
        for num_w in num_taps[1]:
            terms = [
                (ci, th, tw)
                for stage in interpreter.stages(plan, aten, c_in, num_h, num_w)
                for ci in stage.channels
                for th in stage.taps_h
                for tw in stage.taps_w
            ]
            every = [(ci, th, tw) for ci in range(c_in) for th in range(num_h) for tw in range(num_w)]
            key = (lambda term: (-term[1], -term[2], term[0])) if aten else None
            assert terms == sorted(every, key=key)


@many_problems
@given(data=st.data(), problem=problems(), seed=st.integers(0, 2**31))
def test_any_legal_plan_is_exact(plan_module, data, problem, seed):
    problem = {**problem, "precision": data.draw(st.sampled_from([IEEE, ATEN]))}
    plan = draw_plan(data.draw, plan_module, problem)
    assert_order(plan_module, interpreter.computed_problem(plan_module, problem, plan), plan)
    assert_exact(problem, partial(interpreter.run, plan_module, problem, plan), seed)


@many_problems
@given(data=st.data(), problem=problems())
def test_blocks_are_numbered_as_documented(plan_module, data, problem):
    """all_tiles is tile_of_block for each block, and the tiles are different from one another."""
    plan = draw_plan(data.draw, plan_module, problem)
    problem = interpreter.computed_problem(plan_module, problem, plan)
    grid = plan_module.tile_grid(problem, plan)
    count = plan_module.num_tiles(problem, plan)
    assert grid["w_phases"] == min(problem["w"]["stride"], problem["w"]["out"])
    assert count == prod(value for key, value in grid.items() if key not in ("w_phases", "w_origin"))
    tiles = plan_module.all_tiles(problem, plan)
    assert len({tuple(tile) for tile in tiles.tolist()}) == count
    for block in {0, count // 2, count - 1}:
        assert list(plan_module.tile_of_block(problem, plan, block).values()) == tiles[block].tolist()
    if grid["co_tiles"] > 1:  # neighbours share their input: they differ in their channels alone
        first, second = (plan_module.tile_of_block(problem, plan, block) for block in (0, 1))
        assert second == {**first, "co_begin": plan["block_co"]}


@many_problems
@given(data=st.data(), problem=problems())
def test_tiles_begin_on_input_quads(plan_module, data, problem):
    """Where a tile may begin before the first output, its first input column is a multiple of 4, for the same tiles."""
    plan = draw_plan(data.draw, plan_module, problem)
    problem = interpreter.computed_problem(plan_module, problem, plan)
    grid = plan_module.tile_grid(problem, plan)
    phase, positions = plan_module.make_phase(problem["w"], 0), plan_module.num_positions(problem["w"], 0)
    assert grid["w_tiles"] == -(-positions // plan["tile_w"])
    assert min(plan_module.all_tiles(problem, plan)[:, 7]) == -grid["w_origin"]
    if problem["w"]["stride"] == problem["w"]["dilation"] == 1:
        first_column = phase["first_shift"] - (phase["num_taps"] - 1) * phase["shift_step"]
        wanted = first_column % 4
        assert grid["w_origin"] == (wanted if wanted + positions <= grid["w_tiles"] * plan["tile_w"] else 0)
    else:
        assert grid["w_origin"] == 0


HAND_MADE = {
    "one_tile": (from_row(1, 2, 3, (4, 4), 3), (4, 1, 8, 8, 1, 1)),
    "tiles_do_not_divide": (from_row(2, 3, 5, (5, 7), (3, 2), (2, 3), (1, 0), has_bias=True), (2, 1, 3, 4, 2, 1)),
    "several_images": (from_row(5, 2, 2, (3, 2), 2, 2, has_bias=True), (2, 2, 3, 4, 2, 1)),
    "groups_end_inside_a_block": (from_row(1, 6, 9, (3, 3), 3, 2, 1, 1, 3, has_bias=True), (8, 1, 2, 4, 1, 1)),
    "stride_beyond_the_output": (make_problem(1, 1, 1, make_axis(1, 3, 7), make_axis(1, 2, 9)), (1, 1, 1, 4, 1, 1)),
    "empty_phases": (from_row(1, 2, 2, (4, 4), 3, 5, 1, 0, 1, 2, has_bias=True), (2, 1, 2, 4, 3, 1)),
    "output_padding_beyond_the_stride": (
        from_row(1, 2, 2, (3, 3), 2, 2, 0, 4, 1, 5, has_bias=True),
        (2, 1, 2, 4, 2, 1),
    ),
    "fused": (from_row(2, 3, 3, (4, 5), 4, 2, 1, has_bias=True), (4, 1, 2, 4, 1, 2)),
    "fused_groups_end_inside_a_block": (from_row(1, 6, 9, (3, 3), 2, 2, 0, 1, 3, has_bias=True), (4, 1, 2, 4, 1, 2)),
    "fused_padding_beyond_the_stride": (from_row(2, 2, 2, (9, 9), 8, 4, 9), (8, 1, 9, 4, 1, 4)),
    "fused_kernel_is_the_stride": (from_row(2, 2, 2, (3, 9), 16, 16, 0, 3), (16, 1, 3, 4, 1, 16)),
    "padding_beyond_the_kernel": (from_row(1, 2, 2, (9, 9), 2, 1, 4), (2, 1, 1, 4, 1, 1)),
}


@pytest.mark.parametrize("name", HAND_MADE)
def test_named_plans(plan_module, name):
    problem, (*tile, fused_w) = HAND_MADE[name]
    plan = dict(zip(("block_co", "tile_n", "tile_h", "tile_w", "phases_w"), tile, strict=True))
    plan |= {"fused_w": fused_w, "chunk_ci": 1, "chunk_kh": 99, "chunk_kw": 99}
    assert_order(plan_module, interpreter.computed_problem(plan_module, problem, plan), plan)
    assert_exact(problem, partial(interpreter.run, plan_module, problem, plan))


def test_the_interpreter_sees_a_wrong_plan(plan_module):
    """The checks above have teeth: a block size in the tiles that the grid does not know leaves holes."""
    problem = from_row(1, 2, 8, (4, 4), 3)
    plan = {"block_co": 4, "tile_n": 1, "tile_h": 4, "tile_w": 4, "fused_w": 1, "phases_w": 1}
    plan |= {"chunk_ci": 1, "chunk_kh": 3, "chunk_kw": 3}

    class Narrow:
        """The real module, with every tile one channel too narrow."""

        num_positions, make_phase = plan_module.num_positions, plan_module.make_phase

        @staticmethod
        def all_tiles(problem, plan):
            return plan_module.all_tiles(problem, {**plan, "block_co": 5})

    with pytest.raises(AssertionError, match="never written"):
        assert_exact(problem, partial(interpreter.run, Narrow, problem, plan))
    with pytest.raises(AssertionError):
        assert_order(plan_module, problem, {**plan, "chunk_ci": 2, "chunk_kh": 2})

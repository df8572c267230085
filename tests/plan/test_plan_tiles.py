"""tiling/tile.h: the tiles of the simt engine's plans. What they compute: tests/emulator/test_cuda_cores.py."""

from __future__ import annotations

from math import prod

from hypothesis import assume, given
from hypothesis import strategies as st
from plan.legal import computed_problem
from plan.problems import problems
from plan.profile import many_problems
from plan.tensor_cores import plans_of

MAX_TILES = 10_000


def draw_plan(module, problem, data):
    """One of the problem's candidates, and the problem that its fields count."""
    plan = data.draw(st.sampled_from(plans_of("simt", module, problem)))
    problem = computed_problem(module, problem, plan)
    assume(module.num_tiles(problem, plan) <= MAX_TILES)
    return problem, plan


@many_problems
@given(data=st.data(), problem=problems())
def test_blocks_are_numbered_as_documented(plan_module, data, problem):
    """The tiles of blocks are different from one another, and as many as their grid has."""
    problem, plan = draw_plan(plan_module, problem, data)
    grid = plan_module.tile_grid(problem, plan)
    count = plan_module.num_tiles(problem, plan)
    assert grid["w_phases"] == min(problem["w"]["stride"], problem["w"]["out"])
    assert count == prod(value for key, value in grid.items() if key not in ("w_phases", "w_origin"))
    tiles = plan_module.all_tiles(problem, plan)
    assert len({tuple(tile) for tile in tiles.tolist()}) == count
    if grid["co_tiles"] > 1:  # neighbours share their input: they differ in their channels alone
        first, second = tiles[0].tolist(), tiles[1].tolist()
        assert second == [*first[:2], plan["block_co"], *first[3:]]


@many_problems
@given(data=st.data(), problem=problems())
def test_tiles_begin_on_input_quads(plan_module, data, problem):
    """Where a tile may begin before the first output, its first input column is a multiple of 4, for the same tiles."""
    problem, plan = draw_plan(plan_module, problem, data)
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

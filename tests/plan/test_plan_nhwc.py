"""Plans of the NHWC engine: tiles cover every position once, everything lies where it has room, and what taps read of
their boxes is what the operator asks for.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from plan.exact import operands_and_result
from plan.problems import (
    BFLOAT16,
    FLOAT32,
    FORWARD,
    GRAD_INPUT,
    GRAD_WEIGHT,
    H200,
    IEEE,
    TF32,
    from_row,
)
from plan.profile import many_problems
from plan.tensor_cores import CLASSES_WITH_TF32X3, HALF, plans_of

engine_plans = functools.partial(plans_of, "nhwc_sm90a")

DIRECTIONS = [FORWARD, GRAD_INPUT]
MOST_OF_BOX = 256  # elements along each dimension of what a tensor map copies at once


def layer(*row, channels_last=True, **others):
    return from_row(*row, channels_last=channels_last, **others)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", CLASSES_WITH_TF32X3)
def test_layers_in_channels_last_get_plans(plan_module, kind, direction):
    dtype, precision = CLASSES_WITH_TF32X3[kind]
    row = (8, 64, 64, 64, 4, 2, 1)
    problem = layer(*row, dtype=dtype, precision=precision) | {"direction": direction}
    widths = {32, 64, 128} | ({256} if kind != "tf32x3" else set())
    plans = engine_plans(plan_module, problem)
    assert {plan["block_n"] for plan in plans} == widths
    in_nchw = from_row(*row, dtype=dtype, precision=precision) | {"direction": direction}
    in_nchw = engine_plans(plan_module, in_nchw)
    assert {(plan["gathers"], plan["packs_source"]) for plan in in_nchw} == {(True, False), (False, True)}
    assert not any(plan["staged"] for plan in in_nchw)
    assert not engine_plans(plan_module, problem, [80, *H200[1:]])  # no wgmma before Hopper, none of it after
    assert not engine_plans(plan_module, problem | {"direction": GRAD_WEIGHT})
    assert not engine_plans(plan_module, layer(*row, precision=IEEE) | {"direction": direction})


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


@pytest.mark.parametrize("change", ["stride", "taps"])
def test_other_layers_get_none(plan_module, change):
    rows = {
        "stride": layer(4, 64, 64, 32, 9, 9, precision=TF32) | {"direction": GRAD_INPUT},  # 81 windows
        "taps": layer(4, 64, 64, 2, 1, 2, 1, precision=TF32),  # the only result lies between those of the four pixels
    }
    assert not engine_plans(plan_module, rows[change])


def test_taps_are_counted_in_16_bits(plan_module):
    """Of all windows together: one alone has no more than fit into shared memory."""
    for kernel, served in ((176, True), (184, False)):
        problem = layer(1, 8, 8, 2, kernel, 8, dtype=BFLOAT16, precision=HALF) | {"direction": GRAD_INPUT}
        assert bool(engine_plans(plan_module, problem)) == served


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


def test_pixels_of_groups_of_few_channels_are_short_rows(plan_module):
    """Measured on an H200: 272 us by this engine, where 88 were estimated, and 79 by the thin one."""
    problem = from_row(16, 256, 256, (40, 13), (3, 3), 3, 0, 0, 64, precision=TF32, channels_last=True)
    estimates = [plan["estimate_us"] for plan in engine_plans(plan_module, problem)]
    assert 170 < min(estimates) < 350
    assert plan_module.choose(problem, H200)["family"] == "thin"


def test_few_tiles_are_shared(plan_module):
    """dcgan_512's gradient in tf32: 32 or 64 tiles for 132 SMs."""
    problem = layer(128, 512, 256, 4, 4, 2, 1, precision=TF32) | {"direction": GRAD_INPUT}
    assert {plan["splits"] for plan in engine_plans(plan_module, problem)} > {2}


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


def test_parts_cost_less_than_they_save(plan_module):
    """Two tiles of a short sum are not worth what adding parts of them up takes; a full wave has nobody to help it."""
    for batch, size, channels, kernel in ((134, 16, 64, 1), (132, 16, 768, 3)):
        problem = layer(batch, channels, 64, (size, 16), kernel, 1, kernel // 2, precision=TF32)
        assert {plan["parts"] for plan in engine_plans(plan_module, problem)} == {1}


def test_a_divided_wave_is_estimated_between_none_and_a_whole_one(plan_module):
    """Of images that are a tile each."""

    def estimate(batch: int) -> float:
        problem = layer(batch, 512, 32, 16, 3, 1, 1, precision=TF32)
        return min(plan["estimate_us"] for plan in engine_plans(plan_module, problem))

    one_wave, divided, two_waves = estimate(132), estimate(140), estimate(264)
    assert one_wave * 1.05 < divided < 0.75 * two_waves


def step_of_groups(plan: dict) -> int | None:
    """Places from eight positions of a block of 64 to the next eight, if all eights are neighbours and as far apart."""
    tile_w, tile_h = plan["tile_w"], plan["tile_h"]
    positions = np.arange(tile_w * tile_h * plan["tile_n"])
    images, rows = positions // (tile_w * tile_h), positions // tile_w % tile_h
    places = (images * plan["box_h"] + rows) * plan["box_w"] + positions % tile_w
    steps = set()
    for block in np.split(places, range(64, len(places), 64)):
        eights = np.split(block, range(8, len(block), 8))
        if any((eight - eight[0] != np.arange(len(eight))).any() for eight in eights):
            return None
        steps |= {int(after[0] - before[0]) for before, after in itertools.pairwise(eights)}
    return None if len(steps) > 1 else min(steps, default=8)


AXES = st.tuples(
    st.integers(1, 6), st.integers(1, 4), st.integers(0, 3), st.integers(1, 3)
)  # kernel, stride, padding, dilation


def problem_of_axes(channels, size, h, w, batch, groups=1, **others):
    padding = [min(p, ((n - 1) * s + d * (k - 1)) // 2) for n, (k, s, p, d) in zip(size, (h, w), strict=True)]
    return layer(
        batch, *channels, size, (h[0], w[0]), (h[1], w[1]), tuple(padding), 0, groups, (h[3], w[3]), **others
    )  # fmt: skip


@many_problems
@given(
    kind=st.sampled_from(sorted(CLASSES_WITH_TF32X3)),
    direction=st.sampled_from(DIRECTIONS),
    batch=st.integers(1, 70),
    size=st.tuples(st.integers(1, 90), st.integers(1, 300)),
    channels=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    whole=st.booleans(),
    groups=st.sampled_from((1, 1, 2, 3)),
    channels_last=st.booleans(),
    h=AXES,
    w=AXES,
)
def test_plans_are_legal(plan_module, kind, direction, batch, size, channels, whole, groups, channels_last, h, w):
    dtype, precision = CLASSES_WITH_TF32X3[kind]
    forward, element = direction == FORWARD, 4 if dtype == FLOAT32 else 2
    vector = 16 // element
    channels = [c * vector if whole else c for c in channels]  # of a group
    problem = problem_of_axes([groups * c for c in channels], size, h, w, batch, groups, dtype=dtype,
                              precision=precision, channels_last=channels_last)  # fmt: skip
    problem |= {"direction": direction}
    k_channels, n_channels = channels if forward else channels[::-1]
    all_windows = {apart: plan_module.nhwc_windows(problem, apart) for apart in (False, not forward)}
    steps = (1, 1) if forward else (h[1], w[1])
    phases = [min(problem[axis]["stride"], problem[axis]["out"]) if forward else 1 for axis in "hw"]
    sizes = [-(-problem[axis]["out"] // problem[axis]["stride"]) if forward else problem[axis]["in"] for axis in "hw"]
    for plan in engine_plans(plan_module, problem):
        # Every position of every phase, row and image is in one tile, and has a row of the product.
        assert plan["tile_n"] * plan["tile_h"] * plan["tile_w"] in range(1, 257), plan
        tiles = [-(-size // plan[f"tile_{axis}"]) for size, axis in zip(sizes, "hw", strict=True)]
        tiles += [-(-batch // plan["tile_n"]), *phases, groups, -(-n_channels // plan["block_n"])]
        assert plan["num_tiles"] == np.prod(tiles), plan
        windows = all_windows[plan["apart"]]
        # A box has the places of all taps of any window, and no more than a tensor map copies at once.
        for axis, step in zip("hw", steps, strict=True):
            extra = max(window[f"extra_{axis}"] for window in windows)
            assert plan[f"box_{axis}"] == plan[f"tile_{axis}"] + extra, plan
            assert plan["gathers"] or (plan[f"box_{axis}"] - 1) * step < MOST_OF_BOX, plan
        row = element * int(plan["kernel"].rsplit("x", 1)[1])  # of a stage's channels of each place
        assert k_channels * element <= plan["num_chunks"] * row < k_channels * element + row, plan
        assert plan["num_windows"] == (1 if forward else len(windows)), plan
        box = plan["tile_n"] * plan["box_h"] * plan["box_w"] * row
        assert box <= plan["stage_bytes"] < box + 1024, plan
        assert plan["stage_bytes"] % 1024 == 0, plan  # where swizzled rows begin
        assert plan["source_slots"] >= 2, plan
        assert plan["weight_slots"] >= 2, plan
        assert plan["source_slots"] * plan["stage_bytes"] <= plan["weights_begin"], plan
        tap = row * plan["block_n"] * (2 if kind == "tf32x3" else 1)  # a high and a low part
        if plan["slot_taps"] > 1 or row == 32:  # what descriptors alone read
            assert step_of_groups(plan) is not None, plan
            assert tap * plan["slot_taps"] <= 8192, plan
        assert plan["weights_begin"] + plan["weight_slots"] * plan["slot_taps"] * tap <= plan["staged_begin"], plan
        positions = int(plan["kernel"].rsplit("_", 1)[1].split("x")[0])
        assert plan["tile_n"] * plan["tile_h"] * plan["tile_w"] <= positions, plan
        # Two buffers of 128 bytes of results, or all of them, of each position.
        # Or rows: so many channels of each position, which lie between those of the other W phases.
        own = plan["tile_n"] * plan["tile_h"] * plan["tile_w"]
        in_nchw = not channels_last or groups * n_channels == 1  # one channel is both
        assert plan["together"] == (phases[1] if plan["rows"] and in_nchw else 1), plan
        channels = plan["block_n"] if plan["together"] > 1 else 32
        staged = 2 * positions * min(128, plan["block_n"] * element) if plan["staged"] else 0
        staged += own * plan["together"] * channels * element if plan["rows"] else 0
        assert not (plan["staged"] and plan["rows"]), plan
        assert plan["staged_begin"] % 1024 == 0, plan
        assert plan["staged_begin"] + staged <= plan["barriers_begin"], plan
        barriers = 16 * (plan["source_slots"] + plan["weight_slots"] + 1)  # one for sums of other CTAs
        assert plan["barriers_begin"] + barriers <= plan["bias_begin"], plan
        words = 2 * 32 * 96 * 4 if plan["gathers"] and element == 2 else 0  # of each thread that gathers, twice
        room = H200[3] // 2 - 1024 if "_pair_" in plan["kernel"] else H200[2]
        assert plan["bias_begin"] + 4 * plan["block_n"] + words <= plan["shared_bytes"] <= room, plan
        pixel = groups * -(-k_channels // vector) * 16
        pixels = batch * (np.prod(size) if forward else problem["h"]["out"] * problem["w"]["out"])
        source = pixel * pixels if plan["packs_source"] else 0
        # Parts leave their sums in memory, and count in words behind these.
        sums = plan["divided"] * plan["parts"] * positions * plan["block_n"] * 4
        counted = plan["sums_bytes"] - sums
        assert plan["divided"] * 4 <= counted < plan["divided"] * 4 + 256, plan
        assert plan["sums_bytes"] % 256 == 0, plan  # where a packed source begins
        assert plan["workspace_bytes"] == plan["packed_bytes"] + plan["sums_bytes"] + source, plan
        assert plan["source_on_vectors"] == (not plan["gathers"] and not plan["packs_source"]), plan
        if plan["direct"]:
            assert (forward, plan["packed_bytes"], n_channels % (64 // element), groups) == (False, 0, 0, 1), plan
        else:  # phases beyond the result have no taps
            assert plan["packed_bytes"] <= groups * tiles[-1] * plan["num_chunks"] * h[0] * w[0] * tap, plan
        if plan["splits"] > 1:
            assert plan["num_blocks"] == plan["splits"] * plan["num_tiles"] <= H200[1], plan
            assert plan["block_n"] % (plan["splits"] * 64 // element) == 0, plan  # whole runs of 16 bytes a thread
            # CTAs exchange their sums where stages were.
            assert positions * plan["block_n"] * 4 <= plan["staged_begin"], plan
            assert plan["parts"] == 1, plan
        elif plan["parts"] > 1:
            # Every CTA has as many tiles as the others, and a part at most.
            assert plan["divided"] == plan["num_tiles"] % H200[1] > 0, plan
            assert plan["parts"] * plan["divided"] <= plan["num_blocks"] <= H200[1], plan
            assert (plan["num_tiles"] - plan["divided"]) % plan["num_blocks"] == 0, plan
            assert plan["parts"] <= min(8, plan["num_chunks"] * plan["num_windows"] // 2), plan
            assert plan["together"] == 1, plan
        else:
            assert plan["divided"] == plan["sums_bytes"] == 0, plan
            resident = H200[1] * (2 if "_pair_" in plan["kernel"] else 1)
            assert plan["num_blocks"] == min(plan["num_tiles"] // plan["together"], resident), plan


@many_problems
@given(
    direction=st.sampled_from(DIRECTIONS),
    apart=st.booleans(),
    size=st.tuples(st.integers(1, 6), st.integers(1, 7)),
    h=AXES,
    w=AXES,
    seed=st.integers(0, 2**31),
)
def test_boxes_compute_the_operator(plan_module, direction, apart, size, h, w, seed):
    apart = apart and direction == GRAD_INPUT
    problem = problem_of_axes((4, 4), size, h, w, 1, precision=TF32, has_bias=False)
    asked = problem | {"direction": direction}
    (source, weight, *_), expected = operands_and_result(asked, seed)
    if direction == GRAD_INPUT:
        weight = weight.transpose(0, 1)
    program = plan_module.tap_program(asked, apart)
    step_h, step_w = program["source_step_h"], program["source_step_w"]
    scale_h, scale_w = (h[1], w[1]) if direction == FORWARD else (1, 1)
    result = torch.zeros_like(expected)
    rows, columns = source.shape[2:]
    for number, (run, box) in enumerate(zip(program["runs"], plan_module.nhwc_windows(asked, apart), strict=True)):
        phases = divmod(number, program["phases_w"]) if direction == FORWARD else (0, 0)
        for i, j in itertools.product(range(run["num_h"]), range(run["num_w"])):
            place_h = box["first_row"] + i * run["row_step"]
            place_w = box["first_column"] + j * run["column_step"]
            assert not apart or (box["extra_h"], box["extra_w"]) == (0, 0), box
            assert 0 <= place_h <= box["extra_h"], (run, box)
            assert 0 <= place_w <= box["extra_w"], (run, box)
            tap = weight[:, :, run["kh"] + i * run["kh_step"], run["kw"] + j * run["kw_step"]]
            for y, z in itertools.product(
                range(phases[0], result.shape[2], scale_h), range(phases[1], result.shape[3], scale_w)
            ):
                row = box["row"] + (y // scale_h + place_h) * step_h
                column = box["column"] + (z // scale_w + place_w) * step_w
                if 0 <= row < rows and 0 <= column < columns:
                    result[:, :, y, z] += source[:, :, row, column] @ tap
    assert torch.equal(result, expected)

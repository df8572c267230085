"""Phases, tap programs, fused phases, and the simt engine's windows and tiles.

They are compared with the definition o = i * stride - padding + k * dilation by brute force.
"""

from __future__ import annotations

from math import gcd, prod

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from plan.layers import LAYERS
from plan.legal import computed_problem
from plan.problems import DEVICES, FORWARD, GRAD_INPUT, H200, axes, from_row, make_axis, make_problem, problems, taps_of
from plan.profile import few_problems, many_problems
from plan.tensor_cores import plans_of
from plan.test_plan_choice import CLASSES


@many_problems
@given(
    axis=st.builds(
        make_axis, st.integers(1, 5), st.integers(1, 12), st.integers(1, 24), st.integers(0, 30), st.integers(0, 23),
        st.integers(1, 24),
    ).filter(lambda axis: axis["out"] > 0) | axes(max_in=9)
)  # fmt: skip
def test_positions_and_progressions_are_as_documented(plan_module, axis):
    stride, dilation = axis["stride"], axis["dilation"]
    step = gcd(stride, dilation)
    positions = []
    counts = []
    for phase in range(stride):
        count = plan_module.num_positions(axis, phase)
        positions += [phase + p * stride for p in range(count)]
        values = plan_module.make_phase(axis, phase)
        assert (values["tap_step"], values["shift_step"]) == (stride // step, dilation // step)
        taps = taps_of(values)
        counts.append(len(taps))
        assert [tap for tap, _ in taps] == sorted(
            k for k in range(axis["kernel"]) if (phase + axis["padding"] - k * dilation) % stride == 0
        )
        assert all(shift * stride == phase + axis["padding"] - tap * dilation for tap, shift in taps)
        assert [shift for _, shift in taps] == sorted((shift for _, shift in taps), reverse=True)
    assert sorted(positions) == list(range(axis["out"]))
    assert max(counts) == plan_module.max_taps(axis)
    assert sum(counts) == axis["kernel"]  # every tap belongs to exactly one phase


def test_the_largest_axis(plan_module):
    """fits_axis admits what 32 bits can plan, and no more."""
    limit = 2**29
    axis = make_axis(limit - 1, kernel=2, dilation=limit - 1, padding=limit // 2, output_padding=0)
    assert plan_module.fits_axis(axis)
    assert taps_of(plan_module.make_phase(axis, 0)) == [(0, limit // 2), (1, limit // 2 - (limit - 1))]
    axis = make_axis(1, kernel=1, stride=limit - 1, output_padding=limit - 2)
    assert plan_module.fits_axis(axis)
    assert plan_module.num_positions(axis, limit - 2) == 1
    assert taps_of(plan_module.make_phase(axis, 0)) == [(0, 0)]
    for key in ("in", "out", "kernel", "stride", "padding", "dilation"):
        assert not plan_module.fits_axis({**make_axis(4, 3), key: limit})
    assert not plan_module.fits_axis({**axis, "kernel": 2**15 + 1, "dilation": 2**14})


# ---- tap programs of tensor-core engines


def terms_by_definition(axis: dict[str, int]) -> set[tuple[int, int, int]]:
    """Every (output, tap, input) of one axis."""
    return {
        (o, k, i)
        for k in range(axis["kernel"])
        for i in range(axis["in"])
        if 0 <= (o := i * axis["stride"] - axis["padding"] + k * axis["dilation"]) < axis["out"]
    }


DIRECTIONS = st.sampled_from([FORWARD, GRAD_INPUT])


def axis_terms(
    program, axis, name: str, direction: int, run: dict, phase: int, window: int
) -> list[tuple[int, int, int]]:
    """(output, tap, input) of one axis of a run; terms beyond the source are zero and left out."""
    letter, line = ("h", "row") if name == "h" else ("w", "column")
    place = program[f"window_{letter}"][window]
    step = program[f"source_step_{letter}"]
    forward = direction == FORWARD
    results, sources = (axis["out"], axis["in"]) if forward else (axis["in"], axis["out"])
    terms = []
    for tap in range(run[f"num_{letter}"]):
        element = run[line] + tap * run[f"{line}_step"]
        assert 0 <= element <= program[f"extra_{letter}"]  # every tap of a tile is in its window
        for p in range(results):
            result = p * axis["stride"] + phase if forward else p
            source = (p + place["shift"] + element) * step + place["residue"]
            if result < results and 0 <= source < sources:
                k = run[f"k{letter}"] + tap * run[f"k{letter}_step"]
                terms.append((result, k, source) if forward else (source, k, result))
    return terms


@many_problems
@given(h=axes(max_in=6), w=axes(max_in=6), direction=DIRECTIONS)
def test_programs_cover_every_term_once(plan_module, h, w, direction):
    problem = make_problem(1, 1, 1, h, w) | {"direction": direction}
    program = plan_module.tap_program(problem)
    assume(program is not None)
    terms = []
    for index, run in enumerate(program["runs"]):
        if direction == FORWARD:
            phase_h, phase_w = divmod(index, program["phases_w"])
            window_h, window_w = phase_h, phase_w
        else:
            phase_h = phase_w = 0
            window_h, window_w = divmod(run["sub"], program["sub_w"])
        if run["num_h"] == 0:
            continue
        rows = axis_terms(program, h, "h", direction, run, phase_h, window_h)
        columns = axis_terms(program, w, "w", direction, run, phase_w, window_w)
        terms += [(row, column) for row in rows for column in columns]
    expected = {(row, column) for row in terms_by_definition(h) for column in terms_by_definition(w)}
    assert len(terms) == len(set(terms))
    assert set(terms) == expected


@many_problems
@given(h=axes(max_in=6), w=axes(max_in=6), direction=DIRECTIONS)
def test_packed_taps_have_one_place_each(plan_module, h, w, direction):
    """The taps of an H phase are contiguous, and follow those of the previous phases."""
    program = plan_module.tap_program(make_problem(1, 1, 1, h, w) | {"direction": direction})
    assume(program is not None)
    places, taps = [], []
    for index, run in enumerate(program["runs"]):
        phase_h = index // program["phases_w"] if direction == FORWARD else 0
        begin = program["taps_before"][phase_h] + run["first_tap"]
        for tap in range(run["num_h"] * run["num_w"]):
            i, j = divmod(tap, run["num_w"])
            places.append(begin + tap)
            taps.append((run["kh"] + i * run["kh_step"], run["kw"] + j * run["kw_step"]))
    assert sorted(places) == list(range(program["total_taps"]))
    assert len(set(taps)) == len(taps)
    if direction == GRAD_INPUT:
        assert len(taps) == h["kernel"] * w["kernel"]


# ---- problem/fuse.h: W phases as output channels are the same problem, term by term


# The stride of these layers is a power of two that divides the kernel.
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


# ---- simt/layout.h: windows of the input hold what the taps read, without bank conflicts


@pytest.mark.parametrize("axis", ["row", "column"])
@many_problems
@given(
    num_taps=st.integers(1, 12),
    shift_step=st.integers(-12, 12).filter(bool),
    position_step=st.integers(1, 5),
    tile=st.integers(1, 12),
)
def test_windows_hold_what_the_taps_read(plan_module, axis, num_taps, shift_step, position_step, tile):
    """An element holds the input that tap t needs at a position, whichever tap has the lowest coordinate."""
    tile = 4 * tile if axis == "column" else tile
    window = (plan_module.row_window if axis == "row" else plan_module.column_window)(
        num_taps, shift_step, position_step, tile
    )
    content: dict[int, int] = {}
    for tap in range(num_taps):
        for position in range(tile):
            place = num_taps - 1 - tap if shift_step > 0 else tap
            element = place * window["step"] + position * window["position_step"]
            assert 0 <= element < window["extent"]
            # Relative to first_shift. All taps that read an element need the same input.
            coordinate = position * position_step - tap * shift_step
            assert content.setdefault(element, coordinate) == coordinate
    # Nothing is loaded that no tap reads, unless leaving it out would take more.
    assert len(content) == window["extent"] or window["extent"] <= num_taps * tile
    if axis == "column":  # columns are read four at a time
        assert window["position_step"] == 1
        assert num_taps == 1 or window["step"] == 1 or window["step"] % 4 == 0


@given(elements=st.integers(1, 10**6))
def test_input_planes_are_padded_for_the_banks(plan_module, elements):
    plane = plan_module.input_plane(elements)
    assert elements <= plane < elements + 32
    assert plane % 32 == 4
    assert plan_module.input_pitch(elements) == -(-elements // 4) * 4


@pytest.mark.parametrize(("chunk_kh", "chunk_kw"), [(2**16 + 1, 1), (1, 2**16 + 1), (2**20, 2**20)])
def test_too_many_taps_never_fit(plan_module, chunk_kh, chunk_kw):
    """Sizes of windows are 32-bit: more taps than they could count must not come out as a small number."""
    problem = from_row(1, 1, 1, 1, 1)
    plan = next(plan for plan in plan_module.candidates(problem, DEVICES["h200"]) if plan["engine"] == "simt")
    plan |= {"chunk_kh": chunk_kh, "chunk_kw": chunk_kw}
    assert plan_module.shared_bytes(problem, plan) > 2**30
    fits = {**plan, "chunk_kh": 2**8, "chunk_kw": 2**8}
    assert 2**16 < plan_module.shared_bytes(problem, fits) < 2**32


# ---- tiling/tile.h: the tiles of simt plans


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

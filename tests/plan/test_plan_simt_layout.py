"""simt/layout.h: every tap finds its input where the stage put it, and no two things share a place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan.interpreter import computed_problem
from plan.problems import BFLOAT16, DEVICES, FLOAT16, FLOAT64, from_row, problems
from plan.profile import many_problems


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
            # Relative to first_shift. A shared element must be the same input for all who read it.
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


@many_problems
@given(problem=problems(dtypes=True), device=st.sampled_from(sorted(DEVICES)), data=st.data())
def test_regions_of_shared_memory_do_not_overlap(plan_module, problem, device, data):
    accumulator_bytes = 8 if problem["dtype"] == FLOAT64 else 4
    output_bytes = 2 if problem["dtype"] in (FLOAT16, BFLOAT16) else accumulator_bytes
    candidates = plan_module.candidates(problem, DEVICES[device])
    plan = data.draw(st.sampled_from([plan for plan in candidates if plan["engine"] == "simt"]))
    problem = computed_problem(plan_module, problem, plan)
    layout = plan_module.shared_layout(problem, plan)
    assert layout["bytes"] == layout["total_bytes"] <= plan["shared_bytes"] <= DEVICES[device][2]

    phase_h, phase_w = (plan_module.make_phase(problem[axis], 0) for axis in ("h", "w"))
    step_h, step_w = (problem[axis].get("position_step", 1) for axis in ("h", "w"))
    rows = plan_module.row_window(plan["chunk_kh"], phase_h["shift_step"], step_h, plan["tile_h"])
    columns = plan_module.column_window(plan["chunk_kw"], phase_w["shift_step"], step_w, plan["tile_w"])
    plane = plan_module.input_plane(plan["tile_n"] * rows["extent"] * plan_module.input_pitch(columns["extent"]))
    taps = plan["chunk_kh"] * plan["chunk_kw"]
    assert plan["chunk_ci"] * plane <= layout["weight_elems"]
    weight = plan["chunk_ci"] * plan_module.weight_plane(plan["block_co"], taps)
    assert layout["weight_elems"] + weight <= layout["stage_elems"]

    stages_end = plan["stages"] * layout["stage_elems"] * accumulator_bytes
    if layout["staged_bytes_begin"]:
        assert layout["staged_bytes_begin"] >= stages_end
    else:  # the stages are idle by then
        assert plan["phases_w"] == 1
    # A row of outputs holds every phase of a channel, whether as phases or as channels of the fused problem.
    run = plan["tile_w"] * plan["phases_w"] * plan["fused_w"]
    channels = plan["block_co"] // plan["fused_w"]
    last_row = (plan["tile_n"] * plan["tile_h"] - 1) * run * max(1, layout["column_stride"])
    last = last_row + (run - 1) * layout["column_stride"] + (channels - 1) * layout["channel_stride"]
    assert layout["staged_bytes_begin"] + (last + 1) * output_bytes <= layout["total_bytes"]
    # 16-byte copies into a stage, and vector access to its parts.
    assert (layout["stage_elems"] * accumulator_bytes) % 16 == 0
    assert (layout["weight_elems"] * accumulator_bytes) % 16 == 0
    assert layout["staged_bytes_begin"] % 16 == 0


@pytest.mark.parametrize(("chunk_kh", "chunk_kw"), [(2**16 + 1, 1), (1, 2**16 + 1), (2**20, 2**20)])
def test_too_many_taps_never_fit(plan_module, chunk_kh, chunk_kw):
    """Sizes of windows are 32-bit: more taps than they could count must not come out as a small number."""
    problem = from_row(1, 1, 1, 1, 1)
    plan = next(plan for plan in plan_module.candidates(problem, DEVICES["h200"]) if plan["engine"] == "simt")
    plan |= {"chunk_kh": chunk_kh, "chunk_kw": chunk_kw}
    assert plan_module.shared_layout(problem, plan)["bytes"] == 2**63 - 1
    fits = {**plan, "chunk_kh": 2**8, "chunk_kw": 2**8}
    assert 2**16 < plan_module.shared_layout(problem, fits)["bytes"] < 2**32

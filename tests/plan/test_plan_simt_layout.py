"""simt/layout.h: windows of the input hold what the taps read, without bank conflicts, and too many taps never fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan.problems import DEVICES, from_row
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


@pytest.mark.parametrize(("chunk_kh", "chunk_kw"), [(2**16 + 1, 1), (1, 2**16 + 1), (2**20, 2**20)])
def test_too_many_taps_never_fit(plan_module, chunk_kh, chunk_kw):
    """Sizes of windows are 32-bit: more taps than they could count must not come out as a small number."""
    problem = from_row(1, 1, 1, 1, 1)
    plan = next(plan for plan in plan_module.candidates(problem, DEVICES["h200"]) if plan["engine"] == "simt")
    plan |= {"chunk_kh": chunk_kh, "chunk_kw": chunk_kw}
    assert plan_module.shared_bytes(problem, plan) > 2**30
    fits = {**plan, "chunk_kh": 2**8, "chunk_kw": 2**8}
    assert 2**16 < plan_module.shared_bytes(problem, fits) < 2**32

"""Tap programs of tensor-core engines against the definition, o = i * stride - padding + k * dilation: brute force."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st
from plan.problems import FORWARD, GRAD_INPUT, axes, make_problem
from plan.profile import many_problems

DIRECTIONS = st.sampled_from([FORWARD, GRAD_INPUT])


def terms_by_definition(axis: dict[str, int]) -> set[tuple[int, int, int]]:
    """Every (output, tap, input) of one axis."""
    return {
        (o, k, i)
        for k in range(axis["kernel"])
        for i in range(axis["in"])
        if 0 <= (o := i * axis["stride"] - axis["padding"] + k * axis["dilation"]) < axis["out"]
    }


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
        assert 0 <= element <= program[f"extra_{letter}"]  # every tap of a tile lies in its window
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
    """The taps of an H phase lie one behind the other, and all of them behind those of the phases before."""
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

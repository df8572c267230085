"""phases.h against the definition o = i * stride - padding + k * dilation, by brute force."""

from __future__ import annotations

from math import gcd

from hypothesis import given
from hypothesis import strategies as st
from plan.problems import axes, make_axis, taps_of
from plan.profile import many_problems


def terms_by_definition(axis: dict[str, int], margin: int) -> list[tuple[int, int, int]]:
    """Every (output, tap, input) with an output inside; the input may lie `margin` outside."""
    return sorted(
        (o, k, i)
        for k in range(axis["kernel"])
        for i in range(-margin, axis["in"] + margin)
        if 0 <= (o := i * axis["stride"] - axis["padding"] + k * axis["dilation"]) < axis["out"]
    )


def terms_by_phase(module, axis: dict[str, int]) -> list[tuple[int, int, int]]:
    return sorted(
        (p * axis["stride"] + phase, tap, p + shift)
        for phase in range(axis["stride"])
        for p in range(module.num_positions(axis, phase))
        for tap, shift in taps_of(module.make_phase(axis, phase))
    )


@many_problems
@given(axis=axes(max_in=9))
def test_phases_cover_every_term_once(plan_module, axis):
    # No input further out than this lands on an output.
    margin = axis["out"] + axis["padding"] + axis["kernel"] * axis["dilation"] + 1
    assert terms_by_phase(plan_module, axis) == terms_by_definition(axis, margin)


@many_problems
@given(
    axis=st.builds(
        make_axis,
        size=st.integers(1, 5),
        kernel=st.integers(1, 12),
        stride=st.integers(1, 24),
        padding=st.integers(0, 30),
        output_padding=st.integers(0, 23),
        dilation=st.integers(1, 24),
    ).filter(lambda axis: axis["out"] > 0)
)
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

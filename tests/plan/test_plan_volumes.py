"""Three-dimensional problems as two-dimensional ones: the same products of the same addresses, and their plans."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from plan.legal import assert_launchable
from plan.problems import FLOAT16, FORWARD, GRAD_INPUT, GRAD_WEIGHT, H200, HALF, IEEE, TF32, Problem, make_axis
from plan.profile import few_problems

Terms = list[tuple[int, int, int]]  # addresses of input, weight and output


def strides_of(c: int, lengths: list[int], channels_last: bool) -> tuple[int, list[int]]:
    """Returns the stride between planes, and the others, of a dense tensor [n, c, d, h, w]."""
    d, h, w = lengths
    if channels_last:
        return h * w * c, [d * h * w * c, 1, w * c, c]
    return h * w, [c * d * h * w, d * h * w, w, 1]


def make_volume(
    n: int, c_in: int, c_out: int, axes: list[dict[str, int]], channels_last: bool, **named: Any
) -> Problem:
    problem: Problem = {
        "direction": FORWARD, "batch": n, "c_in": c_in, "c_out": c_out, "groups": 1, "has_bias": False, "dtype": 0,
        "precision": TF32, **dict(zip("dhw", axes, strict=True)), **named,
    }  # fmt: skip
    for name, channels, key in (("x", c_in, "in"), ("w", c_out, "kernel"), ("y", c_out, "out")):
        plane, strides = strides_of(channels, [axis[key] for axis in axes], channels_last)
        problem |= {f"{name}_plane": plane, f"{name}_stride": strides}
    return problem


def pairs(axis: dict[str, int]) -> list[tuple[int, int, int]]:
    """Returns input coordinate, tap and output coordinate of every term of an axis."""
    found = []
    for i, k in itertools.product(range(axis["in"]), range(axis["kernel"])):
        o = i * axis["stride"] - axis["padding"] + k * axis["dilation"]
        if 0 <= o < axis["out"]:
            found.append((i, k, o))
    return found


def terms(problem: Problem) -> Terms:
    """Returns the terms of one channel of input and output, sorted."""
    d = problem.get("d") or make_axis(1, 1)
    planes = [problem.get(f"{name}_plane", 0) for name in "xwy"]
    found = []
    for n in range(problem["batch"]):
        for of_d, of_h, of_w in itertools.product(pairs(d), pairs(problem["h"]), pairs(problem["w"])):
            of_tensors = []
            for i, name in enumerate("xwy"):
                strides = problem[f"{name}_stride"]
                batch = 0 if name == "w" else n * strides[0]
                of_tensors.append(batch + of_d[i] * planes[i] + of_h[i] * strides[2] + of_w[i] * strides[3])
            found.append(tuple(of_tensors))
    return sorted(found)


def stacked_terms(stacked: Problem) -> Terms:
    """Returns the terms of the result of `stack_planes`, where an output row is a plane and a row of it."""
    x, w, y = (stacked[f"{name}_stride"] for name in "xwy")
    found = []
    for image in range(stacked["batch"]):
        n, plane = divmod(image, stacked["planes"])
        for (i, k, _), of_w in itertools.product(pairs(stacked["h"]), pairs(stacked["w"])):
            of_plane, row = divmod(k, stacked["plane_rows"])
            input = n * stacked["x_batch"] + plane * x[0] + i * x[2] + of_w[0] * x[3]
            output = n * stacked["y_batch"] + plane * y[0] + of_plane * stacked["y_plane"]
            output += (i * stacked["plane_rows"] + row) * y[2] + of_w[2] * y[3]
            found.append((input, k * w[2] + of_w[1] * w[3], output))
    return sorted(found)


@st.composite
def axes_of_a_volume(draw, deep: bool):
    """Three axes: without taps along the depth, or with kernel = stride."""
    if not deep:
        height = make_axis(draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 3)))
        return [make_axis(draw(st.integers(2, 3)), 1), height, make_axis(draw(st.integers(1, 3)), 2, 2)]
    return [make_axis(draw(st.integers(1, 3)), kernel, kernel) for kernel in draw(st.tuples(*[st.integers(1, 3)] * 3))]


@few_problems
@given(
    n=st.integers(1, 3), axes=axes_of_a_volume(deep=False), channels_last=st.booleans(), gap=st.sampled_from([0, 64])
)
def test_layers_without_taps_along_the_depth(plan_module, n, axes, channels_last, gap):
    """`gap`: elements between the planes of the input."""
    volume = make_volume(n, 2, 3, axes, channels_last)
    volume["x_plane"] += gap
    is_volume, flat = plan_module.without_depth(volume)
    are_rows = axes[1]["kernel"] == axes[1]["stride"] and not channels_last
    assert is_volume == (n > 1 and not (gap == 0 and (channels_last or are_rows)))
    if not is_volume:
        assert terms(flat) == terms(volume)


def joined_terms(joined: Problem) -> Terms:
    """Returns the terms of the result of `join_planes`, where rows of planes are rows of one image."""
    x, w, y = (joined[f"{name}_stride"] for name in "xwy")
    h, planes = joined["h"], joined["planes"]
    found = []
    for n, row, tap in itertools.product(range(joined["batch"]), range(h["in"]), range(h["kernel"])):
        out = (
            row * h["stride"]
            + tap
            + row // planes["input"] * planes["row_gap"]
            + tap // planes["taps"] * planes["tap_gap"]
        )
        for of_w in pairs(joined["w"]):
            addresses = ((n, x, row, of_w[0]), (0, w, tap, of_w[1]), (n, y, out, of_w[2]))
            found.append(tuple(i * s[0] + r * s[2] + c * s[3] for i, s, r, c in addresses))
    return sorted(found)


@pytest.mark.parametrize(
    ("function", "terms_of", "tensor", "length"),
    [("stack_planes", stacked_terms, "w", "kernel"), ("join_planes", joined_terms, "x", "in")],
)
@few_problems
@given(n=st.integers(1, 2), axes=axes_of_a_volume(deep=True), channels_last=st.booleans(), gap=st.sampled_from([0, 64]))
def test_planes_of_patches(plan_module, function, terms_of, tensor, length, n, axes, channels_last, gap):
    """`gap`: elements between the planes of the tensor. Its rows then have no common stride, if it has several."""
    volume = make_volume(n, 2, 3, axes, channels_last)
    volume[f"{tensor}_plane"] += gap
    assume(plan_module.without_depth(volume)[0])
    flat = getattr(plan_module, function)(volume)
    if gap > 0 and axes[0][length] > 1 and axes[1][length] > 1:
        assert flat is None
    else:
        assert terms_of(flat) == terms(volume)


depths = st.builds(
    make_axis, st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.integers(0, 3), st.integers(0, 2),
    st.integers(1, 3),
)  # fmt: skip


@few_problems
@given(d=depths, gradient=st.booleans())
def test_slices_of_planes(plan_module, d, gradient):
    """Each plane of the result is in one slice, with taps in ascending order and planes inside the source."""
    assume(d["out"] > 0)
    volume = make_volume(1, 2, 3, [d, make_axis(2, 1), make_axis(2, 1)], False, direction=int(gradient))
    found, planes = [], []
    for slice in plan_module.plane_slices(volume):
        for i in range(slice["num_planes"]):
            plane = slice["first_plane"] + i * slice["plane_step"]
            planes.append(plane)
            for t in range(slice["num_taps"]):
                source = slice["source_plane"] + i * slice["source_step"] + t * slice["source_tap_step"]
                tap = slice["first_tap"] + t * slice["tap_step"]
                found.append((plane, tap, source) if gradient else (source, tap, plane))
    assert sorted(planes) == list(range(d["in"] if gradient else d["out"]))
    assert sorted(found) == pairs(d)


@few_problems
@given(d=depths)
def test_pairs_of_planes(plan_module, d):
    assume(d["out"] > 0)
    volume = make_volume(1, 2, 3, [d, make_axis(2, 1), make_axis(2, 1)], False)
    found = []
    for tap in range(d["kernel"]):
        x, y, count = plan_module.plane_pairs(volume, tap)
        found += [(x + i, tap, y + i * d["stride"]) for i in range(count)]
    assert sorted(found) == pairs(d)


def test_other_depths_are_not_stacked(plan_module):
    for depth in (make_axis(3, 3, 2), make_axis(3, 2, 2, 1), make_axis(3, 2, 2, 0, 1), make_axis(3, 2, 2, 0, 0, 2)):
        assert (
            plan_module.stack_planes(make_volume(1, 2, 3, [depth, make_axis(3, 2, 2), make_axis(3, 2, 2)], False))
            is None
        )


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(
    ("direction", "dtype", "precision"),
    [(FORWARD, 0, TF32), (FORWARD, FLOAT16, HALF), (GRAD_INPUT, 0, TF32), (GRAD_WEIGHT, 0, TF32), (FORWARD, 0, IEEE)],
)
@pytest.mark.parametrize("kernel", [2, 3])
def test_engines_of_volumes(plan_module, direction, dtype, precision, kernel, channels_last):
    axes = [make_axis(16, kernel, 2), make_axis(16, 2, 2), make_axis(16, 2, 2)]
    named = {"direction": direction, "dtype": dtype, "precision": precision}
    volume = make_volume(2, 64, 32, axes, channels_last, **named)
    plans = plan_module.candidates(volume, H200)
    engines = {plan["engine"] for plan in plans}
    patches = {FORWARD: "patch", GRAD_INPUT: "nhwc" if channels_last else "patch", GRAD_WEIGHT: "correlate"}
    expected = set() if precision == IEEE or kernel == 3 else {f"{patches[direction]}_sm90a"}
    assert engines - {"simt"} == expected
    for plan in plans:
        assert_launchable(plan, H200)

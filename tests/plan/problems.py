"""Transposed-convolution problems for the planner's tests: the dict that `_plan` reads, and strategies for it."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from cases import Case
from hypothesis import strategies as st

Problem = dict[str, Any]
Shape = dict[str, int]

FLOAT32, FLOAT64, FLOAT16, BFLOAT16 = range(4)
FORWARD, GRAD_INPUT, GRAD_WEIGHT = range(3)
IEEE, ATEN, TF32X3, TF32, HALF = range(5)
PRECISIONS = {FLOAT32: [IEEE, ATEN, TF32X3, TF32], FLOAT64: [IEEE], FLOAT16: [IEEE, HALF], BFLOAT16: [IEEE, HALF]}
DTYPES = {FLOAT32: torch.float32, FLOAT64: torch.float64, FLOAT16: torch.float16, BFLOAT16: torch.bfloat16}

# [compute capability, SMs, shared bytes per block, per SM, MHz, GB/s]: the device list of convt_ext::plan.
H200 = [90, 132, 232448, 233472, 1890, 4300]
DEVICES = {
    "h200": H200,
    "small_sm75": [75, 14, 48 * 1024, 64 * 1024, 1500, 128],
    "t4": [75, 40, 65536, 65536, 1590, 320],
    "a100": [80, 108, 166912, 167936, 1410, 1400],
    "big": [120, 400, 512 * 1024, 512 * 1024, 3000, 20000],
}


def make_axis(size: int, kernel: int, stride: int = 1, padding: int = 0, output_padding: int = 0, dilation: int = 1):
    out = (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1
    return {"in": size, "out": out, "kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}


def contiguous_strides(sizes: list[int]) -> list[int]:
    _, c, h, w = sizes
    return [c * h * w, h * w, w, 1]


def channels_last_strides(sizes: list[int]) -> list[int]:
    _, c, h, w = sizes
    return [h * w * c, 1, w * c, c]


def sizes_of(problem: Problem) -> tuple[list[int], list[int], list[int]]:
    """Sizes of input, weight and output."""
    h, w = problem["h"], problem["w"]
    return (
        [problem["batch"], problem["c_in"], h["in"], w["in"]],
        [problem["c_in"], problem["c_out"] // problem["groups"], h["kernel"], w["kernel"]],
        [problem["batch"], problem["c_out"], h["out"], w["out"]],
    )


def is_channels_last(problem: Problem, operand: str) -> bool | None:
    """Whether the operand's channels are neighbours, or None where its strides tell both formats."""
    _, channels, _, width = sizes_of(problem)["xwy".index(operand[0])]
    if channels == 1 or width == 1:
        return None
    return problem[operand][1] == 1


def element_bytes(problem: Problem) -> int:
    return {FLOAT32: 4, FLOAT64: 8}.get(problem["dtype"], 2)


def make_problem(
    batch: int,
    c_in: int,
    c_out: int,
    h: dict[str, int],
    w: dict[str, int],
    groups: int = 1,
    dtype: int = FLOAT32,
    precision: int = IEEE,
    has_bias: bool = False,
    channels_last: bool = False,
) -> Problem:
    """A problem with dense strides: NCHW, or channels_last for all three tensors."""
    problem: Problem = {
        "direction": FORWARD,
        "batch": batch, "c_in": c_in, "c_out": c_out, "groups": groups, "h": h, "w": w,
        "dtype": dtype, "precision": precision, "has_bias": has_bias,
    }  # fmt: skip
    strides = channels_last_strides if channels_last else contiguous_strides
    for key, sizes in zip(("x_stride", "w_stride", "y_stride"), sizes_of(problem), strict=True):
        problem[key] = strides(sizes)
    return problem


def from_row(n, c_in, c_out, size, kernel, stride=1, padding=0, output_padding=0, groups=1, dilation=1, **options):
    """A problem from batch, channels, size, kernel and so on; each of the pairs may be one int."""
    pairs = [(v, v) if isinstance(v, int) else v for v in (size, kernel, stride, padding, output_padding, dilation)]
    h, w = (make_axis(*(pair[i] for pair in pairs)) for i in range(2))
    return make_problem(n, c_in, c_out, h, w, groups, **options)


def of_case(case: Case, direction: int = FORWARD, **options) -> Problem:
    """The problem of a case of tests/cases.py and tests/families.py, with dense strides."""
    row = (case.n, case.c_in, case.c_out, (case.h, case.w), case.k, case.s, case.p, case.op, case.g, case.d)
    return from_row(*row, has_bias=case.bias and direction == FORWARD, **options) | {"direction": direction}


class Tap(NamedTuple):
    tap: int
    shift: int


def taps_of(phase: dict[str, int]) -> list[Tap]:
    """The taps of a phase: their place in the kernel, and the input coordinate that position 0 needs."""
    return [
        Tap(phase["first_tap"] + t * phase["tap_step"], phase["first_shift"] - t * phase["shift_step"])
        for t in range(phase["num_taps"])
    ]


def output_padding_of(axis: dict[str, int]) -> int:
    return (
        axis["out"] - make_axis(axis["in"], axis["kernel"], axis["stride"], axis["padding"], 0, axis["dilation"])["out"]
    )


@st.composite
def axes(draw, max_in: int = 6) -> dict[str, int]:
    """One axis with at least one output. Small numbers in every relation, now and then a large dilation or padding."""
    size = draw(st.integers(1, max_in))
    kernel = draw(st.integers(1, 6))
    stride = draw(st.integers(1, 6))
    dilation = draw(st.one_of(st.integers(1, 6), st.integers(1, 6), st.sampled_from([stride, 2 * stride, 17, 24])))
    # PyTorch's rule: smaller than the stride or than the dilation.
    output_padding = draw(st.integers(0, max(stride, dilation) - 1))
    unpadded = make_axis(size, kernel, stride, 0, output_padding, dilation)["out"]
    padding = min(draw(st.one_of(st.integers(0, 3), st.integers(0, 40))), (unpadded - 1) // 2)
    return make_axis(size, kernel, stride, padding, output_padding, dilation)


@st.composite
def fusable_axes(draw, max_in: int = 6) -> dict[str, int]:
    """An axis whose phases can become channels: problem/fuse.h."""
    size = draw(st.integers(1, max_in))
    stride = draw(st.sampled_from([2, 2, 4, 8, 16]))
    kernel = stride * draw(st.integers(1, 3))
    output_padding = draw(st.integers(0, stride - 1))
    unpadded = make_axis(size, kernel, stride, 0, output_padding)["out"]
    padding = min(draw(st.one_of(st.integers(0, 3), st.integers(0, 40))), (unpadded - 1) // 2)
    return make_axis(size, kernel, stride, padding, output_padding)


@st.composite
def problems(draw, dtypes: bool = False, fusable: bool = False) -> Problem:
    """A small problem; with `dtypes` one of any dtype and of a precision that it has; with `fusable` no other."""
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    dtype = draw(st.integers(0, 3)) if dtypes else FLOAT32
    precision = draw(st.sampled_from(PRECISIONS[dtype])) if dtypes else IEEE
    return make_problem(
        batch=draw(st.integers(1, 3)),
        c_in=groups * draw(st.integers(1, 5)),
        c_out=groups * draw(st.one_of(st.integers(1, 5), st.integers(1, 20))),
        h=draw(axes()),
        w=draw(fusable_axes() if fusable else st.one_of(axes(), axes(), fusable_axes())),
        groups=groups,
        dtype=dtype,
        precision=precision,
        has_bias=draw(st.booleans()),
        channels_last=draw(st.booleans()),
    )

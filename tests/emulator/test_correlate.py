"""The correlate engine's plans, launcher and kernels on the host, against sums in float64."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from cases import Case
from emulator.calls import FEW_CLASSES, H200, Call

KINDS = tuple(kind for kind in FEW_CLASSES if kind != "tf32x3")
DENSE = Case("dense", "", n=2, c_in=70, c_out=72, h=5, w=24, k=(3, 3), p=(1, 1))
# Rows of grad_output are not aligned to 16 bytes, and planes are whole vectors.
FLAT = Case("flat", "", n=2, c_in=66, c_out=70, h=6, w=16, k=(3, 3))
STRIDED = Case("strided", "", n=2, c_in=130, c_out=40, h=5, w=16, k=(4, 4), s=(2, 2), p=(1, 1))
GROUPS = Case("groups", "", n=3, c_in=24, c_out=36, h=7, w=32, k=(2, 5), s=(3, 2), p=(1, 2), op=(0, 1), g=3)
# Rows of both that are packed, and of grad_output alone.
PACKED = Case("packed", "", n=2, c_in=70, c_out=40, h=5, w=13, k=(3, 3), p=(1, 1))
PACKED_GY = Case("packed_gy", "", n=2, c_in=40, c_out=70, h=4, w=16, k=(4, 4), s=(2, 2), p=(1, 1), op=(0, 1))
CASES = (DENSE, FLAT, STRIDED, GROUPS, PACKED, PACKED_GY)
# In channels_last some kernels read pixels without packing: one box of columns and several, rows that share a step of
# eight pixels with the next row, and packed groups.
PIXELS = dataclasses.replace(DENSE, name="pixels", layout="channels_last", c_in=136)
PIXELS_STRIDED = dataclasses.replace(
    STRIDED, name="pixels_strided", layout="channels_last", h=4, w=20, k=(3, 5), s=(2, 3)
)
PIXELS_DILATED = dataclasses.replace(
    DENSE, name="pixels_dilated", layout="channels_last", w=17, s=(2, 4), d=(2, 6), p=(2, 3)
)
PIXELS_PACKED = dataclasses.replace(GROUPS, name="pixels_packed", layout="channels_last", c_in=15, c_out=30)
PIXELS_GROUPS = dataclasses.replace(GROUPS, name="pixels_groups", layout="channels_last", c_out=72)
# With 32 and 16 output channels the products of a warpgroup have several splits: rows of taps in channels_last.
FEW = Case("few", "", n=2, c_in=20, c_out=30, h=5, w=16, k=(4, 7), s=(2, 1), p=(1, 2))
FEWER = Case("fewer", "", n=2, c_in=20, c_out=32, h=6, w=24, k=(3, 5), s=(1, 2), p=(1, 2), g=2)
FEW_PIXELS = dataclasses.replace(FEW, name="few_pixels", layout="channels_last", c_in=24, c_out=24)
FEWER_PIXELS = dataclasses.replace(
    FEWER, name="fewer_pixels", layout="channels_last", c_in=32, c_out=16, d=(2, 1), p=(2, 2)
)
FEW_CHANNELS = (FEW, FEWER, FEW_PIXELS, FEWER_PIXELS)
IN_PIXELS = (PIXELS, PIXELS_STRIDED, PIXELS_DILATED, PIXELS_PACKED, PIXELS_GROUPS)
# The input in one format and grad_output in the other, so that one of them is packed.
MIXED = dataclasses.replace(DENSE, name="mixed")


def call_of(case: Case, kind: str) -> Call:
    call = Call.of(case, "grad_weight", kind, case.layout == "channels_last" or case is MIXED)
    return dataclasses.replace(call, engine="correlate_sm90a")


def few_plans(emulated, call: Call) -> dict[tuple, int]:
    """Returns the best plan of each kernel and of each way to divide work between its warpgroups."""
    found: dict[tuple, int] = {}
    for number, (kernel, tile, *_) in enumerate(emulated.plans(call.problem(), H200, call.engine)):
        shape = tile["rows"] % 2 == 0 and tile["columns"] % 16 == 0
        parts = tuple(tile[f"{of}_parts"] for of in ("co", "kh", "kw"))
        found.setdefault((kernel, parts, shape), number)
    return found


def check_every_plan(emulated, call: Call) -> list[tuple]:
    """Runs `few_plans`, which must be exact, with the gradient of the bias if they compute it. Returns their keys."""
    expected, of_bias = call.expected(), call.y.double().sum((0, 2, 3))
    plans = few_plans(emulated, call)
    for turn, (key, number) in enumerate(plans.items()):
        emulated.set_eager(turn % 2 == 1, turn % 4 > 1)
        assert torch.equal(call.run(emulated, number, H200).double(), expected), key
        assert (call.grad_bias is not None) == gives_grad_bias(call, key[0]), key
        assert call.grad_bias is None or torch.equal(call.grad_bias.double(), of_bias), key
    return list(plans)


def gives_grad_bias(call: Call, kernel: str) -> bool:
    """Whether some neighbouring taps have every element of grad_output once, and the kernel has registers left."""
    if "5x64" in kernel and (call.kind == "tf32" or "pixels" not in kernel):
        return False
    case = call.case

    def covers(axis: int) -> bool:
        size, out = (case.h, case.w)[axis], case.output_size[2 + axis]
        k, s, p, d = (pair[axis] for pair in (case.k, case.s, case.p, case.d))
        return any(
            all(sum(i * s - p + tap * d == o for i in range(size) for tap in range(first, first + s)) == 1
                for o in range(out))
            for first in range(k - s + 1)
        )  # fmt: skip

    return covers(0) and covers(1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", [*CASES, *IN_PIXELS, MIXED], ids=lambda case: case.name)
def test_every_kernel(emulated, case, kind):
    plans = check_every_plan(emulated, call_of(case, kind))
    if case.g == 1:  # three warpgroups cannot share the others' kernel of two rows
        of_rows = 0 if case in (*IN_PIXELS, MIXED) else 7 if kind == "tf32" else {1: 3, 2: 5}[case.s[1]]
        of_pixels = 0 if case in CASES and kind == "tf32" else 6
        assert len({kernel for kernel, *_ in plans}) == of_rows + of_pixels


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", FEW_CHANNELS, ids=lambda case: case.name)
def test_few_output_channels(emulated, case, kind):
    plans = check_every_plan(emulated, call_of(case, kind))
    all_parts = {math.prod(parts) for _, parts, _ in plans}
    assert all_parts & {4, 6}
    assert case.c_out // case.g > 16 or all_parts & {8, 12}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", [*CASES, PIXELS, PIXELS_STRIDED], ids=lambda case: case.name)
def test_nan_reaches_the_weights_that_have_it(emulated, case, kind):
    """NaN is in corners, where taps end outside of an image and strips end."""
    for operand, place in (("x", (0, 0, 0, 0)), ("x", (1, -1, -1, -1)), ("y", (0, 1, 0, 0)), ("y", (1, -1, -1, -1))):
        call = call_of(case, kind)
        reached = call.spread_nan(operand, [place])
        for number in list(few_plans(emulated, call).values())[:2]:
            assert torch.equal(call.run(emulated, number, H200).isnan(), reached)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", [PACKED, PIXELS_PACKED], ids=lambda case: case.name)
def test_few_images_of_a_launch(emulated, case, kind):
    """Later launches add to what the first has stored, also the last one, which has fewer images."""
    call = call_of(dataclasses.replace(case, n=5), kind)
    expected, of_bias = call.expected(), call.y.double().sum((0, 2, 3))
    for number in list(few_plans(emulated, call).values())[:3]:
        assert torch.equal(call.run(emulated, number, H200, images=2).double(), expected)
        assert call.grad_bias is None or torch.equal(call.grad_bias.double(), of_bias)

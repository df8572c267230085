"""The portable engine's plans, launchers and kernels on the host: every instance, against sums in float64."""

from __future__ import annotations

import dataclasses
from random import Random

import pytest
import torch
from cases import CASES, LAYOUTS, Case
from emulator.calls import A100, DIRECTIONS, RTX_4090, Call, check, products
from families import any_case
from plan.profile import PROFILE

CLASSES = ("tf32", "f16", "bf16")
BY_NAME = {case.name: case for case in CASES}


# A product costs the emulator about 300 ns, those with zeros that fill a tile included.
SMALL = [case for case in CASES if products(case) * case.g <= 60_000]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_cases(emulated, case, direction):
    """Each case runs in both formats, in one class and with one plan; other cases draw other classes and plans."""
    draw = Random(f"{case.name} {direction}")
    for channels_last in (False, True):
        call = Call.of(case, direction, draw.choice(CLASSES), channels_last)
        check(emulated, call, draw.choice((A100, RTX_4090)), draw=draw.randrange(2**31))


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(emulated, layout, kind):
    """Operands of any strides and addresses, with and without groups."""
    for number, name in enumerate(("k4s2p1", "groups_uneven")):
        case = dataclasses.replace(BY_NAME[name], layout=layout)
        for direction in DIRECTIONS:
            check(emulated, Call.of(case, direction, kind, channels_last=number == 0), A100, draw=number)


@pytest.mark.parametrize("seed", range(12 if PROFILE == "ci" else 24))
def test_random_problems(emulated, seed):
    """Any kernel, stride, padding, output padding, dilation and groups; on GPUs with room for many and few stages."""
    draw = Random(seed)
    while True:
        case = any_case(draw, most_channels=40)
        if min(case.output_size) > 0 and products(case) * case.g < 200_000:
            break
    for direction in DIRECTIONS:
        call = Call.of(case, direction, draw.choice(CLASSES), draw.random() < 0.5)
        check(emulated, call, draw.choice((A100, RTX_4090)), draw=seed)


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_plan(emulated, direction, kind):
    """The layer fills several tiles of most instances, in both formats."""
    case = Case(
        "several_tiles", "", n=3, c_in=72, c_out=72, h=6, w=9, k=(3, 2), s=(2, 2), p=(1, 0), layout="channels_last"
    )
    kernels, packs, splits = set(), set(), set()
    for channels_last in (False, True):
        call = Call.of(case, direction, kind, channels_last)
        expected = call.expected()
        for number in call.plans(emulated, RTX_4090):
            kernel, tile, *_ = emulated.plans(call.problem(), RTX_4090, call.engine)[number]
            kernels.add(kernel)
            packs.add(tile.get("packs_source", (tile.get("packs_x"), tile.get("packs_gy"))))
            splits.add(tile.get("splits", tile.get("chunks")))
            assert torch.equal(call.run(emulated, number, RTX_4090).double(), expected), (kernel, tile)
    assert len(kernels) == (2 if direction == "grad_weight" else 5)
    assert len(packs) > 1
    assert direction == "grad_weight" or kind in ("f16", "bf16") or len(splits) > 1


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_batches_in_several_launches(emulated, direction, images):
    """As if the packed operands of all images needed too much memory; the last launch has fewer images."""
    case = Case("batch", "", n=3, c_in=5, c_out=6, h=4, w=5, k=(3, 3), s=(2, 1))
    call = Call.of(case, direction, "tf32")
    expected, number = call.expected(), next(call.plans(emulated))
    assert torch.equal(call.run(emulated, number, images=images).double(), expected)


def nearest_tf32(tensor: torch.Tensor) -> torch.Tensor:
    """Rounds to a mantissa of ten bits, ties away from zero."""
    return ((tensor.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("channels_last", [False, True])
def test_tf32_is_rounded_to_nearest(emulated, direction, channels_last):
    """Packed and unpacked operands give products of the rounded numbers, accumulated in float32."""
    case = Case(
        "rounding", "", n=2, c_in=32, c_out=32, h=6, w=6, k=(3, 3), s=(2, 2), bias=False, layout="channels_last"
    )
    call = Call.of(case, direction, "tf32", channels_last, integers=False)
    rounded = {name: nearest_tf32(getattr(call, name)) for name in ("x", "weight", "y")}
    expected = dataclasses.replace(call, **rounded).expected()
    for number in call.plans(emulated):
        found = call.run(emulated, number).double()
        assert torch.linalg.vector_norm(found - expected) <= 1e-6 * torch.linalg.vector_norm(expected)


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("channels_last", [False, True])
def test_nan_reaches_the_sums_that_have_it(emulated, direction, kind, channels_last):
    """From a corner, where taps end outside, and from the middle; in groups with fewer channels than a vector."""
    case = Case("contained", "", n=2, c_in=6, c_out=10, h=5, w=6, k=(4, 3), s=(2, 1), p=(2, 1), g=2)
    for place in ((0, 0, 0, 0), (1, 4, 2, 3)):
        call = Call.of(case, direction, kind, channels_last)
        reached = call.spread_nan("y" if direction == "grad_input" else "x", [place])
        for number in call.plans(emulated):
            assert torch.equal(call.run(emulated, number).isnan(), reached)


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("images", [0, 1])
def test_epilogue(emulated, kind, channels_last, images):
    """Results have interleaved phases, groups and several launches."""
    call = Call.of(BY_NAME["groups_uneven"], "forward", kind, channels_last)
    steps, expected = call.with_epilogue()
    for number in call.plans(emulated):
        assert torch.equal(call.run(emulated, number, images=images, steps=steps).double(), expected)

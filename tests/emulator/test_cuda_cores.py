"""The CUDA-core engines' plans, launchers and kernels on the host, in the exact classes.

Results and gradients of the input have the bits of the documented order (tests/oracle). The gradient of the weight of
small integers is exact in every order.
"""

from __future__ import annotations

import dataclasses
from random import Random

import pytest
import torch
from cases import CASES, STAGED_CASES, Case
from emulator.calls import EXACT_CLASSES, H200, Call, products
from families import any_case
from kernel_instances import kernel_instances
from oracle.plugin import forward, grad_input
from plan.profile import PROFILE

ENGINES = ("simt", "thin", "depthwise", "gather")
DIRECTIONS = ("forward", "grad_input", "grad_weight")
CLASSES = tuple(EXACT_CLASSES)
T4 = (75, 40, 65536, 65536, 1590, 320)
SEEDS = 30 if PROFILE == "ci" else 60
# Depthwise layers whose tensors are all channels_last, which few of the small cases are.
PIXELS = [
    Case(f"pixels_k{k}s{s}", "", n=2, c_in=64, c_out=64, h=6, w=7, k=(k, k), s=(s, s), p=(1, 1), g=64,
         layout="channels_last")
    for k, s in ((3, 1), (3, 2), (4, 2))
]  # fmt: skip
SMALL = [*(case for case in (*CASES, *STAGED_CASES) if products(case) <= 60_000), *PIXELS]


def expected_bits(oracle, call: Call) -> torch.Tensor:
    case = call.case
    pairs = {"stride": case.s, "padding": case.p, "groups": case.g, "dilation": case.d}
    if call.direction == "forward":
        order = "aten" if call.kind.startswith("aten") else "ieee"
        return forward(oracle, call.x, call.weight, call.bias, output_padding=case.op, order=order, **pairs)
    if call.direction == "grad_input":
        return grad_input(oracle, call.y, call.weight, (case.h, case.w), **pairs)
    return call.expected().to(call.weight.dtype)


def check_bits(emulated, oracle, call: Call, number: int, device=H200) -> None:
    expected, plan = expected_bits(oracle, call), emulated.plans(call.problem(), device, call.engine)[number]
    found = call.run(emulated, number, device)
    assert found.dtype == expected.dtype
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[found.element_size()]
    if call.direction == "grad_weight":  # exact sums, in which a zero may have either sign
        found, expected = found + 0.0, expected + 0.0
    found, expected = (tensor.contiguous().view(bits) for tensor in (found, expected))
    assert torch.equal(found, expected), (call.case, call.kind, plan)


def calls_of(case: Case, direction: str, kind: str, channels_last: bool) -> list[Call]:
    """The call for each engine."""
    call = Call.of(case, direction, kind, channels_last, integers=direction == "grad_weight")
    return [dataclasses.replace(call, engine=engine) for engine in ENGINES]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_cases(emulated, oracle, case, direction):
    """One plan of each engine in each format; other cases draw other classes and plans."""
    draw = Random(f"{case.name} {direction}")
    for channels_last in (False, True):
        for call in calls_of(case, direction, draw.choice(CLASSES), channels_last):
            numbers = list(call.plans(emulated, H200))
            if numbers:
                check_bits(emulated, oracle, call, draw.choice(numbers))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", CLASSES)
def test_every_kernel(emulated, oracle, kind, direction):
    """Each kernel that a small case has runs once."""
    seen = set()
    for case in SMALL:
        for channels_last in (False, True):
            for call in calls_of(case, direction, kind, channels_last):
                known = emulated.plans(call.problem(), H200, call.engine)
                for number in call.plans(emulated, H200):
                    if known[number][0] not in seen:
                        seen.add(known[number][0])
                        check_bits(emulated, oracle, call, number)
    assert seen
    assert seen <= set(kernel_instances("exact"))


def depthwise_case(draw: Random) -> Case:
    """Kernels and strides of the depthwise engine, in rows of up to several strips."""
    k, s = draw.choice(((4, 2), (3, 2), (2, 2), (3, 1)))
    op = draw.randrange(s)
    padding = (draw.randint(0, 9), draw.randint(0, k - 1))
    channels = draw.choice((draw.randint(1, 9), 4 * draw.randint(1, 10)))
    h, w = draw.randint(1, 9), draw.choice((draw.randint(1, 40), draw.randint(1, 300)))
    return Case("depthwise", "", n=draw.randint(1, 2), c_in=channels, c_out=channels, g=channels, h=h, w=w, k=(k, k),
                s=(s, s), p=padding, op=(op, op), layout=draw.choice(("contiguous", "channels_last")))  # fmt: skip


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_problems(emulated, oracle, seed, direction):
    """One plan of each engine, for a GPU with much shared memory or with little; a third are depthwise."""
    draw = Random(f"{seed} {direction}")
    while True:
        case = depthwise_case(draw) if seed % 3 == 0 else any_case(draw, most_channels=24)
        if min(case.output_size) > 0 and products(case) < 60_000:
            break
    device = draw.choice((H200, T4))
    for call in calls_of(case, direction, draw.choice(CLASSES), case.layout == "channels_last"):
        numbers = list(call.plans(emulated, device))
        if numbers:
            check_bits(emulated, oracle, call, draw.choice(numbers), device)

"""The engines on products of warpgroups, on the host: every family on problems like those of the GPU tests, against
sums in float64.

Copies, stores and products are asynchronous on the GPU. Here they happen as late as the kernel allows or, where a run
asks for it, at once: what depends on either comes out wrong in one of both.
"""

from __future__ import annotations

import dataclasses
import re
from random import Random

import pytest
import torch
from emulator.calls import H200, Call, products
from families import FAMILIES

ENGINES = {name: f"{name}_sm90a" for name in ("correlate", "flat", "mma", "nhwc", "patch", "scatter")}
ENGINES |= {"strided": "rows_sm90a", "window": "rows_sm90a"}
HOPPER = [family for family in FAMILIES if family.name.split("_")[0] in ENGINES]


def few_tiles(emulated, call: Call, kernels: str) -> list[int]:
    """Numbers of the family's plans whose CTAs are alone, those of few tiles first."""
    known = emulated.plans(call.problem(), H200, call.engine)
    fit = [number for number in call.plans(emulated, H200)
           if re.fullmatch(kernels, known[number][0]) and known[number][1].get("splits", 1) == 1]  # fmt: skip
    return sorted(fit, key=lambda number: known[number][1].get("num_tiles", 1))


def draw_call(emulated, family, draw: Random) -> tuple[Call, int]:
    """A problem that the family serves, and one of its plans."""
    while True:
        kind = draw.choice(family.classes)
        case = family.draw(draw, 4 if kind.startswith("tf32") else 8)
        if min(case.output_size) < 1 or products(case) > 1_000_000:
            continue
        channels_last = draw.choice(family.formats)
        layout = draw.choice(family.layouts or ("channels_last" if channels_last else "contiguous",))
        call = Call.of(dataclasses.replace(case, layout=layout), family.direction, kind, channels_last)
        call = dataclasses.replace(call, engine=ENGINES[family.name.split("_")[0]])
        numbers = few_tiles(emulated, call, family.kernels)
        if numbers:
            return call, draw.choice(numbers[:4])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("family", HOPPER, ids=lambda family: family.name)
def test_random_problems(emulated, family, seed):
    draw = Random(f"{family.name} {seed}")
    call, number = draw_call(emulated, family, draw)
    emulated.set_eager(seed % 2 == 1, seed % 4 > 1)
    plan, expected = emulated.plans(call.problem(), H200, call.engine)[number], call.expected()
    assert torch.equal(call.run(emulated, number, H200).double(), expected), (call.case, call.kind, plan)
    if call.grad_bias is not None:
        assert torch.equal(call.grad_bias.double(), call.y.double().sum((0, 2, 3))), (call.case, call.kind, plan)

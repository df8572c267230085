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
from cases import Case
from emulator.calls import H200, Call, products
from families import FAMILIES
from plan.profile import PROFILE

ENGINES = {name: f"{name}_sm90a" for name in ("correlate", "flat", "mma", "nhwc", "patch", "scatter")}
ENGINES |= {"strided": "rows_sm90a", "window": "rows_sm90a"}
SEEDS = 12 if PROFILE == "ci" else 20
HOPPER = [family for family in FAMILIES if family.name.split("_")[0] in ENGINES]


def few_tiles(emulated, call: Call, kernels: str) -> list[int]:
    """Numbers of the family's plans without clusters, those of few tiles first.

    The splits of kernels named grad_input are warps of one CTA.
    """
    known = emulated.plans(call.problem(), H200, call.engine)

    def fits(kernel: str, tile: dict) -> bool:
        return re.fullmatch(kernels, kernel) is not None and ("_grad_input_" in kernel or tile.get("splits", 1) == 1)

    fit = [number for number in call.plans(emulated, H200) if fits(*known[number][:2])]
    return sorted(fit, key=lambda number: known[number][1].get("num_tiles", 1))


def draw_call(emulated, family, draw: Random) -> tuple[Call, int]:
    """Draws a problem that the family supports, and one of its plans."""
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
            return call, draw.choice(numbers[: draw.choice((4, 64))])


def check(emulated, call: Call, number: int) -> None:
    plan, expected = emulated.plans(call.problem(), H200, call.engine)[number], call.expected()
    assert torch.equal(call.run(emulated, number, H200).double(), expected), (call.case, call.kind, plan)
    if call.grad_bias is not None:
        assert torch.equal(call.grad_bias.double(), call.y.double().sum((0, 2, 3))), (call.case, call.kind, plan)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("family", HOPPER, ids=lambda family: family.name)
def test_random_problems(emulated, family, seed):
    draw = Random(f"{family.name} {seed}")
    call, number = draw_call(emulated, family, draw)
    emulated.set_eager(seed % 2 == 1, seed % 4 > 1)
    check(emulated, call, number)


def wide(channels: int, width: int, k: tuple[int, int], s: int, p: tuple[int, int], c_out: int = 0) -> Case:
    return Case("wide", "", n=1, c_in=channels, c_out=c_out or channels, h=4, w=width, k=k, s=(1, s), p=p)


# Rows of several tiles. Of the scatter engine's the first tile's results begin within a position, or after more than it
# reaches; lines of patches are as long as a tensor map's box, and longer.
WIDE = [
    *(("scatter", "forward", r"scatter_\w+", wide(4, 400, (1, k), s, (0, p), 1))
      for k, s, p in ((4, 2, 5), (4, 2, 1), (9, 3, 13), (5, 1, 2), (3, 5, 7))),
    *(("window", direction, r"window_\w+", wide(8, width, (3, 5), 1, (1, p)))
      for direction in ("forward", "grad_input") for width, p in ((300, 2), (300, 1), (292, 4))),
    *(("patch", "grad_input", r"patch_\w+_runs_\d+", dataclasses.replace(wide(32, columns // 4, (1, 4), 4, (0, 0)),
                                                                        s=(1, 4)))
      for columns in (128, 256, 260)),
]  # fmt: skip


WIDE_IN_FORMATS = [
    (*one, channels_last) for one in WIDE for channels_last in (False, True)[: 1 + (one[0] == "scatter")]
]


@pytest.mark.parametrize(("engine", "direction", "kernels", "case", "channels_last"), WIDE_IN_FORMATS)
def test_wide_rows(emulated, engine, direction, kernels, case, channels_last):
    """By the plans of the fewest and of the most tiles."""
    layout = "channels_last" if channels_last else "contiguous"
    call = Call.of(dataclasses.replace(case, layout=layout), direction, "tf32", channels_last)
    call = dataclasses.replace(call, engine=ENGINES[engine])
    numbers = few_tiles(emulated, call, kernels)
    assert numbers
    for one in {numbers[0], numbers[-1]}:
        check(emulated, call, one)

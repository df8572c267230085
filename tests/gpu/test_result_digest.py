"""Bits of the exact classes that are the same on every GPU: digests of fixed problems, in all directions.

The report has the digests too, so that reports of two GPUs show that both computed the same.
With CONVT_WRITE_DIGESTS=path what was found is written there.
"""

from __future__ import annotations

import os
from pathlib import Path

import exact_digests
import pytest
import torch
from exact_digests import DIRECTIONS, PROBLEMS
from raw_ops import CLASSES

from convt_ext import conv_transpose2d

WRITE_TO = os.environ.get("CONVT_WRITE_DIGESTS")


def results(number: int, kind: str, memory_format: torch.memory_format) -> dict[str, torch.Tensor]:
    """Every direction of a problem, by the class's name, with all operands in that format."""
    x, weight, bias, grad_output = (
        None if one is None else one.cuda().contiguous(memory_format=memory_format) if one.dim() == 4 else one.cuda()
        for one in exact_digests.operands(number, kind)
    )
    leaves = [tensor.requires_grad_() for tensor in (x, weight, bias) if tensor is not None]
    word = "aten" if CLASSES[kind][1] == "aten" else "exact"
    result = conv_transpose2d(x, weight, bias, **PROBLEMS[number].arguments, precision=word)
    return dict(zip(DIRECTIONS, (result, *torch.autograd.grad(result, leaves, grad_output)), strict=False))


@pytest.mark.parametrize("kind", CLASSES)
def test_digests_are_those_of_every_gpu(kind, record_result):
    digests: dict[str, list[str]] = {direction: [] for direction in DIRECTIONS}
    for number in range(len(PROBLEMS)):
        for memory_format in (torch.contiguous_format, torch.channels_last):
            for direction, result in results(number, kind, memory_format).items():
                digests[direction].append(exact_digests.digest(result))
    found = {direction: exact_digests.combined(each) for direction, each in digests.items()}
    for direction, one in found.items():
        record_result(f"{kind}/{direction}", one)
    if WRITE_TO:
        exact_digests.add(Path(WRITE_TO), kind, found)
    expected = exact_digests.read().get(kind, {})
    wrong = {direction: one for direction, one in found.items() if expected.get(direction) != one}
    if wrong:
        parts = {direction: [one[:8] for one in digests[direction]] for direction in wrong}
        raise AssertionError(
            f"{kind}: found {wrong}, {exact_digests.FILE.name} has {expected}; of each problem {parts}"
        )

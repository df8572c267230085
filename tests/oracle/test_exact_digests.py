"""The digests that every GPU is compared with: where the order of a sum is documented, the scalar loop has the same."""

from __future__ import annotations

import exact_digests
import oracle.plugin
import pytest
import torch
from exact_digests import PROBLEMS
from raw_ops import CLASSES


def by_oracle(module, number: int, kind: str) -> dict[str, torch.Tensor]:
    """The result of a problem and the gradient of its input."""
    case, (_, precision) = PROBLEMS[number], CLASSES[kind]
    x, weight, bias, grad_output = exact_digests.operands(number, kind)
    size = (case.h, case.w)
    return {
        "forward": oracle.plugin.forward(module, x, weight, bias, **case.arguments, order=precision),
        "grad_input": oracle.plugin.grad_input(module, grad_output, weight, size, case.s, case.p, case.g, case.d),
    }


@pytest.mark.parametrize("kind", CLASSES)
def test_the_oracle_has_these_digests(oracle, kind):
    results = [by_oracle(oracle, number, kind) for number in range(len(PROBLEMS))]
    for direction in ("forward", "grad_input"):
        # The same bits in NCHW and in channels_last.
        found = exact_digests.combined(exact_digests.digest(result[direction]) for result in results for _ in range(2))
        assert exact_digests.read().get(kind, {}).get(direction) == found, (
            f"{kind}, {direction}: the oracle has {found}"
        )


def test_operands_are_what_they_were():
    """Made of integers alone, so that no release of PyTorch changes them."""
    found = exact_digests.combined(exact_digests.digest(tensor) for tensor in exact_digests.operands(0, "ieee_f64"))
    assert found == "1ee29db1dda2a594e8df5680aee504a11559b2e9d820f55385dab1227d8c192b"
    values = exact_digests.numbers((100_000,), 1)
    assert values.abs().max() <= 1
    assert values.unique().numel() == values.numel()
    assert values.mean().abs() < 0.01
    assert abs(values.std() - 3**-0.5) < 0.01
    assert abs((values[1:] * values[:-1]).mean()) < 0.01

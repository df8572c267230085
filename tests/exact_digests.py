"""Fixed problems of the exact classes, and the digests of their results, which must be equal on every GPU.

Integer arithmetic generates the operands, so they are the same on every machine and with every PyTorch.
`exact_digests.json` in this folder contains the digest of all problems in both formats, for each class and direction.
The scalar oracle computed those of the forward pass and of the gradient of the input
(tests/oracle/test_exact_digests.py), the first GPU the other two. Called by that test and by gpu/test_result_digest.py.
Independent of pytest.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import torch
from cases import Case
from raw_ops import CLASSES

FILE = Path(__file__).with_suffix(".json")
DIRECTIONS = ("forward", "grad_input", "grad_weight", "grad_bias")

Digests = dict[str, dict[str, str]]  # digests by class and direction

PROBLEMS = (
    Case("odd", "nothing divides a tile", n=3, c_in=5, c_out=7, h=13, w=17, k=(3, 5), s=(2, 3), p=(1, 2)),
    Case("dcgan", "the commonest upsampling", n=4, c_in=64, c_out=32, h=8, w=8, k=(4, 4), s=(2, 2), p=(1, 1)),
    Case("stride_1", "a full correlation, many channels", n=2, c_in=96, c_out=40, h=14, w=15, p=(1, 1)),
    Case("patches", "kernel = stride", n=2, c_in=48, c_out=33, h=11, w=12, k=(2, 2), s=(2, 2)),
    Case("grouped", "asymmetric, grouped, dilated", n=2, c_in=16, c_out=32, h=12, w=20, k=(3, 5), s=(2, 3), p=(1, 2),
         g=4, d=(2, 1)),
    Case("output_padding", "phases of different numbers of taps", n=2, c_in=24, c_out=16, h=9, w=31, s=(2, 2), p=(1, 1),
         op=(1, 1)),
    Case("stride_5", "16 of 25 phases are empty", n=2, c_in=12, c_out=20, h=9, w=11, s=(5, 5), p=(1, 1), d=(2, 2),
         op=(4, 3)),
    Case("stride_8", "bilinear upsampling", n=1, c_in=21, c_out=21, h=6, w=7, k=(16, 16), s=(8, 8), p=(4, 4)),
    Case("strides_3_4", "no two numbers alike", n=3, c_in=9, c_out=10, h=7, w=10, k=(7, 6), s=(3, 4), p=(2, 3),
         op=(2, 1), bias=False),
    Case("strides_6_7", "kernels below the stride", n=2, c_in=20, c_out=12, h=8, w=9, k=(5, 4), s=(6, 7)),
    Case("depthwise", "one channel a group", n=2, c_in=24, c_out=24, h=19, w=35, k=(4, 4), s=(2, 2), p=(1, 1), g=24),
    Case("few_out", "an RGB output", n=2, c_in=64, c_out=3, h=16, w=17, k=(4, 4), s=(2, 2), p=(1, 1)),
    Case("few_in", "one channel", n=3, c_in=1, c_out=16, h=21, w=23, k=(9, 9), s=(3, 3), p=(4, 4), op=(2, 2)),
    Case("long_sum", "many channels, few results", n=1, c_in=512, c_out=24, h=4, w=4, k=(4, 4), s=(2, 2), p=(1, 1)),
)  # fmt: skip


def numbers(size: Iterable[int], seed: int) -> torch.Tensor:
    """Returns float64 from -1 to 1 with 52 random bits, from a counter that is mixed twice."""
    size = tuple(size)
    counter = torch.arange(torch.Size(size).numel(), dtype=torch.int64) * 2 + (seed << 40)
    high, low = (_mixed((counter + half) ^ ((counter + half) >> 32)) for half in (0, 1))
    return ((((high & 0xFFFFF) << 32) | low).double() / 2.0**51 - 1).view(size)


def _mixed(bits: torch.Tensor) -> torch.Tensor:
    """A permutation of 32 bits: two rounds of xorshift and multiplication, as in MurmurHash3's end."""
    bits = bits & 0xFFFFFFFF
    for factor in (0x45D9F3B, 0x119DE1F3):
        bits = bits ^ (bits >> 16)
        bits = (bits * factor) & 0xFFFFFFFF
    return bits ^ (bits >> 16)


def operands(number: int, kind: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Input, weight, bias and gradient of the result of a problem, on the CPU in NCHW."""
    case, (dtype, _) = PROBLEMS[number], CLASSES[kind]
    sizes = [(case.n, case.c_in, case.h, case.w), (case.c_in, case.c_out // case.g, *case.k), (case.c_out,)]
    x, weight, bias, grad_output = (
        numbers(size, 4 * number + place).to(dtype) for place, size in enumerate([*sizes, case.output_size])
    )
    return x, weight, bias if case.bias else None, grad_output


def digest(tensor: torch.Tensor) -> str:
    """Returns the digest of the bytes in NCHW order."""
    return hashlib.sha256(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


def combined(digests: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def read(path: Path = FILE) -> Digests:
    return json.loads(path.read_text()) if path.exists() else {}


def add(path: Path, kind: str, found: dict[str, str]) -> None:
    """Adds the digests of a class to a file, which several processes may do at once."""
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        digests = json.loads(file.read() or "{}")
        digests[kind] = {**digests.get(kind, {}), **found}
        file.truncate(0)
        file.write(json.dumps(digests, indent=1, sort_keys=True) + "\n")

"""Three-dimensional layers, for tests on the host and on a GPU and for the sanitizers' workload."""

from __future__ import annotations

import dataclasses
import functools
from math import prod
from random import Random
from typing import Any

import torch
from raw_ops import CLASSES, TENSOR_CORE_CLASSES, Call, GradientCall, memory_format_of

KINDS = {**CLASSES, **TENSOR_CORE_CLASSES}
Triple = tuple[int, int, int]


@dataclasses.dataclass(frozen=True)
class Layer:
    """size: (N, C_in, C_out, D, H, W). Without s, the stride is the kernel."""

    size: tuple[int, int, int, int, int, int]
    k: Triple
    s: Triple | None = None
    p: Triple = (0, 0, 0)
    op: Triple = (0, 0, 0)
    d: Triple = (1, 1, 1)
    groups: int = 1

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of PyTorch's functional."""
        return {
            "stride": self.s or self.k, "padding": self.p, "output_padding": self.op, "groups": self.groups,
            "dilation": self.d,
        }  # fmt: skip

    @property
    def output(self) -> tuple[int, ...]:
        axes = zip(self.size[3:], self.k, self.s or self.k, self.p, self.op, self.d, strict=True)
        return tuple((size - 1) * s - 2 * p + d * (k - 1) + op + 1 for size, k, s, p, op, d in axes)

    @property
    def products(self) -> int:
        return prod(self.size) * prod(self.k) // self.groups


# Kernel = stride: nnU-Net, few and odd channels, groups, other kernels, one plane.
PATCHES = {
    "nnunet": Layer((2, 64, 32, 16, 16, 16), (2, 2, 2)),
    "nnunet_last": Layer((1, 320, 256, 4, 5, 6), (2, 2, 2)),
    "odd": Layer((2, 9, 7, 3, 5, 7), (2, 2, 2)),
    "groups": Layer((2, 32, 48, 5, 8, 10), (2, 2, 2), groups=4),
    "k344": Layer((1, 24, 16, 4, 6, 9), (3, 4, 4)),
    "k442": Layer((3, 16, 8, 3, 4, 12), (4, 4, 2)),
}
# Overlapping kernels, planes without taps, taps that are always outside, one plane, dilation, groups.
LAYERS = {
    "k3": Layer((2, 5, 6, 4, 5, 6), (3, 3, 3), (1, 1, 1), (1, 1, 1)),
    "k3s2": Layer((2, 6, 4, 3, 4, 5), (3, 3, 3), (2, 2, 2), (1, 1, 1), (1, 1, 1)),
    "k4s2": Layer((1, 4, 9, 3, 3, 4), (4, 4, 4), (2, 2, 2), (1, 1, 1)),
    "gaps": Layer((2, 3, 4, 3, 2, 3), (2, 1, 3), (4, 2, 1), op=(2, 1, 0), d=(1, 1, 2)),
    "dilated": Layer((1, 4, 4, 5, 3, 3), (3, 2, 2), (2, 1, 1), (3, 0, 0), d=(3, 2, 1)),
    "far": Layer((1, 4, 6, 2, 3, 4), (5, 2, 2), (1, 1, 1), (4, 0, 0), d=(2, 1, 1)),
    "groups_k3": Layer((2, 6, 9, 3, 4, 4), (3, 2, 2), (1, 2, 2), (2, 0, 0), groups=3),
    "no_taps": Layer((2, 3, 4, 1, 4, 4), (2, 2, 2), (1, 1, 1), (1, 0, 0), d=(2, 1, 1)),
    "padded_plane": Layer((1, 3, 4, 1, 4, 2), (1, 3, 2), (3, 4, 4), (1, 3, 0), (2, 2, 0), (2, 2, 2)),
    "one_plane": Layer((2, 5, 3, 1, 4, 6), (3, 3, 3), (2, 1, 2), (1, 1, 1)),
}


def random_layer(rng: Random, most_products: int) -> Layer:
    """A small layer with every argument at random."""
    while True:
        groups = rng.choice((1, 1, 1, 2, 3))
        k, s = (tuple(rng.choice(values) for _ in range(3)) for values in ((1, 2, 3, 4, 5), (1, 1, 2, 3, 4)))
        d = tuple(rng.choice((1, 1, 2, 3, one)) for one in s)
        channels = [groups * rng.choice((1, 2, 3, 5, 8, 17)) for _ in range(2)]
        layer = Layer(
            (rng.choice((1, 1, 2, 3)), *channels, *(rng.choice((1, 2, 3, 4, 5, 8, 9)) for _ in range(3))), k, s,
            tuple(rng.randint(0, one + 1) for one in k),
            tuple(rng.randint(0, max(pair) - 1) for pair in zip(s, d, strict=True)), d, groups,
        )  # fmt: skip
        small = layer.products <= most_products and prod(layer.output) <= 40_000
        if min(layer.output) > 0 and small:
            return layer


def call_of(
    layer: Layer, kind: str, channels_last: bool, direction: str = "forward", integers: bool = True, seed: int = 0
) -> Call | GradientCall:
    """A call of that direction on the CPU. Sums of small integers are the same in every order and class."""
    generator = torch.Generator().manual_seed(seed)
    dtype, precision = KINDS[kind]
    n, c_in, c_out, *size = layer.size

    def values(*shape: int) -> torch.Tensor:
        made = torch.randint(-2, 3, shape, generator=generator) if integers else torch.randn(shape, generator=generator)
        return made.to(dtype)

    x, weight = values(n, c_in, *size), values(c_in, c_out // layer.groups, *layer.k)
    x = torch.empty_like(x, memory_format=memory_format_of(channels_last, 5)).copy_(x)
    call = Call(x, weight, values(c_out), **layer.arguments, precision=precision, channels_last=channels_last)
    if direction == "forward":
        return call
    return GradientCall.of(direction, call, seed + 1, integers=integers).in_layout(channels_last)


@functools.lru_cache(maxsize=8)
def exact_of(layer: Layer, direction: str) -> torch.Tensor:
    """The result of `call_of` with integers, in float64."""
    return call_of(layer, "ieee_f64", False, direction).torch()

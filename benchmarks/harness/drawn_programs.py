"""Randomly drawn programs of ``--programs``: a layer, and one to four operations after it.

The operations are norms, poolings, reductions and pointwise functions, and the results have any width. Plain
``torch.nn`` with random weights. Seed and rules were fixed before the first measurement, and no choice of convt_ext
depends on these programs. Called by program_sets.py.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness.layer_programs import norm_of_trained
from harness.programs import Program

_SEED, _NUMBER = 20261129, 24

# The maximum number of elements of a result; the minimum is half of it.
_MOST = 40_000_000


class Function(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, input: Tensor) -> Tensor:
        return self.function(input)


class ChannelNorm(nn.Module):
    """LayerNorm over the channels of each pixel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)

    def forward(self, input: Tensor) -> Tensor:
        return self.norm(input.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


# Each makes a module for a number of channels, a multiple of four.
_FOLLOWING: dict[str, Callable[[int], nn.Module]] = {
    "BatchNorm": norm_of_trained,
    "GroupNorm": partial(nn.GroupNorm, 4),
    "InstanceNorm": nn.InstanceNorm2d,
    "LayerNorm": ChannelNorm,
    "average pool": lambda channels: nn.AvgPool2d(2),
    "max pool": lambda channels: nn.MaxPool2d(3, 2, 1),
    "adaptive pool": lambda channels: nn.AdaptiveAvgPool2d(7),
    "softmax": lambda channels: nn.Softmax(1),
    "mean": lambda channels: Function(lambda y: y.mean(1, keepdim=True)),
    "norm": lambda channels: Function(lambda y: F.normalize(y, dim=1)),
    "ReLU": lambda channels: nn.ReLU(),
    "GELU": lambda channels: nn.GELU(),
    "SiLU": lambda channels: nn.SiLU(),
    "ELU": lambda channels: nn.ELU(),
    "softplus": lambda channels: nn.Softplus(),
    "ReLU6": lambda channels: nn.ReLU6(),
    "square": lambda channels: Function(torch.square),
    "convolution": lambda channels: nn.Conv2d(channels, channels, 3, padding=1),
    "linear": lambda channels: nn.Conv2d(channels, 8, 1),
    "shuffle": lambda channels: nn.PixelShuffle(2),
    "interpolate": lambda channels: nn.Upsample(scale_factor=2, mode="bilinear"),
}
# These change the number of channels or the size, so nothing follows them.
_LAST = ("adaptive pool", "mean", "linear", "shuffle", "interpolate")


def _make(arguments: tuple[int, ...], bias: bool, following: tuple[str, ...]) -> nn.Module:
    layer = nn.ConvTranspose2d(*arguments, bias=bias)  # type: ignore[misc, arg-type]
    return nn.Sequential(layer, *(_FOLLOWING[name](layer.out_channels) for name in following)).eval()


def _drawn(number: int, rng: random.Random) -> Program:
    kernel = rng.randint(2, 6)
    stride = rng.choice([one for one in (1, 2, 2, 2, 3, 4) if one <= kernel])
    padding = rng.randint(0, (kernel - 1) // 2)
    output_padding = rng.randint(0, stride - 1) if rng.random() < 0.3 else 0
    c_in, c_out = (4 * rng.choice([rng.randint(1, 12), rng.randint(8, 96), 16, 32, 64]) for _ in range(2))
    sizes = [rng.choice([rng.randint(7, 140), 16, 28, 32, 56, 64, 112]) for _ in range(2)]
    of_image = [(size - 1) * stride - 2 * padding + kernel + output_padding for size in sizes]
    batch = max(1, int(rng.uniform(0.5, 1.0) * _MOST) // (c_out * math.prod(of_image)))
    names: list[str] = []
    for _ in range(rng.randint(1, 4)):
        if not (names and names[-1] in _LAST):
            names.append(rng.choice([name for name in _FOLLOWING if name not in names]))
    arguments = (c_in, c_out, kernel, stride, padding, output_padding)
    make = partial(_make, arguments, rng.random() < 0.6, tuple(names))
    return Program(f"drawn {number}: {', '.join(names)}", make, ((batch, c_in, *sizes),), "infer")


def _draw() -> tuple[Program, ...]:
    rng = random.Random(_SEED)
    return tuple(_drawn(number, rng) for number in range(_NUMBER))


DRAWN = _draw()

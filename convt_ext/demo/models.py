"""The models of the demo, in plain ``torch.nn``.

Called by command.py; the benchmark's programs.py imports them. Must not know convt_ext.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import torch
from torch import nn


class DCGANGenerator(nn.Module):
    """The 64 x 64 generator of DCGAN: five transposed convolutions, noise (N, 100, 1, 1) -> images (N, 3, 64, 64)."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        channels = [100, 8 * width, 4 * width, 2 * width, width]
        layers: list[nn.Module] = []
        for index, (c_in, c_out) in enumerate(itertools.pairwise(channels)):
            stride, padding = (1, 0) if index == 0 else (2, 1)
            layers += [
                nn.ConvTranspose2d(c_in, c_out, 4, stride, padding, bias=False),
                nn.BatchNorm2d(c_out),
                nn.ReLU(inplace=True),
            ]
        self.layers = nn.Sequential(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh())

    def forward(self, noise: torch.Tensor) -> torch.Tensor:
        return self.layers(noise)


def _double_convolution(c_in: int, c_out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(c_out, c_out, 3, padding=1),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    """A U-Net of three levels with 2 x 2 stride-2 up-convolutions: (N, 3, H, W) -> (N, 2, H, W).

    H and W are multiples of 8.
    """

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        sizes = [width, 2 * width, 4 * width, 8 * width]
        self.down = nn.ModuleList([_double_convolution(c_in, c_out) for c_in, c_out in itertools.pairwise([3, *sizes])])
        self.up = nn.ModuleList([nn.ConvTranspose2d(2 * size, size, 2, stride=2) for size in sizes[-2::-1]])
        self.merge = nn.ModuleList([_double_convolution(2 * size, size) for size in sizes[-2::-1]])
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        kept = []
        features = self.down[0](image)
        for block in list(self.down)[1:]:
            kept.append(features)
            features = block(nn.functional.max_pool2d(features, 2))
        for up, merge in zip(self.up, self.merge, strict=True):
            features = merge(torch.cat([up(features), kept.pop()], dim=1))
        return self.head(features)


class Model(NamedTuple):
    """A model in eval mode and the shape of its input."""

    name: str
    module: nn.Module
    shape: tuple[int, ...]


def full_size() -> list[Model]:
    return [
        Model("DCGAN generator", DCGANGenerator().eval(), (128, 100, 1, 1)),
        Model("U-Net", UNet().eval(), (4, 3, 512, 512)),
    ]


def reduced() -> list[Model]:
    """Returns the models with few channels and small images, for a CPU."""
    return [
        Model("DCGAN generator", DCGANGenerator(width=8).eval(), (2, 100, 1, 1)),
        Model("U-Net", UNet(width=8).eval(), (1, 3, 64, 64)),
    ]

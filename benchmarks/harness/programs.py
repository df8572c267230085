"""The programs of ``--steps``: networks with transposed convolutions, in training or inference at a usual size.

Two models of the demo, and four more in plain ``torch.nn`` with random weights: the time of a step does not depend
on the weights. layer_programs.py contains single layers with followers.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from convt_ext.demo.models import DCGANGenerator, UNet


class FSRCNN(nn.Module):
    """FSRCNN(56, 12, 4) (arXiv:1608.00367), three times as large: (N, 1, H, W) -> (N, 1, 3H, 3W)."""

    def __init__(self, features: int = 56, shrunk: int = 12) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(1, features, 5, padding=2), nn.PReLU(features)]
        layers += [nn.Conv2d(features, shrunk, 1), nn.PReLU(shrunk)]
        for _ in range(4):
            layers += [nn.Conv2d(shrunk, shrunk, 3, padding=1), nn.PReLU(shrunk)]
        layers += [nn.Conv2d(shrunk, features, 1), nn.PReLU(features)]
        self.layers = nn.Sequential(*layers, nn.ConvTranspose2d(features, 1, 9, stride=3, padding=4, output_padding=2))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.layers(image)


class CLIPSegDecoder(nn.Module):
    """A decoder like that of CLIPSeg (arXiv:2112.10003) with patches of 16 x 16, without the two encoders.

    Each of three transformer layers receives an activation of the image encoder, the input of the first is conditioned
    on the text embedding, and two transposed convolutions make the mask: three times (N, 1 + T, 768) and (N, 512), T
    tokens of a square image -> (N, 1, H, W), H = W = 16 sqrt(T).
    """

    def __init__(self, width: int = 64, of_image: int = 768, of_text: int = 512) -> None:
        super().__init__()
        self.reduce = nn.ModuleList([nn.Linear(of_image, width) for _ in range(3)])
        self.multiply, self.add = nn.Linear(of_text, width), nn.Linear(of_text, width)
        self.layers = nn.ModuleList(
            [nn.TransformerEncoderLayer(width, 4, 2048, dropout=0.0, batch_first=True) for _ in range(3)]
        )
        self.mask = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(width, width // 2, 4, stride=4),
            nn.ReLU(),
            nn.ConvTranspose2d(width // 2, 1, 4, stride=4),
        )

    def forward(
        self, first: torch.Tensor, second: torch.Tensor, third: torch.Tensor, text: torch.Tensor
    ) -> torch.Tensor:
        tokens = self.reduce[0](first)
        tokens = self.layers[0](self.multiply(text)[:, None] * tokens + self.add(text)[:, None])
        tokens = self.layers[1](tokens + self.reduce[1](second))
        tokens = self.layers[2](tokens + self.reduce[2](third))
        size = math.isqrt(tokens.shape[1] - 1)
        return self.mask(tokens[:, 1:].transpose(1, 2).unflatten(2, (size, size)))


def _unit(c_in: int, c_out: int, stride: int = 1, up: bool = False) -> nn.Sequential:
    """A 3 x 3 x 3 convolution (`up`: transposed, of stride 2), InstanceNorm and LeakyReLU."""
    layer = nn.ConvTranspose3d(c_in, c_out, 3, 2, 1, output_padding=1) if up else nn.Conv3d(c_in, c_out, 3, stride, 1)
    return nn.Sequential(layer, nn.InstanceNorm3d(c_out, affine=True), nn.LeakyReLU(inplace=True))


class VolumeUNet(nn.Module):
    """A U-Net of volumes: (N, 1, D, H, W) -> (N, 3, D, H, W); the sizes are multiples of 2^(levels - 1).

    By default as nnU-Net's PlainConvUNet (3d_fullres): two convolutions per level, transposed ones with kernel = stride
    = 2. With `overlapping` as MONAI's UNet: transposed convolutions of 3 x 3 x 3 with stride 2.
    """

    def __init__(self, sizes: tuple[int, ...] = (32, 64, 128, 256, 320, 320), overlapping: bool = False) -> None:
        super().__init__()
        self.down, self.up, self.merge = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for c_in, c_out in itertools.pairwise((1, *sizes)):
            self.down.append(nn.Sequential(_unit(c_in, c_out, 1 if c_in == 1 else 2), _unit(c_out, c_out)))
        for c_in, c_out in itertools.pairwise(sizes[::-1]):
            self.up.append(_unit(c_in, c_out, up=True) if overlapping else nn.ConvTranspose3d(c_in, c_out, 2, 2))
            self.merge.append(nn.Sequential(_unit(2 * c_out, c_out), _unit(c_out, c_out)))
        self.head = nn.Conv3d(sizes[0], 3, 1)

    def forward(self, volume: torch.Tensor) -> torch.Tensor:
        kept = []
        for level in self.down:
            volume = level(volume)
            kept.append(volume)
        for up, merge, skip in zip(self.up, self.merge, kept[-2::-1], strict=True):
            volume = merge(torch.cat((up(volume), skip), 1))
        return self.head(volume)


@dataclasses.dataclass(frozen=True)
class Program:
    """A network and the sizes of its inputs; the first size of the first input is the batch."""

    name: str
    make_model: Callable[[], nn.Module]
    inputs: tuple[tuple[int, ...], ...]
    mode: str = "train"  # or "infer"

    @property
    def batch(self) -> int:
        return self.inputs[0][0]


_CLIPSEG_INPUTS = (*[(4, 1 + 22 * 22, 768)] * 3, (4, 512))  # four images of 352 x 352

_DCGAN_128 = Program("DCGAN generator", DCGANGenerator, ((128, 100, 1, 1),))
_UNET_4 = Program("U-Net", UNet, ((4, 3, 512, 512),))

PROGRAMS: tuple[Program, ...] = (
    Program("DCGAN generator", DCGANGenerator, ((16, 100, 1, 1),)),
    _DCGAN_128,
    Program("FSRCNN x3", FSRCNN, ((1, 1, 360, 640),)),
    Program("U-Net", UNet, ((1, 3, 256, 256),)),
    _UNET_4,
    Program("CLIPSeg decoder", CLIPSegDecoder, _CLIPSEG_INPUTS, "infer"),
    Program("nnU-Net 3d", VolumeUNet, ((2, 1, 128, 128, 128),)),
    Program("MONAI UNet 3d", partial(VolumeUNet, (16, 32, 64, 128, 256), True), ((2, 1, 96, 96, 96),)),
)

# The programs with training steps that `--programs` compiles.
COMPILED_STEPS: tuple[Program, ...] = (_DCGAN_128, _UNET_4)

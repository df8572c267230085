"""Programs of ``--programs`` with several consecutive transposed convolutions, and a decoder to train.

Plain ``torch.nn`` with random weights. Called by program_sets.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from torch import nn

from harness.layer_programs import norm_of_trained
from harness.programs import Program


class _Shape(NamedTuple):
    batch: int
    size: int  # height and width of the image
    channels: tuple[int, ...]
    geometry: tuple[int, int, int]  # kernel size, stride and padding of each layer


_SHAPES = (
    _Shape(128, 4, (512, 256, 128, 64), (4, 2, 1)),
    _Shape(16, 32, (256, 128, 64), (2, 2, 0)),
    _Shape(32, 64, (64, 64, 64), (3, 1, 0)),
)


def make_chain(channels: Sequence[int], geometry: tuple[int, int, int], norm: bool, between: bool) -> nn.Module:
    """Makes a chain of layers, each with a norm or an activation.

    Args:
        channels: the number of channels before each layer and after the last one.
        geometry: kernel size, stride and padding.
        norm: whether BatchNorm and leaky ReLU follow a layer, or else ReLU.
        between: whether a 3 x 3 convolution also follows each layer but the last.
    """
    modules: list[nn.Module] = []
    for index, (c_in, c_out) in enumerate(pairwise(channels)):
        modules.append(nn.ConvTranspose2d(c_in, c_out, *geometry, bias=not norm))
        modules += [norm_of_trained(c_out), nn.LeakyReLU(0.2)] if norm else [nn.ReLU()]
        if between and index < len(channels) - 2:
            modules.append(nn.Conv2d(c_out, c_out, 3, padding=1))
    return nn.Sequential(*modules)


def make_decoder() -> nn.Module:
    """Makes a decoder from 512 channels to an image of 3, sixteen times as large, with BatchNorm and ReLU between."""
    modules: list[nn.Module] = []
    for c_in, c_out in ((512, 256), (256, 128), (128, 64)):
        modules += [nn.ConvTranspose2d(c_in, c_out, 4, 2, 1, bias=False), nn.BatchNorm2d(c_out), nn.ReLU()]
    return nn.Sequential(*modules, nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh())


def _program(shape: _Shape, norm: bool, between: bool) -> Program:
    words = [">".join(map(str, shape.channels)), "BatchNorm, leaky ReLU" if norm else "ReLU"]
    words += ["convolutions"] if between else []
    make = partial(make_chain, shape.channels, shape.geometry, norm, between)
    return Program(", ".join(words), make, ((shape.batch, shape.channels[0], shape.size, shape.size),), "infer")


CHAINS: tuple[Program, ...] = tuple(
    _program(shape, norm, between) for shape in _SHAPES for norm in (False, True) for between in (False, True)
)

DECODER = Program("decoder", make_decoder, ((64, 512, 8, 8),))

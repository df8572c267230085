"""Programs of ``--programs``: a layer and usual followers, or those of KernelBench level 2; several layers; decoders.

Plain ``torch.nn`` with random weights. No tuned table contains one of the layers of `LAYER_PROGRAMS`. Called by
program_sets.py and program_rows.py. Must not know convt_ext's operator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from convt_ext.bench.layers import Layer
from harness.programs import Program

# Target for the maximum time of a fused program, relative to its layer without followers.
_CHEAP, _TRANSCENDENTAL = 1.1, 1.3

Follow = Callable[[Any, torch.Tensor], torch.Tensor]


class Behind(nn.Module):
    """A transposed convolution, a function after it, and the parameters and modules of the function.

    Args:
        follow: the function; receives this module and the layer's result.
        others: the modules that it calls.
    """

    def __init__(self, layer: nn.ConvTranspose2d, follow: Follow, others: Iterable[nn.Module] = ()) -> None:
        super().__init__()
        self.layer, self.follow, self.others = layer, follow, nn.ModuleList(others)
        self.vector = nn.Parameter(0.02 * torch.randn(layer.out_channels, 1, 1))
        self.scalar = nn.Parameter(torch.randn(1, 1, 1))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.follow(self, self.layer(image))


class AddReLU(nn.Module):
    """A transposed convolution, a residual of the result's shape added, and ReLU."""

    def __init__(self, layer: nn.ConvTranspose2d) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, image: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(image) + residual)


def _mish_hardtanh_scale(self: Behind, y: torch.Tensor) -> torch.Tensor:
    return F.hardtanh(F.mish(y) + 0.5) * 2.0


def _subtract_tanh(self: Behind, y: torch.Tensor) -> torch.Tensor:
    return torch.tanh(y - self.vector)


def norm_of_trained(channels: int) -> nn.BatchNorm2d:
    """Makes a BatchNorm2d with statistics and weights like those of a trained one."""
    norm = nn.BatchNorm2d(channels)
    with torch.no_grad():
        for centre in (norm.running_mean, norm.bias):
            assert centre is not None
            centre.normal_(0.0, 0.2)
        for spread in (norm.running_var, norm.weight):
            assert spread is not None
            spread.uniform_(0.5, 1.5)
    return norm


def _then(*make: Callable[[int], nn.Module]) -> Callable[[nn.ConvTranspose2d], nn.Module]:
    """Returns a function that puts modules after a layer, made for its number of channels."""
    return lambda layer: nn.Sequential(layer, *(one(layer.out_channels) for one in make))


def _behind(follow: Follow) -> Callable[[nn.ConvTranspose2d], nn.Module]:
    return lambda layer: Behind(layer, follow)


@dataclasses.dataclass(frozen=True)
class LayerProgram:
    """A layer and its followers.

    Attributes:
        layer: the sizes; its name is the program's.
        follow: makes the program from the layer's module.
        limit: target for the maximum time of the fused program, relative to the layer without followers.
        has_residual: whether a tensor of the result's shape is the second input.
    """

    layer: Layer
    follow: Callable[[nn.ConvTranspose2d], nn.Module]
    limit: float = _CHEAP
    has_residual: bool = False

    @property
    def name(self) -> str:
        return self.layer.name

    @property
    def batch(self) -> int:
        return self.layer.n

    @property
    def inputs(self) -> tuple[tuple[int, ...], ...]:
        return (self.layer.input_shape, *([self.layer.output_shape] if self.has_residual else []))

    def make_model(self) -> nn.Module:
        """Makes the program, in eval mode."""
        one = self.layer
        padding = {"padding": one.p, "output_padding": one.op}
        module = nn.ConvTranspose2d(one.c_in, one.c_out, one.k, one.s, groups=one.g, bias=one.bias, **padding)  # type: ignore[arg-type]
        return self.follow(module).eval()


def layer_of(model: nn.Module) -> nn.ConvTranspose2d | None:
    """Returns the transposed convolution of a program's model; None if there are several."""
    layers = [module for module in model.modules() if isinstance(module, nn.ConvTranspose2d)]
    return layers[0] if len(layers) == 1 else None


def _layer(name: str, n: int, channels: tuple[int, int], size: int, kernel: int, bias: bool = True) -> Layer:
    """Makes a layer that doubles the image size."""
    padding, output_padding = {2: (0, 0), 3: (1, 1), 4: (1, 0)}[kernel]
    pairs = ((kernel, kernel), (2, 2), (padding, padding), (output_padding, output_padding))
    return Layer(name, n, *channels, size, size, *pairs, bias=bias)


# A call needs about 0.1 to 0.5 ms on an H200 in float32.
LAYER_PROGRAMS: tuple[LayerProgram, ...] = (
    LayerProgram(
        _layer("bias, clamp, scale", 128, (64, 64), 56, 3, bias=False),
        _behind(lambda self, y: torch.clamp(y + self.vector, -1.0, 1.0) * 0.5),
    ),
    LayerProgram(
        _layer("BatchNorm, ReLU", 72, (256, 128), 28, 4, bias=False), _then(norm_of_trained, lambda _: nn.ReLU())
    ),
    LayerProgram(_layer("tanh", 32, (128, 64), 72, 4), _then(lambda _: nn.Tanh()), _TRANSCENDENTAL),
    LayerProgram(_layer("GELU", 24, (128, 64), 96, 2), _then(lambda _: nn.GELU()), _TRANSCENDENTAL),
    LayerProgram(_layer("SiLU", 16, (256, 256), 48, 3), _then(lambda _: nn.SiLU()), _TRANSCENDENTAL),
    LayerProgram(
        _layer("mish, add, hardtanh, scale", 96, (128, 128), 28, 4), _behind(_mish_hardtanh_scale), _TRANSCENDENTAL
    ),
    LayerProgram(_layer("subtract, tanh", 16, (512, 256), 60, 2), _behind(_subtract_tanh), _TRANSCENDENTAL),
    LayerProgram(_layer("residual, ReLU", 32, (256, 128), 52, 2), AddReLU, has_residual=True),
    LayerProgram(_layer("scale", 128, (64, 128), 40, 3), _behind(lambda self, y: y * 0.7)),
    LayerProgram(_layer("leaky ReLU", 24, (512, 512), 14, 4), _then(lambda _: nn.LeakyReLU(0.2))),
    LayerProgram(_layer("sigmoid", 16, (64, 64), 112, 4), _then(lambda _: nn.Sigmoid()), _TRANSCENDENTAL),
    LayerProgram(_layer("PReLU", 64, (128, 128), 44, 2), _then(nn.PReLU)),
    LayerProgram(_layer("hardswish", 64, (512, 256), 24, 3), _then(lambda _: nn.Hardswish())),
)


def _level2(
    number: int, words: str, batch: int, size: int, layer: tuple[int, ...], follow: Follow,
    *modules: Callable[[], nn.Module],
) -> Program:  # fmt: skip
    """Makes a program with square images; `layer`: C_in, C_out, kernel, stride, padding, output_padding."""

    def make() -> nn.Module:
        return Behind(nn.ConvTranspose2d(*layer), follow, [one() for one in modules])  # type: ignore[arg-type]

    return Program(f"{number}: {words}", make, ((batch, layer[0], size, size),), "infer")


# The eleven 2-D programs of KernelBench level 2 (arXiv:2502.10517), with norms, poolings, softmax and reductions. Names
# contain their numbers in KernelBench.
LEVEL2: tuple[Program, ...] = (
    _level2(2, "clamps", 128, 128, (64, 64, 3, 2, 1, 1),
            lambda self, y: torch.clamp(torch.clamp(y + self.vector, 0.0, 1.0) * 2.0, 0.0, 1.0) / 2.0),
    _level2(5, "subtract, tanh", 32, 256, (64, 64, 4, 2, 1, 1), _subtract_tanh),
    _level2(10, "max pool, mean", 128, 256, (64, 64, 3, 1, 1, 0),
            lambda self, y: torch.tanh(F.hardtanh(F.max_pool2d(y, 2)).mean((2, 3), keepdim=True))),
    _level2(11, "norm, tanh, pool, norm", 512, 32, (64, 128, 5, 1, 1, 0),
            lambda self, y: self.others[1](F.max_pool2d(torch.tanh(self.others[0](y)), 2)),
            partial(nn.BatchNorm2d, 128), partial(nn.GroupNorm, 8, 128)),
    _level2(16, "mish, hardtanh", 128, 128, (64, 64, 3, 2, 1, 1), _mish_hardtanh_scale),
    _level2(19, "GELU, GroupNorm", 128, 256, (64, 64, 3, 1, 0, 0),
            lambda self, y: self.others[0](F.gelu(y)), partial(nn.GroupNorm, 8, 64)),
    _level2(36, "min, sum, GELU", 16, 128, (64, 128, 3, 2, 1, 1),
            lambda self, y: F.gelu(y.min(dim=1, keepdim=True)[0].sum(dim=2, keepdim=True)) + self.scalar),
    _level2(42, "mean, logsumexp", 16, 512, (64, 128, 3, 1, 0, 0),
            lambda self, y: 10.0 * (y.mean((2, 3), True) + self.vector).logsumexp(1, True).sum((2, 3))),
    _level2(44, "scale, means", 16, 128, (64, 128, 3, 2, 1, 1),
            lambda self, y: (y * 0.5).mean((2, 3), keepdim=True).mean((2, 3), keepdim=True)),
    _level2(91, "softmax, sigmoid", 128, 64, (64, 128, 4, 2, 1, 1),
            lambda self, y: torch.sigmoid((torch.softmax(y, 1) + self.vector) * 2.0)),
    _level2(93, "min, GELU", 128, 64, (64, 128, 4, 2, 0, 0),
            lambda self, y: F.gelu(torch.clamp(y + 0.5, max=0.0)) * 2.0),
)  # fmt: skip


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

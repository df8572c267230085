"""Programs of ``--programs``: a transposed convolution with twice the image size, and usual followers.

Plain ``torch.nn`` with random weights, in eval mode. No tuned table contains one of these layers. Called by
program_rows.py, which measures them, and by command.py. Must not know convt_ext.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from convt_ext.bench.layers import Layer

# Target for the maximum time of a fused program, relative to its layer without followers.
_CHEAP, _TRANSCENDENTAL = 1.1, 1.3


class _Following(nn.Module):
    """A layer; subclasses call it first."""

    def __init__(self, layer: nn.ConvTranspose2d) -> None:
        super().__init__()
        self.layer = layer


class BiasClampScale(_Following):
    """A separate bias, a clamp, and a factor."""

    def __init__(self, layer: nn.ConvTranspose2d) -> None:
        super().__init__(layer)
        self.bias = nn.Parameter(torch.randn(layer.out_channels, 1, 1))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return torch.clamp(self.layer(image) + self.bias, -1.0, 1.0) * 0.5


class MishAddHardtanhScale(_Following):
    """Mish, a number added, hardtanh, and a factor."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return F.hardtanh(F.mish(self.layer(image)) + 0.5) * 2.0


class SubtractTanh(_Following):
    """A number for each channel subtracted, and tanh."""

    def __init__(self, layer: nn.ConvTranspose2d) -> None:
        super().__init__(layer)
        self.mean = nn.Parameter(torch.randn(layer.out_channels, 1, 1))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(image) - self.mean)


class AddReLU(_Following):
    """A residual of the result's shape added, and ReLU."""

    def forward(self, image: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(image) + residual)


class Scale(_Following):
    """A factor."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.layer(image) * 0.7


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


def norm_and_relu(layer: nn.ConvTranspose2d) -> nn.Module:
    """BatchNorm2d and ReLU."""
    return nn.Sequential(layer, norm_of_trained(layer.out_channels), nn.ReLU())


def prelu(layer: nn.ConvTranspose2d) -> nn.Module:
    """PReLU with a slope for each channel."""
    return nn.Sequential(layer, nn.PReLU(layer.out_channels))


def _then(make: Callable[[], nn.Module], layer: nn.ConvTranspose2d) -> nn.Module:
    return nn.Sequential(layer, make())


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
    LayerProgram(_layer("bias, clamp, scale", 128, (64, 64), 56, 3, bias=False), BiasClampScale),
    LayerProgram(_layer("BatchNorm, ReLU", 72, (256, 128), 28, 4, bias=False), norm_and_relu),
    LayerProgram(_layer("tanh", 32, (128, 64), 72, 4), partial(_then, nn.Tanh), _TRANSCENDENTAL),
    LayerProgram(_layer("GELU", 24, (128, 64), 96, 2), partial(_then, nn.GELU), _TRANSCENDENTAL),
    LayerProgram(_layer("SiLU", 16, (256, 256), 48, 3), partial(_then, nn.SiLU), _TRANSCENDENTAL),
    LayerProgram(_layer("mish, add, hardtanh, scale", 96, (128, 128), 28, 4), MishAddHardtanhScale, _TRANSCENDENTAL),
    LayerProgram(_layer("subtract, tanh", 16, (512, 256), 60, 2), SubtractTanh, _TRANSCENDENTAL),
    LayerProgram(_layer("residual, ReLU", 32, (256, 128), 52, 2), AddReLU, has_residual=True),
    LayerProgram(_layer("scale", 128, (64, 128), 40, 3), Scale),
    LayerProgram(_layer("leaky ReLU", 24, (512, 512), 14, 4), partial(_then, partial(nn.LeakyReLU, 0.2))),
    LayerProgram(_layer("sigmoid", 16, (64, 64), 112, 4), partial(_then, nn.Sigmoid), _TRANSCENDENTAL),
    LayerProgram(_layer("PReLU", 64, (128, 128), 44, 2), prelu),
    LayerProgram(_layer("hardswish", 64, (512, 256), 24, 3), partial(_then, nn.Hardswish)),
)

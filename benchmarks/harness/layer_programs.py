"""Programs of ``--programs``: a transposed convolution with twice the image size, and usual followers.

Plain ``torch.nn`` with random weights, in eval mode. No tuned table contains one of these layers. Called by
program_rows.py, which measures them, and by command.py. Must not know convt_ext.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from convt_ext.bench.layers import Layer

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


def _bias_clamp_scale(self: Behind, y: torch.Tensor) -> torch.Tensor:
    return torch.clamp(y + self.vector, -1.0, 1.0) * 0.5


def mish_hardtanh_scale(self: Behind, y: torch.Tensor) -> torch.Tensor:
    return F.hardtanh(F.mish(y) + 0.5) * 2.0


def subtract_tanh(self: Behind, y: torch.Tensor) -> torch.Tensor:
    return torch.tanh(y - self.vector)


def _scale(self: Behind, y: torch.Tensor) -> torch.Tensor:
    return y * 0.7


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
    LayerProgram(_layer("bias, clamp, scale", 128, (64, 64), 56, 3, bias=False), _behind(_bias_clamp_scale)),
    LayerProgram(
        _layer("BatchNorm, ReLU", 72, (256, 128), 28, 4, bias=False), _then(norm_of_trained, lambda _: nn.ReLU())
    ),
    LayerProgram(_layer("tanh", 32, (128, 64), 72, 4), _then(lambda _: nn.Tanh()), _TRANSCENDENTAL),
    LayerProgram(_layer("GELU", 24, (128, 64), 96, 2), _then(lambda _: nn.GELU()), _TRANSCENDENTAL),
    LayerProgram(_layer("SiLU", 16, (256, 256), 48, 3), _then(lambda _: nn.SiLU()), _TRANSCENDENTAL),
    LayerProgram(
        _layer("mish, add, hardtanh, scale", 96, (128, 128), 28, 4), _behind(mish_hardtanh_scale), _TRANSCENDENTAL
    ),
    LayerProgram(_layer("subtract, tanh", 16, (512, 256), 60, 2), _behind(subtract_tanh), _TRANSCENDENTAL),
    LayerProgram(_layer("residual, ReLU", 32, (256, 128), 52, 2), AddReLU, has_residual=True),
    LayerProgram(_layer("scale", 128, (64, 128), 40, 3), _behind(_scale)),
    LayerProgram(_layer("leaky ReLU", 24, (512, 512), 14, 4), _then(lambda _: nn.LeakyReLU(0.2))),
    LayerProgram(_layer("sigmoid", 16, (64, 64), 112, 4), _then(lambda _: nn.Sigmoid()), _TRANSCENDENTAL),
    LayerProgram(_layer("PReLU", 64, (128, 128), 44, 2), _then(nn.PReLU)),
    LayerProgram(_layer("hardswish", 64, (512, 256), 24, 3), _then(lambda _: nn.Hardswish())),
)

"""Models with modules after transposed convolutions, and the error bound of folding."""

from __future__ import annotations

import copy

import torch
from torch import nn

UNIT = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


X = torch.randn(2, 4, 5, 6)


def layer(**settings) -> nn.ConvTranspose2d:
    return nn.ConvTranspose2d(4, 6, 3, stride=2, **settings)


def with_norm(**settings) -> nn.Sequential:
    return nn.Sequential(layer(**settings), nn.BatchNorm2d(6), nn.ReLU())


def randomized(model: nn.Module) -> nn.Module:
    """Returns the model in eval mode, with a BatchNorm that is not the identity."""
    for norm in model.modules():
        if isinstance(norm, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)):
            if norm.affine:
                nn.init.normal_(norm.weight)
                nn.init.normal_(norm.bias)
            if norm.track_running_stats:
                norm.running_mean.normal_()
                norm.running_var.uniform_(0.5, 2)
    return model.eval()


def folding_bound(conv: nn.ConvTranspose2d, norm: nn.BatchNorm2d, x: torch.Tensor) -> torch.Tensor:
    """Returns the error bound of docs/numerics.md for each result of conv and norm, folded or not."""
    absolute, norm = copy.deepcopy(conv).double(), copy.deepcopy(norm).double()
    with torch.no_grad():
        absolute.weight.abs_()
        if absolute.bias is not None:
            absolute.bias.abs_()
        scale = (norm.running_var + norm.eps).rsqrt() * (1 if norm.weight is None else norm.weight.abs())
        sums = absolute(x.double().abs()) + norm.running_mean.abs().view(-1, 1, 1)
        sums = sums * scale.view(-1, 1, 1)
        if norm.bias is not None:
            sums = sums + norm.bias.abs().view(-1, 1, 1)
    terms = conv.in_channels // conv.groups * conv.weight[0, 0].numel()
    return ((terms + 8) * UNIT[torch.float32] + (x.dtype.itemsize == 2) * 3 * UNIT[x.dtype]) * sums

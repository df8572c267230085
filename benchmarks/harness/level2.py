"""Programs of ``--programs``: a transposed convolution, followed by norms, poolings, softmax and reductions.

Sizes and functions are those of the eleven 2-D programs of KernelBench level 2 (arXiv:2502.10517); a name contains the
program's number in KernelBench. Plain ``torch.nn`` with random weights. Called by program_sets.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness.layer_programs import Behind, Follow, mish_hardtanh_scale, subtract_tanh
from harness.programs import Program


def _clamps(self: Behind, y: Tensor) -> Tensor:
    return torch.clamp(torch.clamp(y + self.vector, 0.0, 1.0) * 2.0, 0.0, 1.0) / 2.0


def _pooled_mean(self: Behind, y: Tensor) -> Tensor:
    return torch.tanh(F.hardtanh(F.max_pool2d(y, 2)).mean((2, 3), keepdim=True))


def _norms_and_pool(self: Behind, y: Tensor) -> Tensor:
    return self.others[1](F.max_pool2d(torch.tanh(self.others[0](y)), 2))


def _gelu_norm(self: Behind, y: Tensor) -> Tensor:
    return self.others[0](F.gelu(y))


def _least_channel(self: Behind, y: Tensor) -> Tensor:
    return F.gelu(y.min(dim=1, keepdim=True)[0].sum(dim=2, keepdim=True)) + self.scalar


def _logsumexp_of_means(self: Behind, y: Tensor) -> Tensor:
    return 10.0 * torch.logsumexp(y.mean((2, 3), keepdim=True) + self.vector, 1, keepdim=True).sum((2, 3))


def _means(self: Behind, y: Tensor) -> Tensor:
    return (y * 0.5).mean((2, 3), keepdim=True).mean((2, 3), keepdim=True)


def _softmax_sigmoid(self: Behind, y: Tensor) -> Tensor:
    return torch.sigmoid((torch.softmax(y, 1) + self.vector) * 2.0)


def _min_gelu(self: Behind, y: Tensor) -> Tensor:
    return F.gelu(torch.clamp(y + 0.5, max=0.0)) * 2.0


class _One(NamedTuple):
    number: int
    words: str
    batch: int
    size: int  # height and width of the image
    layer: tuple[int, int, int, int, int, int]  # C_in, C_out, kernel, stride, padding, output_padding
    follow: Follow
    modules: tuple[Callable[[], nn.Module], ...] = ()


_ALL = (
    _One(2, "clamps", 128, 128, (64, 64, 3, 2, 1, 1), _clamps),
    _One(5, "subtract, tanh", 32, 256, (64, 64, 4, 2, 1, 1), subtract_tanh),
    _One(10, "max pool, mean", 128, 256, (64, 64, 3, 1, 1, 0), _pooled_mean),
    _One(11, "norm, tanh, pool, norm", 512, 32, (64, 128, 5, 1, 1, 0), _norms_and_pool,
         (partial(nn.BatchNorm2d, 128), partial(nn.GroupNorm, 8, 128))),
    _One(16, "mish, hardtanh", 128, 128, (64, 64, 3, 2, 1, 1), mish_hardtanh_scale),
    _One(19, "GELU, GroupNorm", 128, 256, (64, 64, 3, 1, 0, 0), _gelu_norm, (partial(nn.GroupNorm, 8, 64),)),
    _One(36, "min, sum, GELU", 16, 128, (64, 128, 3, 2, 1, 1), _least_channel),
    _One(42, "mean, logsumexp", 16, 512, (64, 128, 3, 1, 0, 0), _logsumexp_of_means),
    _One(44, "scale, means", 16, 128, (64, 128, 3, 2, 1, 1), _means),
    _One(91, "softmax, sigmoid", 128, 64, (64, 128, 4, 2, 1, 1), _softmax_sigmoid),
    _One(93, "min, GELU", 128, 64, (64, 128, 4, 2, 0, 0), _min_gelu),
)  # fmt: skip


def _make(layer: tuple[int, ...], follow: Follow, modules: Sequence[Callable[[], nn.Module]]) -> nn.Module:
    return Behind(nn.ConvTranspose2d(*layer), follow, [make() for make in modules])  # type: ignore[arg-type]


LEVEL2: tuple[Program, ...] = tuple(
    Program(
        f"{one.number}: {one.words}", partial(_make, one.layer, one.follow, one.modules),
        ((one.batch, one.layer[0], one.size, one.size),), "infer",
    )
    for one in _ALL
)  # fmt: skip

"""Named problems for every test that runs the operator, each with the reason for it.

Sizes are small: a scalar loop can check them. `Case` builds its tensors and the arguments of the call;
`CASES` is the list. Add a case for each new kind of bug, so that it is tested with every kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

Pair = tuple[int, ...]

LAYOUTS = ("contiguous", "channels_last", "channels_last_input", "channels_last_weight", "channel_slice", "expanded",
           "transposed", "step", "offset")  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One problem: input (n, c_in, h, w), kernel k, stride s, padding p, output padding op, groups g, dilation d."""

    name: str
    why: str
    n: int = 2
    c_in: int = 4
    c_out: int = 6
    h: int = 5
    w: int = 6
    k: Pair = (3, 3)
    s: Pair = (1, 1)
    p: Pair = (0, 0)
    op: Pair = (0, 0)
    g: int = 1
    d: Pair = (1, 1)
    bias: bool = True
    layout: str = "contiguous"
    depth: int | None = None  # of an input with three dimensions; all pairs are then triples

    @property
    def lengths(self) -> Pair:
        return (self.h, self.w) if self.depth is None else (self.depth, self.h, self.w)

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of `conv_transpose2d` after the tensors."""
        return {
            "stride": self.s, "padding": self.p, "output_padding": self.op, "groups": self.g, "dilation": self.d,
        }  # fmt: skip

    @property
    def output_size(self) -> tuple[int, ...]:
        axes = zip(self.lengths, self.s, self.p, self.d, self.k, self.op, strict=True)
        lengths = ((size - 1) * s - 2 * p + d * (k - 1) + op + 1 for size, s, p, d, k, op in axes)
        return (self.n, self.c_out, *lengths)

    def tensors(
        self, dtype: torch.dtype = torch.float32, device: str = "cpu", seed: int = 0, integers: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Input, weight and bias (None without one) in the case's layout; the values depend on `seed` alone.

        `integers` gives values so small that every order of every sum is exact, also in half precision.
        """
        generator = torch.Generator().manual_seed(seed)

        def values(*size: int) -> torch.Tensor:
            if integers:
                return torch.randint(-2, 3, size, generator=generator).to(device, dtype)
            return torch.randn(size, generator=generator, dtype=torch.float64).to(device, dtype)

        x = values(self.n, self.c_in, *self.lengths)
        weight = values(self.c_in, self.c_out // self.g, *self.k)
        bias = values(self.c_out) if self.bias else None
        return _INPUT_LAYOUTS.get(self.layout, _same)(x), _WEIGHT_LAYOUTS.get(self.layout, _same)(weight), bias


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _channels_last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous(memory_format=torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d)


def _converted(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the strides of `module.to(memory_format=torch.channels_last)`; `contiguous` keeps one channel."""
    return tensor.to(memory_format=torch.channels_last)


def _channel_slice(tensor: torch.Tensor) -> torch.Tensor:
    """Returns these values as the middle channels of a wider channels_last tensor: its strides, but not dense."""
    channels = tensor.shape[1]
    wide = torch.full((tensor.shape[0], channels + 3, *tensor.shape[2:]), float("nan")).to(tensor)
    wide = _channels_last(wide)
    wide[:, 1 : 1 + channels] = tensor
    return wide[:, 1 : 1 + channels]


def _expanded(tensor: torch.Tensor) -> torch.Tensor:
    return tensor[:, :1].expand_as(tensor)


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(2, 3).contiguous().transpose(2, 3)


def _step(tensor: torch.Tensor) -> torch.Tensor:
    """Returns every second column of a tensor that contains NaN in all other columns."""
    wide = torch.full((*tensor.shape[:3], 2 * tensor.shape[3]), float("nan")).to(tensor)
    wide[..., ::2] = tensor
    return wide[..., ::2]


def _offset(tensor: torch.Tensor) -> torch.Tensor:
    """Dense, but one element into its storage: no wide load is aligned."""
    flat = torch.cat([tensor.new_full((1,), float("nan")), tensor.flatten()])
    return flat[1:].view(tensor.shape)


_INPUT_LAYOUTS = {
    "channels_last": _channels_last, "channels_last_input": _channels_last, "channel_slice": _channel_slice,
    "expanded": _expanded, "transposed": _transposed, "step": _step, "offset": _offset, "converted": _converted,
}  # fmt: skip
_WEIGHT_LAYOUTS = {
    "channels_last": _channels_last, "channels_last_weight": _channels_last, "expanded": _expanded,
    "transposed": _transposed, "step": _step, "offset": _offset, "converted": _converted,
    "converted_weight": _converted,
}  # fmt: skip

CASES = [
    Case("plain", "stride 1: a full correlation"),
    Case("no_bias", "nothing is added", bias=False),
    Case("kernel_1x1", "one tap, a matrix product", k=(1, 1)),
    Case("k2s2", "the commonest layer: kernel = stride, one tap per output", k=(2, 2), s=(2, 2)),
    Case("k4s2p1", "DCGAN and pix2pix: four taps per output, the border cut", k=(4, 4), s=(2, 2), p=(1, 1)),
    Case("k3s2p1op1", "CycleGAN: phases with different numbers of taps", k=(3, 3), s=(2, 2), p=(1, 1), op=(1, 1)),
    Case("k3s2", "phases of one and of two taps per dimension", k=(3, 3), s=(2, 2)),
    Case("k4s4", "a wide stride without overlap", k=(4, 4), s=(4, 4)),
    Case("input_1x1", "every output sees the one position", h=1, w=1, k=(4, 4), s=(2, 2), p=(1, 1)),
    Case("row", "one input row", h=1, w=9, k=(3, 5), s=(2, 1)),
    Case("column", "one input column", h=9, w=1, k=(5, 3), s=(1, 2)),
    Case("odd_sizes", "nothing divides a tile", n=3, c_in=5, c_out=7, h=7, w=11, k=(3, 5), s=(2, 3), p=(1, 2)),
    Case("asymmetric", "height and width differ in everything", h=4, w=7, k=(2, 5), s=(3, 1), p=(0, 2), d=(1, 2)),
    Case("wide_row", "a row longer than a tile", n=1, c_in=3, c_out=5, h=2, w=150, k=(3, 3)),
    Case("many_channels_out", "more output channels than a tile", n=1, c_in=3, c_out=70, h=3, w=4),
    Case("many_channels_in", "a sum that takes several stages", n=1, c_in=70, c_out=3, h=3, w=4, s=(2, 2)),
    Case("one_channel_each", "nothing to block", c_in=1, c_out=1),
    Case("few_channels_out", "an RGB output", c_in=16, c_out=3, k=(4, 4), s=(2, 2), p=(1, 1)),
    Case("batch_17", "a batch that divides nothing", n=17, h=3, w=3),
    Case("groups_2", "two blocks of channels", g=2, c_in=6, c_out=4, s=(2, 2)),
    Case("groups_uneven", "more channels out than in, per group", g=3, c_in=3, c_out=15, s=(2, 1)),
    Case("depthwise", "one channel per group", g=8, c_in=8, c_out=8, k=(4, 4), s=(2, 2), p=(1, 1)),
    Case("depthwise_k3s2", "rows of several strips", g=3, c_in=3, c_out=3, h=9, w=70, k=(3, 3), s=(2, 2), p=(2, 1)),
    Case("depthwise_k2s2", "one tap per output", g=4, c_in=4, c_out=4, h=9, w=68, k=(2, 2), s=(2, 2), op=(1, 0)),
    Case("depthwise_nhwc", "channels as vectors", layout="channels_last",
         g=8, c_in=8, c_out=8, h=9, w=37, k=(4, 4), s=(2, 2), p=(1, 1)),
    Case("depthwise_k3s1", "no stride", layout="channels_last", g=12, c_in=12, c_out=12, h=9, w=37, k=(3, 3), p=(1, 1)),
    Case("depthwise_blocks", "two blocks of channels", layout="channels_last",
         g=136, c_in=136, c_out=136, h=5, w=6, k=(3, 3), s=(2, 2), p=(1, 1)),
    Case("depthwise_k2s2_nhwc", "one tap per output", layout="channels_last",
         g=4, c_in=4, c_out=4, h=9, w=5, k=(2, 2), s=(2, 2)),
    Case("depthwise_nhwc_unaligned", "channels between vectors", layout="channel_slice",
         g=8, c_in=8, c_out=8, h=9, w=37, k=(4, 4), s=(2, 2), p=(1, 1)),
    *[
        Case(f"depthwise_nhwc_chunks_k{k}s{s}", "enough images for long chunks of rows", layout="channels_last", n=88,
             g=4, c_in=4, c_out=4, h=31, w=9, k=(k, k), s=(s, s), p=(p, p), bias=False)
        for k, s, p in ((4, 2, 1), (3, 2, 1), (2, 2, 0), (3, 1, 1))
    ],
    Case("depthwise_multiplier", "one channel in, two out, per group", g=4, c_in=4, c_out=8, s=(2, 2)),
    Case("dilation", "taps apart", d=(2, 3)),
    Case("dilation_stride_coprime", "every phase gets its taps in another order", s=(3, 2), d=(2, 3)),
    Case("gcd_2", "gcd(stride, dilation) = 2: half of the phases are empty", s=(2, 4), d=(2, 2)),
    Case("gcd_stride", "dilation a multiple of the stride: one phase has all taps", s=(2, 2), d=(4, 2)),
    Case("kernel_below_stride", "phases without a tap are bias alone", k=(2, 1), s=(3, 4)),
    Case("kernel_below_stride_no_bias", "phases without a tap are zero", k=(1, 2), s=(4, 3), bias=False),
    Case("kb75", "grouped, asymmetric, dilated", c_in=8, c_out=16, k=(3, 5), s=(2, 3), p=(1, 2), g=4, d=(2, 1)),
    Case("kb81", "stride 5, dilation 2: 16 of 25 phases are empty", k=(3, 3), s=(5, 5), p=(1, 1), d=(2, 2)),
    Case("output_padding", "outputs beyond the last tap", s=(3, 3), op=(2, 1)),
    Case("output_padding_reaches_stride", "legal below the dilation", d=(3, 3), op=(2, 1)),
    Case("output_padding_over_stride", "larger than the stride, with phases", s=(2, 2), d=(4, 3), op=(3, 2)),
    Case("padding_over_kernel", "whole input rows reach nothing", h=9, w=9, k=(2, 3), p=(3, 4)),
    Case("padding_and_stride", "the first output is in the middle of a phase", h=6, w=6, s=(3, 2), p=(4, 3)),
    Case("output_1x1", "all taps and all positions in one output", h=3, w=3, k=(3, 3), p=(2, 2)),
    Case("kernel_over_input", "a kernel larger than the input", h=2, w=3, k=(7, 9), s=(2, 2), p=(3, 4)),
    Case("kernel_16_stride_8", "FCN-8s: 64 phases", n=1, c_in=3, c_out=3, k=(16, 16), s=(8, 8), p=(4, 4)),
    Case("fsrcnn", "one output channel, stride 3", n=1, c_in=8, c_out=1, k=(9, 9), s=(3, 3), p=(4, 4), op=(2, 2)),
    Case("channels_last", "NHWC input, weight and output", layout="channels_last", k=(4, 4), s=(2, 2), p=(1, 1)),
    Case("channels_last_input", "only the input is NHWC", layout="channels_last_input", s=(2, 2)),
    Case("channels_last_weight", "only the weight is NHWC", layout="channels_last_weight", s=(2, 2)),
    Case("channels_last_op", "output_padding reaches the stride", layout="channels_last", d=(2, 2), op=(1, 1)),
    Case("channels_last_groups", "NHWC with groups", layout="channels_last", g=2, s=(2, 2), p=(1, 1)),
    Case("channels_last_groups_of_6", "groups begin within vectors", layout="channels_last", g=2, c_out=12, s=(2, 2)),
    Case("channel_slice", "channels of a wider NHWC tensor, NaN beside them", layout="channel_slice", s=(2, 2)),
    Case("expanded", "stride 0 along the channels", layout="expanded", s=(2, 2), p=(1, 1)),
    Case("transposed", "H and W exchanged in memory", layout="transposed", k=(3, 2), s=(1, 2)),
    Case("one_channel_converted", "one channel out: the result is channels_last, its channels' stride is 1",
         layout="converted_weight", c_out=1, k=(8, 8), s=(8, 8)),
    Case("step", "every second column, NaN between", layout="step", s=(2, 2)),
    Case("offset", "tensors that start one element into their storage", layout="offset", k=(4, 4), s=(2, 2), p=(1, 1)),
]  # fmt: skip

# Problems for compiled loops alone: they make the kernels split a stage's taps, a tile's phases, or go over
# several tiles and many stages.
STAGED_CASES = [
    Case("many_taps", "a stage holds some tap rows", n=1, c_in=2, c_out=3, h=3, w=3, k=(64, 64), bias=False),
    Case("wide_kernel", "a stage holds part of a tap row", n=1, c_in=2, c_out=3, h=2, w=5, k=(3, 1500)),
    Case("tall_kernel", "and many of its rows", n=1, c_in=2, c_out=3, h=5, w=2, k=(2000, 3), s=(2, 1)),
    Case("wide_stride", "a tile owns some of 64 W phases", n=1, c_in=3, c_out=9, h=2, w=40, k=(2, 70), s=(1, 64)),
    Case("fcn8s", "kernel 16, stride 8: three stages", n=1, c_in=5, c_out=3, h=16, w=16, k=(16, 16), s=(8, 8)),
    Case("many_tiles", "several tiles along everything", n=3, c_in=20, c_out=130, h=20, w=70, p=(1, 1)),
    Case("many_tiles_s2", "and with phases", n=3, c_in=20, c_out=70, h=20, w=70, k=(4, 4), s=(2, 2), p=(1, 1)),
    Case("many_stages", "many chunks of channels", n=1, c_in=300, c_out=10, h=6, w=7, k=(3, 3), s=(2, 2), p=(1, 1)),
    Case("outer_products", "runs of odd channels, several tiles and splits", c_in=10, c_out=3, h=9, w=37, k=(4, 4),
         s=(2, 2), p=(1, 1), layout="channels_last"),
    Case("outer_products_one", "one channel out, rows apart", c_in=70, c_out=1, h=7, w=70, k=(3, 9), s=(5, 3), p=(1, 4),
         layout="channels_last"),
    Case("outer_products_blocks", "blocks of channels, tap rows and columns; taps apart", c_in=136, c_out=72, h=6,
         w=11, k=(3, 3), s=(1, 2), p=(1, 1), d=(2, 3), layout="channels_last"),
    Case("vector_rows", "rows and weights that are whole vectors", c_in=16, c_out=64, h=8, w=32, p=(1, 1)),
    Case("patches", "kernel = stride, several tiles of channels and positions, weights that do not stay", n=3, c_in=300,
         c_out=130, h=10, w=22, k=(2, 2), s=(2, 2)),
    Case("patches_nhwc", "the same in channels_last", n=3, c_in=300, c_out=200, h=5, w=22, k=(2, 2), s=(2, 2),
         layout="channels_last"),
    Case("patches_rows", "tiles of whole rows of 14 positions, from image to image", n=7, c_in=72, c_out=40, h=14, w=14,
         k=(2, 2), s=(2, 2)),
    Case("patches_rows_odd", "whole rows, of which a warpgroup has an even number", n=2, c_in=40, c_out=24, h=9,
         w=7, k=(2, 2), s=(2, 2)),
    Case("patches_rows_between", "rows that nearly fill a warpgroup's positions, and end between vectors", n=2, c_in=24,
         c_out=20, h=4, w=62, k=(2, 2), s=(2, 2)),
    Case("patches_many", "more tiles than SMs, two blocks an SM", n=1, c_in=16, c_out=16, h=34, w=34, g=8, k=(2, 2),
         s=(2, 2)),
    Case("patches_turns", "warpgroups that multiply and store in turn, several tiles for each", n=24, c_in=256,
         c_out=128, h=14, w=14, g=16, k=(2, 2), s=(2, 2)),
    Case("patches_odd", "rows end between two neighbours", c_in=40, c_out=20, h=9, w=13, k=(2, 2), s=(2, 2)),
    Case("patches_wide", "patches of several vectors, odd width", c_in=24, c_out=70, h=4, w=7, k=(3, 8), s=(3, 8)),
    Case("patches_wide_even", "several vectors, two of which are no neighbours", c_in=24, c_out=70, h=4, w=10,
         k=(4, 8), s=(4, 8)),
    Case("patches_tall", "several rows of patches, groups", c_in=72, c_out=24, h=6, w=10, g=2, k=(4, 2), s=(4, 2)),
    Case("patches_parts", "gathered by several blocks of a cluster each, several of them", n=1, c_in=260, c_out=72,
         h=13, w=17, k=(4, 4), s=(4, 4)),
    Case("patches_unaligned", "tensors one element into their storage", c_in=16, c_out=8, h=8, w=16, k=(2, 2),
         s=(2, 2), layout="offset"),
    Case("patches_quads_unaligned", "the same with four columns", c_in=16, c_out=8, h=8, w=9, k=(2, 4), s=(2, 4),
         layout="offset", bias=False),
    Case("patches_direct", "weights as they are, the last tile of columns half empty", n=3, c_in=72, c_out=80, h=5,
         w=13, k=(2, 2), s=(2, 2)),
    Case("patches_direct_even", "the same, two positions read at once and several stored", n=2, c_in=70, c_out=48, h=9,
         w=16, k=(2, 2), s=(2, 2)),
    Case("patches_direct_one", "one channel out: the weight's format makes the result channels_last", n=1, c_in=64,
         c_out=1, h=22, w=22, k=(16, 16), s=(16, 16), layout="converted_weight"),
    Case("patches_direct_one_8", "the same, two images", c_in=64, c_out=1, h=11, w=14, k=(8, 8), s=(8, 8),
         layout="converted_weight"),
    Case("patches_direct_wide", "quads of a row, from image to image", n=2, c_in=40, c_out=36, h=7, w=9, k=(4, 4),
         s=(4, 4)),
    Case("patches_runs", "runs of grad_output from image to image, the last tile of channels half empty", n=3, c_in=150,
         c_out=80, h=5, w=14, k=(2, 2), s=(2, 2)),
    Case("patches_runs_wide", "the same of four columns, several blocks of a cluster for a tile", n=2, c_in=70,
         c_out=32, h=7, w=9, k=(4, 4), s=(4, 4)),
    Case("patches_slice", "patches of channels of a wider NHWC tensor", c_in=40, c_out=72, h=7, w=9, k=(2, 2), s=(2, 2),
         layout="channel_slice"),
    Case("patches_expanded", "every channel the same memory", c_in=40, c_out=12, h=8, w=8, k=(4, 4), s=(4, 4),
         layout="expanded"),
    Case("doubled", "small images, several in a tile", n=9, c_in=40, c_out=72, h=4, w=4, k=(4, 4), s=(2, 2), p=(1, 1)),
    Case("doubled_rows", "tiles end within rows, few enough for several blocks each", n=2, c_in=70, c_out=140, h=13,
         w=24, k=(4, 4), s=(2, 2), p=(1, 1)),
    Case("doubled_strips", "images wider than a tile", n=1, c_in=16, c_out=24, h=9, w=136, k=(4, 4), s=(2, 2),
         p=(1, 1)),
    Case("doubled_groups", "groups of whole stages", c_in=64, c_out=96, h=8, w=16, g=2, k=(4, 4), s=(2, 2), p=(1, 1)),
    Case("doubled_k3", "the same with phases of different numbers of taps", n=2, c_in=70, c_out=140, h=13, w=24,
         k=(3, 3), s=(2, 2), p=(1, 1), op=(1, 1)),
    Case("doubled_k3_groups", "and small images", n=9, c_in=64, c_out=96, h=4, w=8, g=2, k=(3, 3), s=(2, 2), p=(1, 1),
         op=(1, 1)),
    Case("doubled_unaligned", "tensors one element into their storage", n=5, c_in=24, c_out=12, h=8, w=8, k=(4, 4),
         s=(2, 2), p=(1, 1), layout="offset"),
    Case("windows", "no stride, several tiles along everything, rows of whole vectors", c_in=20, c_out=72, h=13, w=200,
         p=(1, 1)),
    Case("windows_k5", "the same with five columns of taps, no padding of rows", c_in=40, c_out=33, h=9, w=72, k=(3, 5),
         p=(0, 2)),
    Case("windows_k7", "with seven", c_in=16, c_out=40, h=6, w=48, k=(3, 7), p=(1, 3)),
    Case("windows_odd", "rows of the result begin anywhere in a sector", c_in=24, c_out=8, h=5, w=136, k=(3, 7),
         p=(2, 0), bias=False),
    Case("windows_groups", "groups of whole stages", c_in=32, c_out=96, h=17, w=64, g=2, p=(0, 1)),
    Case("windows_between", "rows of the source begin between 16 bytes, channels of half precision too", c_in=24,
         c_out=40, h=14, w=130, p=(1, 1)),
    Case("windows_between_k5", "anywhere in 16 bytes", c_in=16, c_out=36, h=8, w=131, k=(3, 5), p=(0, 2), bias=False),
    Case("windows_between_k7", "in groups", c_in=32, c_out=32, h=12, w=62, g=2, k=(3, 7), p=(2, 1)),
    Case("windows_between_k7_odd", "both, in a tile's last rows", c_in=20, c_out=20, h=12, w=45, k=(3, 7), p=(1, 2)),
    Case("windows_unaligned", "tensors one element into their storage", c_in=16, c_out=24, h=6, w=64, layout="offset"),
    Case("nhwc", "channels_last, boxes of the source, several tiles of channels", n=3, c_in=160, c_out=136, h=5, w=13,
         k=(4, 4), s=(2, 2), p=(1, 1), layout="channels_last"),
    Case("nhwc_whole", "the same with stages that divide a tap's channels", n=3, c_in=160, c_out=64, h=7, w=10,
         k=(3, 2), s=(2, 1), p=(1, 0), layout="channels_last"),
    Case("nhwc_rows", "without stride, several tiles along everything", c_in=24, c_out=72, h=19, w=70, p=(1, 1),
         layout="channels_last"),
    Case("nhwc_gaps", "phases without taps, residues that no tap reads", c_in=16, c_out=24, h=7, w=20, k=(3, 2),
         s=(5, 3), p=(2, 1), d=(2, 3), layout="channels_last"),
    Case("many_weights", "slabs of more than 2^17 weights, of which a thread adds four, and whose taps are turned", n=1,
         c_in=160, c_out=132, h=4, w=16, p=(1, 1)),
    Case("many_weights_patches", "the same where a kernel is its stride, whose slabs lie as the weight does", n=1,
         c_in=256, c_out=192, h=4, w=16, k=(2, 2), s=(2, 2)),
    Case("few_out", "few channels out, several tiles along everything, rows of whole vectors", c_in=40, c_out=2, h=11,
         w=136, k=(4, 5), s=(2, 3), p=(1, 2)),
    Case("few_out_k9", "one channel out, three rows of positions at once", n=1, c_in=56, c_out=1, h=9, w=72, k=(9, 9),
         s=(3, 3), p=(4, 4), op=(2, 2)),
    Case("few_out_images", "narrow images beside each other", n=5, c_in=24, c_out=3, h=7, w=16, k=(4, 4), s=(2, 2),
         p=(1, 1)),
    Case("few_out_chunks", "channels in several stages, phases of different numbers of taps", c_in=300, c_out=3, h=6,
         w=24, k=(3, 3), s=(2, 2), p=(1, 1), op=(1, 1), bias=False),
    Case("few_out_five", "forty columns of sums", c_in=24, c_out=5, h=7, w=72, k=(4, 4), s=(2, 2), p=(1, 1)),
    Case("few_out_nhwc", "pixels with all channels, tiles that end within images", n=3, c_in=40, c_out=3, h=11, w=26,
         k=(4, 4), s=(2, 2), p=(1, 1), layout="channels_last"),
    Case("few_out_nhwc_k9", "the same with three rows of positions at once", n=1, c_in=56, c_out=1, h=9, w=72, k=(9, 9),
         s=(3, 3), p=(4, 4), op=(2, 2), layout="channels_last"),
    Case("few_out_nhwc_five", "with forty columns of sums", c_in=104, c_out=5, h=7, w=33, k=(4, 4), s=(2, 2), p=(1, 1),
         layout="channels_last"),
    Case("few_out_converted", "one channel, whose stride is 1", n=1, c_in=56, c_out=1, h=9, w=72, k=(9, 9), s=(3, 3),
         p=(4, 4), op=(2, 2), layout="converted"),
    Case("depthwise_converted", "one channel a group, whose stride is 1", layout="converted", g=8, c_in=8, c_out=8, h=9,
         w=37, k=(4, 4), s=(2, 2), p=(1, 1)),
    Case("few_out_gaps", "phases without taps along both axes", c_in=16, c_out=2, h=6, w=80, k=(2, 3), s=(3, 4),
         p=(0, 3), d=(1, 2)),
    Case("few_out_unaligned", "tensors one element into their storage", c_in=16, c_out=3, h=6, w=32, k=(4, 4),
         s=(2, 2), p=(1, 1), layout="offset"),
    Case("fcn8s_channels", "64 phases, several stages and several blocks of channels", n=2, c_in=21, c_out=30, h=5,
         w=72, k=(16, 16), s=(8, 8), p=(3, 4)),
    Case("groups_of_16", "several groups of several tiles", c_in=48, c_out=96, h=6, w=20, g=3, s=(2, 3), d=(2, 1)),
]  # fmt: skip

# Three-dimensional problems, for tests that name them.
VOLUMES = [
    Case("volume", "other lengths, strides and paddings along each axis", depth=3, k=(3, 2, 4), s=(2, 1, 2),
         p=(1, 0, 1), op=(1, 0, 0), d=(1, 1, 1)),
    Case("volume_last", "the same in channels_last_3d, with groups", depth=3, k=(3, 2, 4), s=(2, 1, 2), p=(1, 0, 1),
         op=(1, 0, 0), d=(1, 1, 1), g=2, layout="channels_last"),
    Case("volume_k2s2", "kernel = stride, without a bias", depth=3, k=(2, 2, 2), s=(2, 2, 2), p=(0, 0, 0),
         op=(0, 0, 0), d=(1, 1, 1), bias=False),
]  # fmt: skip


def named(name: str) -> Case:
    """The case of that name."""
    return next(case for case in (*CASES, *STAGED_CASES, *VOLUMES) if case.name == name)


def each_case(*names: str):
    """Parametrize a test by `case`: by those named, or by all."""
    chosen = [named(name) for name in names] or CASES
    return pytest.mark.parametrize("case", chosen, ids=[case.name for case in chosen])

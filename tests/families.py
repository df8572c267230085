"""The kernel families on tensor cores, and random problems for each of them.

A family is a set of instances of an engine in one direction. It draws problems from its range in kernels/README.md
until the planner offers a plan of the family, so every drawn problem is legal. Called by the GPU tests, and by a CPU
test that tries every family with only the planner. Independent of pytest.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from random import Random
from typing import Any

from cases import LAYOUTS, Case
from raw_ops import TENSOR_CORE_CLASSES, Call, GradientCall

MOST_PRODUCTS = 30_000_000  # the limit of one problem, for the float64 sums on the CPU
MOST_ELEMENTS = 1_000_000  # the limit of input, weight or result
MOST_DRAWS = 400

ALL = tuple(TENSOR_CORE_CLASSES)
HALF_AND_TF32 = ("tf32", "f16", "bf16")

# Layouts of an input. The dense ones come more often: kernels that read anything else are fewer.
NCHW = ("contiguous", "contiguous", "contiguous", "expanded")
NHWC = ("channels_last", "channels_last", "channels_last", "channel_slice")

CHANNELS = (1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 24, 31, 32, 33, 40, 48, 64, 70, 96, 100, 128, 130, 160, 256)
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 12, 14, 16, 17, 20, 24, 28, 32, 33, 40, 56, 64, 80, 100, 130)


@dataclasses.dataclass(frozen=True)
class Family:
    """A family and its draws.

    Args:
        kernels: matches the names of its instances.
        draw: returns a case without a layout; its second argument is the number of elements in 16 bytes.
        formats: formats of the result and of grad_output; True is channels_last.
        layouts: layouts of the input; if empty, those of the format.
    """

    name: str
    direction: str
    kernels: str
    classes: tuple[str, ...]
    draw: Callable[[Random, int], Case]
    formats: tuple[bool, ...] = (False, True)
    layouts: tuple[str, ...] = ()

    def has(self, plan: dict[str, Any]) -> bool:
        return re.fullmatch(self.kernels, plan["kernel"]) is not None

    def problem(self, rng: Random, kind: str, device: str = "cuda", planned_for: list[int] | None = None):
        """Returns a random call with a plan of the family, and the plan's name. `planned_for`: plan for another GPU.

        Raises:
            AssertionError: many draws had no such plan.
        """
        for _ in range(MOST_DRAWS):
            case = self.draw(rng, 4 if kind.startswith("tf32") else 8)
            if not _is_small(case):
                continue
            call, words = self._call(rng, case, kind, device)
            if any(self.has(plan) for plan in call.candidates(planned_for)):
                return call, words
        raise AssertionError(f"of {MOST_DRAWS} random problems {self.name} serves none in {kind}")

    def _call(self, rng: Random, case: Case, kind: str, device: str) -> tuple[Call | GradientCall, str]:
        dtype, precision = TENSOR_CORE_CLASSES[kind]
        channels_last, seed = rng.choice(self.formats), rng.randrange(2**31)
        layout = rng.choice(self.layouts or (NHWC if channels_last else NCHW))
        of_weight = rng.choice(("contiguous", "contiguous", *LAYOUTS))
        call = Call.of(dataclasses.replace(case, layout=layout), dtype, precision, channels_last, device, seed)
        weight = dataclasses.replace(case, layout=of_weight).tensors(dtype, device=device, seed=seed)[1]
        call = call.replace(weight=weight)
        words = (
            f"{self.name}, {kind}: {case}, input {layout}, weight {of_weight}, channels_last {channels_last}, "
            f"values of seed {seed}"
        )
        if self.direction == "forward":
            return call, words
        gradient = GradientCall.of(self.direction, call.replace(bias=None), seed)
        return gradient.in_layout(channels_last), words


def _is_small(case: Case) -> bool:
    n, c_out, oh, ow = case.output_size
    taps = case.k[0] * case.k[1]
    elements = (case.n * case.c_in * case.h * case.w, n * c_out * oh * ow, case.c_in * c_out // case.g * taps)
    products = elements[0] * c_out // case.g * taps
    return min(oh, ow) > 0 and max(elements) <= MOST_ELEMENTS and products <= MOST_PRODUCTS


def _channels(rng: Random, most: int = 256, multiple: int = 1) -> int:
    """Draws a number of channels; often a power of two or a multiple, sometimes one more or less."""
    return max(1, -(-min(rng.choice(CHANNELS), most) // multiple)) * multiple


def _case(rng: Random, **fields: Any) -> Case:
    """Draws a case with random batch, channels, sizes, groups and bias, unless `fields` sets them."""
    groups = fields.pop("g", None) or rng.choice((1, 1, 1, 2, 3))
    c_in, c_out = (fields.pop(name, None) or _channels(rng) for name in ("c_in", "c_out"))
    drawn = {
        "n": rng.choice((1, 1, 2, 3, 5, 9)), "h": rng.choice(SIZES), "w": rng.choice(SIZES), "bias": rng.random() < 0.5,
    }  # fmt: skip
    return Case("random", "", g=groups, c_in=groups * c_in, c_out=groups * c_out, **{**drawn, **fields})


def _output_padding(rng: Random, stride: int, dilation: int) -> int:
    return rng.choice((0, rng.randint(0, max(stride, dilation) - 1)))


def any_case(rng: Random, most_kernel: int = 7, most_stride: int = 4, most_channels: int = 256, **fields: Any) -> Case:
    """Draws kernel, stride, padding, output padding and dilation."""
    kernel = (rng.randint(1, most_kernel), rng.randint(1, most_kernel))
    stride = (rng.randint(1, most_stride), rng.randint(1, most_stride))
    dilation = (rng.choice((1, 1, 1, 2, 3)), rng.choice((1, 1, 1, 2, 3)))
    drawn = {
        "k": kernel, "s": stride, "d": dilation, "p": tuple(rng.randint(0, one) for one in kernel),
        "op": tuple(_output_padding(rng, *pair) for pair in zip(stride, dilation, strict=True)),
        "c_in": _channels(rng, most_channels), "c_out": _channels(rng, most_channels),
    }  # fmt: skip
    return _case(rng, **{**drawn, **fields})


def _flat(rng: Random, vector: int) -> Case:
    stride = (rng.randint(1, 4), rng.choice((1, 1, 2, 4)))
    return any_case(rng, s=stride, d=(1, 1), op=tuple(rng.randint(0, one - 1) for one in stride))


def _patch(rng: Random, vector: int) -> Case:
    return rng.choice((_patch_pairs, _patch_quads))(rng, vector)


def _patch_pairs(rng: Random, vector: int) -> Case:
    kernel = rng.choice(((2, 2), (2, 2), (4, 2), (6, 2)))
    return _case(rng, k=kernel, s=kernel)


def _patch_quads(rng: Random, vector: int) -> Case:
    kernel = (rng.randint(1, 8), 4 * rng.randint(1, 4))
    return _case(rng, k=kernel, s=kernel)


def _patch_matrix(rng: Random, vector: int) -> Case:
    """Whole images one after another, without groups."""
    kernel = rng.choice(((2, 2), (2, 2), (4, 4), (8, 8), (16, 16)))
    return _case(rng, k=kernel, s=kernel, g=1)


def _doubled(rng: Random, vector: int) -> Case:
    kernel = rng.choice((3, 4))
    fields = {"k": (kernel, kernel), "s": (2, 2), "p": (1, 1), "op": (4 - kernel, 4 - kernel)}
    groups = rng.choice((1, 1, 2, 3))
    multiple = 1 if groups == 1 else 2 * vector
    channels = {name: _channels(rng, multiple=multiple) for name in ("c_in", "c_out")}
    return _case(rng, w=4 * rng.randint(1, 35), g=groups, **fields, **channels)


def _window(rng: Random, vector: int) -> Case:
    groups = rng.choice((1, 1, 2, 3))
    multiple = 1 if groups == 1 else 2 * vector
    channels = {name: _channels(rng, multiple=multiple) for name in ("c_in", "c_out")}
    kernel_w = rng.choice((3, 5, 7))
    padding = (rng.randint(0, 2), rng.randint(0, kernel_w - 1))
    width = rng.choice((rng.choice(SIZES), vector * rng.randint(1, 20)))
    return _case(rng, k=(3, kernel_w), p=padding, w=width, g=groups, **channels)


def _nhwc(rng: Random, vector: int) -> Case:
    """Every second source is channels_last: channels of a group are whole vectors."""
    multiple = rng.choice((1, vector))
    channels = {name: _channels(rng, multiple=multiple) for name in ("c_in", "c_out")}
    return any_case(rng, **channels)


def _mma(rng: Random, vector: int) -> Case:
    return any_case(rng, most_kernel=9, most_stride=6, most_channels=128)


def _mma_pairs(rng: Random, vector: int) -> Case:
    c_in = _channels(rng, 128)
    return any_case(rng, most_kernel=9, most_stride=6, c_in=c_in, c_out=_channels(rng, min(128, 2048 // c_in)))


def _correlate(rng: Random, vector: int) -> Case:
    """Every second input has rows of whole vectors; grad_output too, if an output padding allows it."""
    kernel = (rng.randint(1, 5), rng.randint(1, 7))
    stride, dilation = (rng.randint(1, 3), rng.randint(1, 3)), (rng.choice((1, 1, 2)), rng.choice((1, 1, 1, 2)))
    padding = (rng.randint(0, kernel[0]), rng.choice((0, rng.randint(0, kernel[1]))))
    width = rng.choice((vector * rng.randint(1, 12), rng.randint(1, 70)))
    out = (width - 1) * stride[1] - 2 * padding[1] + dilation[1] * (kernel[1] - 1) + 1
    output_padding = (0, min(-out % vector, max(stride[1], dilation[1]) - 1))
    return _case(rng, k=kernel, s=stride, d=dilation, p=padding, op=output_padding, w=width)


def _correlate_pixels(rng: Random, vector: int) -> Case:
    """Strides and dilations with one box per tap, and with one box for all taps."""
    kernel, stride = (rng.randint(1, 5), rng.randint(1, 7)), (rng.randint(1, 4), rng.randint(1, 8))
    dilation = (rng.choice((1, 1, 2)), rng.choice((1, 1, 2, 3, 4)))
    padding = (rng.randint(0, kernel[0]), rng.randint(0, kernel[1]))
    return _case(rng, k=kernel, s=stride, d=dilation, p=padding)


def _mma_weight(rng: Random, vector: int) -> Case:
    return any_case(rng)


def _scatter(rng: Random, vector: int) -> Case:
    c_out, kernel_w = rng.choice((1, 1, 2, 3, 4, 5)), rng.randint(1, 9)
    stride = (rng.randint(1, 4), rng.randint(1, 4))
    kernel = (rng.randint(1, 3 * stride[0]), kernel_w)
    dilation = (1, rng.choice((1, 1, 2)))
    padding = (rng.randint(0, kernel[0]), rng.randint(0, kernel[1]))
    output_padding = tuple(_output_padding(rng, *pair) for pair in zip(stride, dilation, strict=True))
    width, c_in = vector * rng.randint(1, 18), _channels(rng, multiple=vector)
    return _case(rng, k=kernel, s=stride, p=padding, op=output_padding, d=dilation, g=1, w=width, c_in=c_in,
                 c_out=c_out)  # fmt: skip


FAMILIES = (
    Family("flat", "forward", r"flat_\w+", HALF_AND_TF32, _flat, layouts=LAYOUTS),
    Family("flat_dx", "grad_input", r"flat_\w+", HALF_AND_TF32, _flat),
    Family("patch", "forward", r"patch_\w+_pairs_\w+", ALL, _patch_pairs, (False,)),
    Family("patch_quads", "forward", r"patch_\w+_quads_\w+", ALL, _patch_quads, (False,)),
    Family("patch_channels", "forward", r"patch_\w+_channels_\w+", ALL, _patch, (True,)),
    Family("patch_direct", "forward", r"patch_\w+_direct_\d", HALF_AND_TF32, _patch_matrix, (False,)),
    Family("patch_dx", "grad_input", r"patch_\w+_gather_\dx\d", ALL, _patch_pairs, (False,)),
    Family("patch_runs_dx", "grad_input", r"patch_\w+_gather_runs_\d+", HALF_AND_TF32, _patch_matrix, (False,)),
    Family("strided", "forward", r"strided_\w+?_output_\w+", ALL, _doubled, (False,)),
    Family("strided_split", "forward", r"strided_\w+?_split_\w+", HALF_AND_TF32, _doubled, (False,)),
    Family("strided_dx", "grad_input", r"strided_\w+?_gather_\w+", ALL, _doubled, (False,)),
    Family("window", "forward", r"window_\w+", ALL, _window, (False,)),
    Family("window_dx", "grad_input", r"window_\w+", ALL, _window, (False,)),
    Family("nhwc", "forward", r"nhwc_\w+", ALL, _nhwc),
    Family("nhwc_dx", "grad_input", r"nhwc_\w+", ALL, _nhwc),
    Family("mma_rows", "forward", r"mma_\w+_rows_\w+", HALF_AND_TF32, _mma, (False,)),
    Family("mma_dx", "grad_input", r"mma_\w+_grad_input_\w+", ALL, _mma_pairs),
    Family(
        "correlate_dw", "grad_weight", r"correlate_[a-z0-9]+_(stride2_)?\dx\w+", HALF_AND_TF32, _correlate, (False,)
    ),
    Family("correlate_pixels_dw", "grad_weight", r"correlate_\w+?_pixels_\w+", HALF_AND_TF32, _correlate_pixels),
    Family("mma_dw", "grad_weight", r"mma_\w+?_grad_weight_\d\w+", HALF_AND_TF32, _mma_weight, (False,)),
    Family("mma_pixels_dw", "grad_weight", r"mma_\w+?_grad_weight_pixels_\w+", HALF_AND_TF32, _mma_weight, (True,)),
    Family("scatter", "forward", r"scatter_[a-z0-9]+_\dx\d+", ALL, _scatter, (False,)),
    Family("scatter_pixels", "forward", r"scatter_\w+_pixels_\w+", ALL, _scatter, (True,)),
    Family(
        "portable", "forward", r"portable_\w+?_\d+x\d+", HALF_AND_TF32, lambda rng, _: any_case(rng), layouts=LAYOUTS
    ),
    Family("portable_dx", "grad_input", r"portable_\w+?_\d+x\d+", HALF_AND_TF32, lambda rng, _: any_case(rng)),
    Family("portable_dw", "grad_weight", r"portable_\w+_weight_\d+", HALF_AND_TF32, lambda rng, _: any_case(rng)),
)


def family_of(kernel: str, direction: str) -> Family:
    """The family of an instance in that direction."""
    found = [family for family in FAMILIES if family.direction == direction and family.has({"kernel": kernel})]
    if len(found) != 1:
        raise ValueError(f"{kernel} must be of one family in direction {direction}, and is of {len(found)}")
    return found[0]

"""Problems of more than 2^31 elements, at least one for every kernel family and direction that supports them.

tests/plan/test_plan_large.py lists the families that reject them, with the guard, and checks that the planner offers
each of these problems; gpu/test_large_families.py runs them. Independent of pytest.
"""

from __future__ import annotations

import dataclasses
import re
from math import prod
from typing import Any

import torch
from cases import Case
from raw_ops import CLASSES, TENSOR_CORE_CLASSES

LIMIT = 2**31
KINDS = {**CLASSES, **TENSOR_CORE_CLASSES}


@dataclasses.dataclass(frozen=True)
class Large:
    """A problem for some kernels.

    Args:
        kernels: matches their names.
        over: the tensors of more than 2^31 elements, of x, w and y.
        kind: a class of raw_ops.py.
    """

    name: str
    kernels: str
    direction: str
    over: str
    kind: str
    case: Case
    channels_last: bool = False

    @property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        case = self.case
        return {
            "x": (case.n, case.c_in, case.h, case.w),
            "w": (case.c_in, case.c_out // case.g, *case.k),
            "y": case.output_size,
        }

    @property
    def dtype(self) -> torch.dtype:
        return KINDS[self.kind][0]

    @property
    def num_bytes(self) -> int:
        return sum(prod(size) for size in self.sizes.values()) * self.dtype.itemsize

    def is_over(self, name: str) -> bool:
        return prod(self.sizes[name]) > LIMIT

    def number(self, plans: list[dict[str, Any]]) -> int:
        """Returns the number of the first candidate that is one of the kernels."""
        return next(number for number, plan in enumerate(plans) if re.fullmatch(self.kernels, plan["kernel"]))


def layer(n, c_in, c_out, size, kernel, stride=1, padding=0, output_padding=0, groups=1) -> Case:
    """A case without bias; each of the pairs may be one int."""
    pairs = [(v, v) if isinstance(v, int) else v for v in (size, kernel, stride, padding, output_padding)]
    (h, w), k, s, p, op = pairs
    return Case("large", "", n=n, c_in=c_in, c_out=c_out, h=h, w=w, k=k, s=s, p=p, op=op, g=groups, bias=False)


FORWARD, DX, DW = "forward", "grad_input", "grad_weight"
SAME = layer(1, 1, 1, (33621568, 64), 3, 1, 1)  # input and output alike
DEPTHWISE = layer(1, 8, 8, (4202720, 64), 3, 1, 1, 0, 8)
POINTWISE = layer(1, 8, 8, (4202720, 64), 1)
LARGE_IMAGES = layer(5, 8, 8, (840544, 64), 1)
SMALL_IMAGES = layer(131336, 1, 1, 16, 16, 8, 4)
THREE_OUT = layer(1, 16, 3, (2101376, 64), 3, 1, 1)
PAIRS = layer(1, 128, 32, (262688, 64), 2, 2)
OCTETS = layer(1, 8, 8, (65696, 64), 8, 8)
DOUBLED = layer(1, 64, 128, (65696, 64), 4, 2, 1)
TWICE = layer(1, 1, 1, (8405408, 64), 2, 2)
FEW_ROWS = layer(1, 640, 8, 2048, 1)
MANY_WEIGHTS = layer(1, 23296, 5824, 4, 4, 2, 1)
MANY_GROUPS = layer(1, 33000 * 128, 33000 * 32, 2, 4, 2, 1, 0, 33000)

LARGE = (
    Large("simt", r"simt_ieee_\w+", FORWARD, "xy", "ieee_f16", SAME),
    Large("simt_weights", r"simt_ieee_\w+", FORWARD, "w", "ieee_f16", MANY_WEIGHTS),
    Large("simt_dx", r"simt_grad_input_\w+", DX, "xy", "ieee_f16", SAME),
    Large("simt_weights_dx", r"simt_grad_input_\w+", DX, "w", "ieee_f16", MANY_WEIGHTS),
    Large("simt_dw", r"simt_grad_weight_\w+", DW, "xy", "ieee_f16", POINTWISE),
    Large("simt_weights_dw", r"simt_grad_weight_\w+", DW, "w", "ieee_f16", MANY_WEIGHTS),
    Large("thin", r"thin_ieee_f16_\d+x\d+", FORWARD, "y", "ieee_f16", layer(1, 1, 1, (525360, 64), 16, 8, 4)),
    Large("thin_dx", r"thin_grad_input_f16_\d+x\d+", DX, "y", "ieee_f16", layer(1, 1, 1, (525360, 64), 16, 8, 4)),
    Large("thin_dw", r"thin_grad_weight_f16_\dx\dx\d", DW, "xy", "ieee_f16", SAME),
    Large("thin_outer_dw", r"thin_grad_weight_f32_outer_\w+", DW, "x", "ieee_f32", FEW_ROWS, True),
    Large("thin_depthwise", r"thin_ieee_f16_k2s2", FORWARD, "y", "ieee_f16", TWICE),
    Large("thin_depthwise_dx", r"thin_grad_input_f16_k2s2", DX, "y", "ieee_f16", TWICE),
    Large("thin_depthwise_dw", r"thin_grad_weight_f16_k2s2", DW, "y", "ieee_f16", TWICE),
    Large("thin_channels_last", r"thin_ieee_f16_k3s1_channels_last", FORWARD, "xy", "ieee_f16", DEPTHWISE, True),
    Large("thin_channels_last_dx", r"thin_grad_input_f16_k3s1_channels_last", DX, "xy", "ieee_f16", DEPTHWISE, True),
    Large("thin_channels_last_dw", r"thin_grad_weight_f16_k3s1_channels_last", DW, "xy", "ieee_f16", DEPTHWISE, True),
    Large("thin_direct", r"thin_ieee_f16_direct", FORWARD, "x", "ieee_f16", layer(2100, 1, 1, 1024, 1, 1, 511)),
    Large("thin_direct_dx", r"thin_grad_input_f16_direct", DX, "y", "ieee_f16", layer(9, 1, 1, 512, 1, 32)),
    Large("thin_gather", r"thin_ieee_f32_gather_\w+", FORWARD, "w", "ieee_f32", MANY_GROUPS),
    Large("thin_gather_dx", r"thin_grad_input_f32_gather_\w+", DX, "w", "ieee_f32", MANY_GROUPS),
    Large("flat", r"flat_f16_\w+", FORWARD, "y", "f16", layer(1, 8, 192, (1536, 2048), 2, 2)),
    Large("flat_dx", r"flat_f16_\w+", DX, "x", "f16", FEW_ROWS),
    Large("patch", r"patch_f16_pairs_\w+", FORWARD, "xy", "f16", PAIRS),
    Large("patch_weights", r"patch_f16_pairs_\w+", FORWARD, "w", "f16", layer(1, 46592, 11648, 4, 2, 2)),
    Large("patch_quads", r"patch_f16_quads_\w+", FORWARD, "y", "f16", OCTETS),
    Large("patch_channels", r"patch_f16_channels_\w+", FORWARD, "y", "f16", OCTETS, True),
    Large("patch_dx", r"patch_f16_gather_\dx\d", DX, "xy", "f16", PAIRS),
    Large("patch_runs_dx", r"patch_f16_gather_runs_\d+", DX, "y", "f16", layer(4, 64, 32832, 64, 2, 2)),
    Large("correlate_dw", r"correlate_f16_\w+", DW, "xy", "f16", SAME),
    Large("strided", r"strided_f16_output_\w+", FORWARD, "y", "f16", DOUBLED),
    Large("strided_weights", r"strided_f16_output_\w+", FORWARD, "w", "f16", MANY_WEIGHTS),
    Large("strided_split", r"strided_f16_split_\w+", FORWARD, "x", "f16", layer(16, 132096, 32, 32, 3, 2, 1, 1)),
    Large("strided_dx", r"strided_f16_gather_\w+", DX, "y", "f16", DOUBLED),
    Large("window", r"window_f16_\w+", FORWARD, "xy", "f16", SAME),
    Large("window_weights", r"window_f16_\w+", FORWARD, "w", "f16", layer(1, 12032, 12032, 4, (3, 5), 1, (1, 2))),
    Large("window_dx", r"window_f16_\w+", DX, "xy", "f16", SAME),
    Large("nhwc", r"nhwc_f16_\w+", FORWARD, "xy", "f16", POINTWISE, True),
    Large("nhwc_weights", r"nhwc_f16_\w+", FORWARD, "w", "f16", MANY_WEIGHTS, True),
    Large("nhwc_dx", r"nhwc_f16_\w+", DX, "xy", "f16", POINTWISE, True),
    Large("mma_rows", r"mma_f16_rows_\w+", FORWARD, "y", "f16", SMALL_IMAGES),
    Large("mma_dx", r"mma_f16_grad_input_\w+", DX, "y", "f16", layer(1, 8, 8, (4128, 1024), 8, 8)),
    Large("mma_dw", r"mma_f16_grad_weight_\d\w+", DW, "x", "f16", THREE_OUT),
    Large("mma_pixels_dw", r"mma_f16_grad_weight_pixels_\w+", DW, "x", "f16", THREE_OUT, True),
    Large("scatter", r"scatter_f16_\dx\d+", FORWARD, "xy", "f16", SAME),
    Large("scatter_pixels", r"scatter_f16_pixels_\w+", FORWARD, "x", "f16", THREE_OUT, True),
    Large("portable", r"portable_f16_\d+x\d+", FORWARD, "xy", "f16", LARGE_IMAGES, True),
    Large("portable_packed", r"portable_f16_\d+x\d+", FORWARD, "y", "f16", SMALL_IMAGES),
    Large("portable_dx", r"portable_f16_\d+x\d+", DX, "xy", "f16", LARGE_IMAGES, True),
    Large("portable_dw", r"portable_f16_weight_\d+", DW, "xy", "f16", LARGE_IMAGES, True),
)

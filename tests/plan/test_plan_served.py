"""Layers that families support, and refuse for shapes and strides. Class, direction and GPU: test_plan_contract.py."""

from __future__ import annotations

import dataclasses

import pytest
from plan.layers import LAYERS
from plan.problems import (
    BFLOAT16,
    DEVICES,
    FLOAT16,
    FLOAT64,
    FORWARD,
    GRAD_INPUT,
    GRAD_WEIGHT,
    H200,
    HALF,
    TF32,
    Problem,
    channels_last_strides,
    from_row,
    sizes_of,
)
from plan.tensor_cores import plans_like


def tf32(*row, **options) -> Problem:
    return from_row(*row, precision=TF32, **options)


def layer(name: str, **options) -> Problem:
    return from_row(*LAYERS[name], **options)


def half(*row, **options) -> Problem:
    return from_row(*row, dtype=BFLOAT16, precision=HALF, **options)


@dataclasses.dataclass(frozen=True)
class Served:
    """Problems of a direction that have plans of kernels with matching names, and problems that have none."""

    kernels: str
    direction: int
    served: list[Problem]
    refused: dict[str, Problem]


PATCH = tf32(4, 256, 128, 32, 2, 2)
PATCH_REFUSED = {
    "padding": tf32(4, 256, 128, 32, 4, 4, 1),
    "output_padding": tf32(4, 256, 128, 32, 4, 4, 0, 1),
    "stride": tf32(4, 256, 128, 32, 4, 2),
    "dilation": tf32(4, 256, 128, 32, 2, 2, 0, 0, 1, 3),
    "odd width": tf32(4, 256, 128, 32, 3, 3),
    "odd height": tf32(4, 256, 128, 32, (3, 2), (3, 2)),
}
SMALL_PATCH = tf32(1, 64, 64, 16, 2, 2)
SMALL_PATCH_REFUSED = {
    "channels_last": tf32(1, 64, 64, 16, 2, 2, channels_last=True),
    "groups": tf32(1, 64, 64, 16, 2, 2, 0, 0, 2),
    "channels between boxes": tf32(1, 64, 36, 16, 2, 2),
    "padding": tf32(1, 64, 64, 16, 4, 4, 1),
    "kernel": tf32(1, 64, 64, 16, 3, 3),
}
STRIDED = tf32(4, 64, 64, 32, 4, 2, 1)
STRIDED_REFUSED = {
    "kernel": tf32(4, 64, 64, 32, 5, 2, 2, 1),
    "stride": tf32(4, 64, 64, 32, 4, 4),
    "padding": tf32(4, 64, 64, 32, 4, 2),
    "output_padding": tf32(4, 64, 64, 32, 3, 2, 1, 0),
    "dilation": tf32(4, 64, 64, 32, 4, 2, 1, 0, 1, 3),
    "width": tf32(4, 64, 64, (32, 30), 4, 2, 1),
    "groups": tf32(4, 24, 24, 32, 4, 2, 1, 0, 2),  # a group's last stage would have the next one's
    "channels_last": tf32(4, 64, 64, 32, 4, 2, 1, channels_last=True),
}
WINDOW = tf32(2, 64, 64, 64, 3)
WINDOW_REFUSED = {
    "stride": tf32(2, 64, 64, 64, 3, 2),
    "dilation": tf32(2, 64, 64, 64, 3, 1, 0, 0, 1, 2),
    "kernel": tf32(2, 64, 64, 64, (5, 3)),
    "wide kernel": tf32(2, 64, 64, 64, (3, 9)),
    "channels_last": tf32(2, 64, 64, 64, 3, channels_last=True),
    "more classes of rows and channels than maps": half(2, 64, 64, (63, 65), 3),
    "channels that are not whole classes": tf32(2, 63, 64, (65, 66), 3),
    "groups that share a stage": tf32(2, 24, 24, 64, 3, 1, 0, 0, 2),
}
SCATTER = tf32(2, 16, 3, 32, 4, 2, 1)
MMA_GRAD_INPUT = layer("kb81", precision=TF32)
MMA_GRAD_WEIGHT = layer("kb81", precision=TF32)
PWC_NET = from_row(1, 2, 2, 32, 4, 2, 1)
DEPTHWISE = layer("dw_up", channels_last=True)


def strange(problem: Problem, key: str) -> Problem:
    """Neither NCHW nor channels_last."""
    n, c, h, w = sizes_of(problem)["xwy".index(key[0])]
    return problem | {key: [c * w * h * n, n * h, n, 2 * n]}


def depthwise(padding_w: int, kernel: int) -> Problem:
    return from_row(2, 8, 8, 64, kernel, 2, (0, padding_w), groups=8)


TABLE = {
    "flat": Served(r"flat_\w+", FORWARD, [tf32(4, 256, 128, 32, 4, 2, 1)], {
        "three W phases, no neighbours in registers": tf32(4, 256, 128, 32, 3, 3),
    }),
    "patch": Served(
        r"patch_\w+_(pairs|quads|channels)_\w+", FORWARD, [PATCH, half(4, 256, 128, 32, (3, 4), (3, 4))], PATCH_REFUSED
    ),
    "patch_dx": Served(r"patch_\w+_gather_\dx\d", GRAD_INPUT, [PATCH], {
        **PATCH_REFUSED, "channels_last": tf32(4, 256, 128, 32, 2, 2, channels_last=True),
    }),
    "patch_direct": Served(r"patch_\w+_direct_\d", FORWARD, [SMALL_PATCH], {
        **SMALL_PATCH_REFUSED, "stages of the source": tf32(1, 1056, 64, 16, 2, 2),
    }),
    "patch_runs_dx": Served(r"patch_\w+_gather_runs_\d+", GRAD_INPUT, [SMALL_PATCH], {
        **SMALL_PATCH_REFUSED,
        "wide": tf32(1, 64, 64, (4, 130), 2, 2),
        "expanded": SMALL_PATCH | {"y_stride": [0, 0, 32, 1]},
        "lines": tf32(1, 64, 64, (2, 1), (1, 2), (1, 2)),  # of 8 bytes, of channels of 16
    }),
    "strided": Served(r"strided_\w+", FORWARD, [STRIDED, half(4, 64, 64, 32, 3, 2, 1, 1)], STRIDED_REFUSED),
    "strided_dx": Served(r"strided_\w+", GRAD_INPUT, [STRIDED, half(4, 64, 64, 32, 3, 2, 1, 1)], STRIDED_REFUSED),
    "window": Served(r"window_\w+", FORWARD, [WINDOW, half(2, 64, 64, 64, (3, 7), 1, (1, 3))], WINDOW_REFUSED),
    "window_dx": Served(r"window_\w+", GRAD_INPUT, [WINDOW], {
        name: problem for name, problem in WINDOW_REFUSED.items() if name != "channels that are not whole classes"
    }),
    "nhwc": Served(r"nhwc_\w+", FORWARD, [tf32(8, 64, 64, 64, 4, 2, 1, channels_last=True)], {
        # The only result is between those of the four pixels.
        "results without taps": tf32(4, 64, 64, 2, 1, 2, 1, channels_last=True),
    }),
    "nhwc_dx": Served(r"nhwc_\w+", GRAD_INPUT, [half(1, 8, 8, 2, 176, 8, channels_last=True)], {
        "81 windows": tf32(4, 64, 64, 32, 9, 9, channels_last=True),
        "taps beyond 16 bits": half(1, 8, 8, 2, 184, 8, channels_last=True),
    }),
    "scatter": Served(r"scatter_\w+", FORWARD, [SCATTER, layer("dcgan_rgb", precision=TF32)], {
        "channels": tf32(2, 16, 8, 32, 4, 2, 1),
        "groups": tf32(2, 16, 4, 32, 4, 2, 1, 0, 2),
        "rows of taps apart": tf32(2, 16, 3, 32, 4, 2, 1, dilation=(2, 1)),
        "many taps": tf32(2, 16, 3, 32, 16, 8, 1),
        "pixels between vectors": tf32(2, 18, 3, 32, 4, 2, 1, channels_last=True),
        "rows between vectors": tf32(2, 16, 3, 30, 4, 2, 1),
    }),
    "mma_rows": Served(r"mma_\w+_rows_\w+", FORWARD, [layer("kb81", precision=TF32)], {
        "channels_last": layer("kb81", precision=TF32, channels_last=True),
    }),
    "mma_dx": Served(r"mma_\w+_grad_input_\w+", GRAD_INPUT, [
        *(layer(name, precision=TF32) for name in ("kb75", "kb81", "dcgan_rgb", "fsrcnn")),
        layer("dcgan_rgb", precision=TF32, channels_last=True),
    ], {
        "more weights than shared memory": layer("fcn8s", precision=TF32),
        "a source of other strides": strange(MMA_GRAD_INPUT, "y_stride"),
        "a result of other strides": strange(MMA_GRAD_INPUT, "x_stride"),
    }),
    "mma_dw": Served(r"mma_\w+_grad_weight_\w+", GRAD_WEIGHT, [
        *(layer(name, precision=TF32) for name in ("kb75", "kb81", "dcgan_rgb", "fsrcnn", "fcn8s")),
        layer("kb81", precision=TF32, channels_last=True),
    ], {
        "two formats": MMA_GRAD_WEIGHT | {"y_stride": channels_last_strides(sizes_of(MMA_GRAD_WEIGHT)[2])},
    }),
    "correlate_dw": Served(r"correlate_\w+", GRAD_WEIGHT, [tf32(4, 64, 64, 2047, 3, 1, 1)], {
        "2^28 elements of an image, which would be packed": tf32(4, 64, 64, 2049, 3, 1, 1),
    }),
    "thin_direct": Served(r"thin_\w+_direct", FORWARD, [PWC_NET], {
        "stride": from_row(1, 2, 2, 32, 4, 9, 1),
        **{name: layer(name) for name in ("kb57", "kb81", "dw_up", "fsrcnn")},
    }),
    "thin_direct_dx": Served(r"thin_\w+_direct", GRAD_INPUT, [PWC_NET], {
        name: layer(name) for name in ("kb57", "kb81", "dw_up", "fsrcnn")
    }),
    "thin_direct_dw": Served(r"thin_\w+_direct", GRAD_WEIGHT, [PWC_NET], {
        name: layer(name) for name in ("kb57", "kb81", "dw_up", "fsrcnn")
    }),
    **{
        name: Served(r"thin_\w+_gather_\w+", direction, [layer(of) for of in ("kb75", "kb81", "dcgan_rgb", "fsrcnn")], {
            "float16": layer("dcgan_rgb", dtype=FLOAT16), "float64": layer("dcgan_rgb", dtype=FLOAT64),
        }) for name, direction in (("thin_gather", FORWARD), ("thin_gather_dx", GRAD_INPUT))
    },
    "thin": Served(r"thin_ieee_[a-z0-9]+_\d+x\d+", FORWARD, [
        layer(name) for name in ("kb75", "kb81", "dw_up", "dcgan_rgb", "fcn8s", "fsrcnn")
    ], {"float64": layer("dw_up", dtype=FLOAT64)}),
    "thin_dx": Served(r"thin_grad_input_[a-z0-9]+_\d+x\d+", GRAD_INPUT, [
        layer(name) for name in ("kb75", "kb81", "dcgan_rgb", "fsrcnn")
    ], {"float64": layer("dw_up", dtype=FLOAT64)}),
    "thin_dw": Served(r"thin_grad_weight_[a-z0-9]+_\d+x\d+x\d+", GRAD_WEIGHT, [
        layer(name) for name in ("kb75", "kb81", "dcgan_rgb", "fsrcnn", "fcn8s")
    ], {"float64": layer("kb81", dtype=FLOAT64)}),
    "thin_outer_dw": Served(r"thin_\w+_outer_\w+", GRAD_WEIGHT, [
        layer(name, channels_last=True) for name in ("kb57", "kb81", "dcgan_rgb", "fsrcnn", "fcn8s")
    ], {
        "NCHW": layer("kb81"),
        **{str(dtype): layer("kb81", dtype=dtype, channels_last=True) for dtype in (FLOAT64, FLOAT16, BFLOAT16)},
    }),
    "depthwise": Served(r"thin_ieee_f32_k\ds\d", FORWARD, [layer("dw_up"), *(depthwise(k - 1, k) for k in (2, 3, 4))], {
        **{f"first column without a tap of {k}": depthwise(k, k) for k in (2, 3, 4)},
        "float64": layer("dw_up", dtype=FLOAT64),
    }),
    **{
        # A window of taps reaches into one lane's columns alone.
        name: Served(pattern, direction, [layer("dw_up"), *(depthwise(k - 2, k) for k in (2, 3, 4))], {
            **{f"two lanes' columns of {k}": depthwise(k - 1, k) for k in (2, 3, 4)},
            "float64": layer("dw_up", dtype=FLOAT64),
        }) for name, pattern, direction in (
            ("depthwise_dx", r"thin_grad_input_f32_k\ds\d", GRAD_INPUT),
            ("depthwise_dw", r"thin_grad_weight_f32_k\ds\d", GRAD_WEIGHT),
        )
    },
    **{
        name: Served(r"thin_\w+_k\ds\d_channels_last", direction, [DEPTHWISE], {
            "float64": layer("dw_up", dtype=FLOAT64, channels_last=True),
            **{operand: DEPTHWISE | {operand: layer("dw_up")[operand]} for operand in operands},
        }) for name, direction, operands in (
            ("channels_last", FORWARD, ["y_stride"]), ("channels_last_dx", GRAD_INPUT, ["x_stride"]),
            ("channels_last_dw", GRAD_WEIGHT, ["x_stride", "y_stride"]),
        )
    },
}  # fmt: skip
CASES = [(name, reason) for name, family in TABLE.items() for reason in (None, *family.refused)]


@pytest.mark.parametrize(("name", "reason"), CASES)
def test_layers(plan_module, name, reason):
    """A layer has plans of the family on an H200 unless there is a reason to refuse it."""
    family = TABLE[name]
    problems = family.served if reason is None else [family.refused[reason]]
    for problem in problems:
        asked = problem | {"direction": family.direction}
        assert bool(plans_like(family.kernels, plan_module, asked, H200)) == (reason is None), problem


@pytest.mark.parametrize("device", sorted(DEVICES))
def test_exact_families_support_every_gpu(plan_module, device):
    for name, family in TABLE.items():
        if name.startswith(("thin", "depthwise", "channels_last")):
            asked = family.served[0] | {"direction": family.direction}
            assert plans_like(family.kernels, plan_module, asked, DEVICES[device]), name

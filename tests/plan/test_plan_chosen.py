"""Layers for which measurements have shown the fastest kernel: the planner chooses it."""

from __future__ import annotations

import re
from itertools import product

import pytest
from plan.layers import LAYERS
from plan.problems import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    FORWARD,
    GRAD_INPUT,
    GRAD_WEIGHT,
    H200,
    HALF,
    IEEE,
    TF32,
    TF32X3,
    from_row,
)
from plan.tensor_cores import CLASS_OF_DTYPE

SINGLE = tuple(CLASS_OF_DTYPE.items())
EXACT = tuple((dtype, IEEE) for dtype in (FLOAT32, FLOAT16, BFLOAT16))
NCHW, NHWC = (False,), (True,)
SMALL_PATCHES = [(1, 256, 64, 64, 2, 2), (1, 256, 256, 37, 4, 4), (1, 48, 48, 37, 4, 4)]
LARGE_PATCHES = [(8, 128, 64, 256, 2, 2), (4, 1024, 512, 32, 2, 2)]
LARGE_PATCHES_DX = [(8, 128, 64, 256, 2, 2), (1, 768, 1024, 48, 2, 2)]
MANY_CHANNELS = [
    (8, 64, 64, 512, 3, 1, 1), (16, 128, 64, 128, 4, 2, 1), (8, 256, 128, 40, 3, 2, 1, 1), (1, 256, 256, 768, 2, 2),
    (64, 256, 64, 64, 2, 2), (8, 256, 128, 64, 2, 2), (4, 256, 128, 56, 4, 4),
]  # fmt: skip
PWC_NET = (1, 2, 2, 32, 4, 2, 1)
CENTER_NET = (1, 128, 128, 32, 4, 2, 1, 0, 128)
# The general kernels of the same dtype took 3 to 10 times as long on an H200.
LARGE_DEPTHWISE = [
    (16, 64, 64, (36, 18), (8, 8), 4, 2, 0, 64), (4, 48, 48, (108, 108), (9, 9), 4, 3, 0, 48),
    (2, 128, 128, (74, 74), (8, 8), 4, 2, 0, 128), (16, 128, 128, (39, 13), (7, 7), 3, 2, 0, 128),
]  # fmt: skip
FEW_CHANNELS = [LAYERS[name] for name in ("kb75", "kb81", "dcgan_rgb", "fsrcnn")]
FEW_CHANNELS_OUT = [LAYERS[name] for name in ("dcgan_rgb", "fsrcnn")]

# The pattern of the kernel's name, direction, classes, formats, layers.
CHOSEN = {
    "small patches": (r"patch_\w+_direct_\d", FORWARD, SINGLE, NCHW, SMALL_PATCHES),
    "large patches": (r"(?!.*_direct_)\w+", FORWARD, SINGLE, NCHW, LARGE_PATCHES),
    "small patches_dx": (r"patch_\w+_runs_\d+", GRAD_INPUT, SINGLE, NCHW, SMALL_PATCHES),
    "large patches_dx": (r"(?!.*_runs_)\w+", GRAD_INPUT, SINGLE, NCHW, LARGE_PATCHES_DX),
    "few channels out": (
        r"scatter_\w+", FORWARD, (*SINGLE, (FLOAT32, TF32X3)), (False, True), FEW_CHANNELS_OUT
    ),
    "few channels_dx": (
        r"(mma|strided|window)_\w+", GRAD_INPUT, (*SINGLE, (FLOAT32, TF32X3)), NCHW, FEW_CHANNELS
    ),
    "few channels out_dx": (r"mma_\w+", GRAD_INPUT, SINGLE, NHWC, FEW_CHANNELS_OUT),
    "few channels_dw": (r"(mma|strided|window)_\w+", GRAD_WEIGHT, ((FLOAT32, TF32),), NCHW, [LAYERS["kb81"]]),
    "many channels_dw": (r"correlate_\w+", GRAD_WEIGHT, SINGLE, NCHW, MANY_CHANNELS),
    "pixels of groups of few channels": (
        r"thin_ieee_[a-z0-9]+_\d+x\d+", FORWARD, ((FLOAT32, TF32),), NHWC, [(16, 256, 256, (40, 13), 3, 3, 0, 0, 64)]
    ),
    "tiny": (r"thin_ieee_f32_direct", FORWARD, ((FLOAT32, IEEE),), (False, True), [PWC_NET]),
    "tiny_dx": (r"thin_grad_input_f32_direct", GRAD_INPUT, ((FLOAT32, IEEE),), (False, True), [PWC_NET]),
    "tiny_dw": (r"thin_grad_weight_f32_direct", GRAD_WEIGHT, ((FLOAT32, IEEE),), (False, True), [PWC_NET]),
    # A warp reads neighbours.
    "small depthwise_dw": (r"thin_grad_weight_f32_direct", GRAD_WEIGHT, ((FLOAT32, IEEE),), NCHW, [CENTER_NET]),
    "small depthwise_dw of pixels": (
        r"thin_\w+_k4s2_channels_last", GRAD_WEIGHT, ((FLOAT32, IEEE),), NHWC, [CENTER_NET]
    ),
    "large depthwise_dx": (
        r"thin_grad_input_[a-z0-9]+_\d+x\d+", GRAD_INPUT, ((FLOAT32, IEEE), (FLOAT32, TF32X3), (BFLOAT16, HALF)), NHWC,
        LARGE_DEPTHWISE,
    ),
    **{
        f"depthwise {direction} {channels_last}": (
            r"thin_\w+_k4s2_channels_last" if channels_last else r"thin_\w+_k4s2", direction, EXACT, (channels_last,),
            [LAYERS["dw_up"]],
        ) for direction, channels_last in product((FORWARD, GRAD_INPUT, GRAD_WEIGHT), (False, True))
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CHOSEN)
def test_the_kernel_is_chosen(plan_module, name):
    kernels, direction, classes, formats, layers = CHOSEN[name]
    for row, (dtype, precision), channels_last in product(layers, classes, formats):
        problem = from_row(*row, dtype=dtype, precision=precision, channels_last=channels_last)
        kernel = plan_module.choose(problem | {"direction": direction}, H200)["kernel"]
        assert re.fullmatch(kernels, kernel), (kernel, row, dtype, precision, channels_last)

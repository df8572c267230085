"""Families of kernels and tensors of more than 2^31 elements: who is offered for them, and whose guard refuses them.

What is offered is run by tests/gpu; here a guard that is dropped shows, and one that is stricter than it must be.
"""

from __future__ import annotations

import re
from math import prod

import pytest
from plan.problems import (
    FLOAT16,
    FLOAT32,
    FORWARD,
    GRAD_INPUT,
    GRAD_WEIGHT,
    H200,
    IEEE,
    TF32,
    Problem,
    from_row,
    sizes_of,
)
from plan.tensor_cores import HALF

LIMIT = 2**31


def half(*row, channels_last=False) -> Problem:
    return from_row(*row, dtype=FLOAT16, precision=HALF, channels_last=channels_last)


def exact(*row, channels_last=False, dtype=FLOAT16) -> Problem:
    return from_row(*row, dtype=dtype, precision=IEEE, channels_last=channels_last)


def offered(module, problem: Problem, kernel: str) -> bool:
    return any(re.fullmatch(kernel, plan["kernel"]) for plan in module.candidates(problem, H200))


DEPTHWISE = (8, 8, (4202720, 64), 3, 1, 1, 0, 8)
SAME = (1, 1, (33621568, 64), 3, 1, 1)  # input and output alike
# Kernels' names, the direction, the tensors that are large (x, w, y), and a problem.
LARGE = {
    "simt": (r"simt_ieee_\w+", FORWARD, "xy", exact(1, *SAME)),
    "simt_of_many_weights": (r"simt_ieee_\w+", FORWARD, "w", exact(1, 23296, 5824, 4, 4, 2, 1)),
    "simt_grad_input": (r"simt_grad_input_\w+", GRAD_INPUT, "xy", exact(1, *SAME)),
    "simt_grad_weight": (r"simt_grad_weight_\w+", GRAD_WEIGHT, "xy", exact(1, 8, 8, (4202720, 64), 1)),
    "simt_grad_weight_of_many": (r"simt_grad_weight_\w+", GRAD_WEIGHT, "w", exact(1, 23296, 5824, 4, 4, 2, 1)),
    "thin": (r"thin_ieee_f16_\d+x\d+", FORWARD, "y", exact(1, 1, 1, (525360, 64), 16, 8, 4)),
    "thin_grad_input": (r"thin_grad_input_f16_\d+x\d+", GRAD_INPUT, "y", exact(1, 1, 1, (525360, 64), 16, 8, 4)),
    "thin_grad_weight": (r"thin_grad_weight_f16_\dx\dx\d", GRAD_WEIGHT, "xy", exact(1, *SAME)),
    "thin_outer_weight": (
        r"thin_grad_weight_f32_outer_\w+", GRAD_WEIGHT, "x",
        exact(1, 640, 8, 2048, 1, channels_last=True, dtype=FLOAT32),
    ),
    "thin_depthwise": (r"thin_ieee_f16_k2s2", FORWARD, "y", exact(1, 1, 1, (8405408, 64), 2, 2)),
    "thin_channels_last": (
        r"thin_ieee_f16_k3s1_channels_last", FORWARD, "xy", exact(1, *DEPTHWISE, channels_last=True)
    ),
    "thin_direct": (r"thin_ieee_f16_direct", FORWARD, "x", exact(2100, 1, 1, 1024, 1, 1, 511)),
    "thin_gather": (
        r"thin_ieee_f32_gather_\w+", FORWARD, "w",
        exact(1, 33000 * 128, 33000 * 32, 2, 4, 2, 1, 0, 33000, dtype=FLOAT32),
    ),
    "thin_streamed": (
        r"thin_ieee_f32_streamed_\w+", FORWARD, "w",
        exact(1, 33000 * 128, 33000 * 32, 2, 4, 2, 1, 0, 33000, dtype=FLOAT32),
    ),
    "wgmma": (r"wgmma_f16_\d+", FORWARD, "xy", half(8405387, 1, 1, 16, 3, 1, 1)),
    "flat": (r"flat_f16_\w+", FORWARD, "y", half(1, 8, 192, (1536, 2048), 2, 2)),
    "patch": (r"patch_f16_pairs_\w+", FORWARD, "xy", half(1, 128, 32, (262688, 64), 2, 2)),
    "patch_grad_input": (r"patch_f16_gather_\dx\d", GRAD_INPUT, "xy", half(1, 128, 32, (262688, 64), 2, 2)),
    "patch_turns": (r"patch_f16_turns", FORWARD, "xy", half(1, 128, 32, (262688, 64), 2, 2)),
    "patch_runs": (r"patch_f16_gather_runs_\d+", GRAD_INPUT, "y", half(4, 64, 32832, 64, 2, 2)),
    "strided": (r"strided_f16_output_\w+", FORWARD, "y", half(1, 64, 128, (65696, 64), 4, 2, 1)),
    "strided_grad_input": (r"strided_f16_gather_\w+", GRAD_INPUT, "y", half(1, 64, 128, (65696, 64), 4, 2, 1)),
    "strided_turns": (r"strided_f16_turns_\w+", FORWARD, "x", half(16, 132096, 32, 32, 3, 2, 1, 1)),
    "window": (r"window_f16_\w+", FORWARD, "xy", half(1, *SAME)),
    "nhwc": (r"nhwc_f16_\w+", FORWARD, "xy", half(1, 8, 8, (4202720, 64), 1, channels_last=True)),
    "nhwc_of_many_weights": (r"nhwc_f16_\w+", FORWARD, "w", half(1, 23296, 5824, 4, 4, 2, 1, channels_last=True)),
    "mma": (r"mma_f16_\d+x\d+", FORWARD, "y", half(131336, 1, 1, 16, 16, 8, 4)),
    "mma_rows": (r"mma_f16_rows_\w+", FORWARD, "y", half(131336, 1, 1, 16, 16, 8, 4)),
    "mma_grad_input": (r"mma_f16_grad_input_\w+", GRAD_INPUT, "y", half(1, 8, 8, (4128, 1024), 8, 8)),
    "mma_grad_weight": (r"mma_f16_grad_weight_\w+", GRAD_WEIGHT, "x", half(1, 16, 3, (2101376, 64), 3, 1, 1)),
    "scatter": (r"scatter_f16_\w+", FORWARD, "xy", half(1, *SAME)),
    "upsample": (r"upsample_f16", FORWARD, "y", half(1, 8, 8, (16448, 64), 32, 16, 8)),
}  # fmt: skip


@pytest.mark.parametrize("family", LARGE)
def test_who_is_offered(plan_module, family):
    kernel, direction, large, problem = LARGE[family]
    assert "".join(name for name, sizes in zip("xwy", sizes_of(problem), strict=True) if prod(sizes) > LIMIT) == large
    assert offered(plan_module, problem | {"direction": direction}, kernel)


def far(problem: Problem, key: str, axis: int, stride: int) -> Problem:
    return problem | {key: [stride if i == axis else old for i, old in enumerate(problem[key])]}


SMALL = from_row(2, 8, 8, 8, 3, 1, 1)
# Kernels' names, the direction, a problem that the guard lets pass, and a little larger one that it does not.
GUARDED = {
    "thin_direct_within_a_group": (
        r"thin_ieee_f32_direct", FORWARD, far(SMALL, "x_stride", 1, 2**26), far(SMALL, "x_stride", 1, 2**28)
    ),
    "thin_direct_weight": (
        r"thin_grad_weight_f32_direct", GRAD_WEIGHT, far(SMALL, "x_stride", 0, 2**28), far(SMALL, "x_stride", 0, 2**30)
    ),
    "thin_direct_weight_of_grad_output": (
        r"thin_grad_weight_f32_direct", GRAD_WEIGHT, far(SMALL, "y_stride", 0, 2**28), far(SMALL, "y_stride", 0, 2**30)
    ),
    "thin_gather_between_images": (
        r"thin_ieee_f32_gather_\w+", FORWARD, far(SMALL, "x_stride", 0, 2**29), far(SMALL, "x_stride", 0, 2**30)
    ),
    "thin_streamed_between_images": (
        r"thin_ieee_f32_streamed_\w+", FORWARD, far(SMALL, "x_stride", 0, 2**29), far(SMALL, "x_stride", 0, 2**30)
    ),
    "thin_direct_results": (
        r"thin_ieee_f32_direct", FORWARD, from_row(2**20, 1, 1, 1, 1), from_row(2**23, 1, 1, 1, 1),
    ),
    "wgmma_within_a_tile": (
        r"wgmma_tf32_\w+", FORWARD,
        far(from_row(2, 8, 8, 8, 3, 1, 1, precision=TF32), "x_stride", 0, 2**27),
        far(from_row(2, 8, 8, 8, 3, 1, 1, precision=TF32), "x_stride", 0, 2**31),
    ),
    "wgmma_packed_weights": (
        r"wgmma_f16_\w+", FORWARD, half(1, 2**13, 2**13, 4, 1), half(1, 2**14, 2**14, 4, 1)
    ),
    "flat_packed_source": (
        r"flat_f16_\w+", FORWARD, half(1, 16, 64, (8192, 512), 3, 1, 1), half(1, 64, 64, (8192, 512), 3, 1, 1)
    ),
    "patch_positions": (r"patch_f16_\w+", FORWARD, half(2**20, 1, 1, 16, 2, 2), half(2**20, 1, 1, 64, 2, 2)),
    "patch_direct_tiles": (r"patch_f16_direct_\d", FORWARD, half(1, 64, 64, 32, 2, 2), half(4, 64, 64, 512, 2, 2)),
    "mma_grad_weight_slabs": (
        r"mma_f16_grad_weight_\w+", GRAD_WEIGHT, half(1, 1024, 1024, 8, 3, 1, 1), half(1, 2**14, 2**14, 8, 3, 1, 1)
    ),
    "scatter_channels": (
        r"scatter_f16_\w+", FORWARD, half(1, 64, 1, 32, 4, 2, 1), half(1, 2**21, 1, 32, 4, 2, 1)
    ),
}  # fmt: skip


@pytest.mark.parametrize("guard", GUARDED)
def test_guards(plan_module, guard):
    kernel, direction, served, refused = GUARDED[guard]
    assert offered(plan_module, served | {"direction": direction}, kernel)
    assert not offered(plan_module, refused | {"direction": direction}, kernel)


@pytest.mark.parametrize("stride", [2**31, 2**62, 2**63 - 1])
@pytest.mark.parametrize("channels_last", [False, True])
def test_strides_of_single_elements_are_settled(plan_module, channels_last, stride):
    """What the binding hands over has none that arithmetic could not stand, and nothing else has changed."""
    problem = from_row(1, 1, 4, (1, 6), (3, 1), channels_last=channels_last)
    strange = dict(problem)
    for key, sizes in zip(("x_stride", "w_stride", "y_stride"), sizes_of(problem), strict=True):
        strange[key] = [stride if size == 1 else old for size, old in zip(sizes, problem[key], strict=True)]
    settled = plan_module.settle_strides(strange)
    assert plan_module.settle_strides(problem) == problem
    for key, sizes in zip(("x_stride", "w_stride", "y_stride"), sizes_of(problem), strict=True):
        assert all(0 < new < 2**31 for new in settled[key])
        assert [new for new, size in zip(settled[key], sizes, strict=True) if size > 1] == [
            old for old, size in zip(problem[key], sizes, strict=True) if size > 1
        ]


def test_real_strides_stay(plan_module):
    """Of a view of one image or channel too, and those of more elements however long they are."""
    problem = from_row(2, 1, 4, 8, 3) | {"x_stride": [2**40, 2**31 - 1, 8, 1]}
    assert plan_module.settle_strides(problem) == problem

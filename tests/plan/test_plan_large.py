"""Tensors of more than 2^31 elements: the families that support them, and the guards of the others.

tests/gpu runs the offered plans. These tests detect a missing guard, and one that is too strict.
"""

from __future__ import annotations

import re

import pytest
from families import FAMILIES
from large_problems import KINDS, LARGE, Large
from plan.problems import FLOAT16, FORWARD, GRAD_WEIGHT, H200, HALF, Problem, from_row, sizes_of
from raw_ops import DIRECTIONS, DTYPES, PRECISIONS, tensor_core_kernels


def half(*row, channels_last=False) -> Problem:
    return from_row(*row, dtype=FLOAT16, precision=HALF, channels_last=channels_last)


def offered(module, problem: Problem, kernel: str) -> bool:
    return any(re.fullmatch(kernel, plan["kernel"]) for plan in module.candidates(problem, H200))


# Its guards refuse too many tiles for a CTA.
REFUSES_ALL = ("patch_direct",)


def planned(large: Large) -> Problem:
    case, (dtype, precision) = large.case, KINDS[large.kind]
    row = (case.n, case.c_in, case.c_out, (case.h, case.w), case.k, case.s, case.p, case.op, case.g)
    problem = from_row(*row, dtype=DTYPES[dtype], precision=PRECISIONS[precision], channels_last=large.channels_last)
    return problem | {"direction": DIRECTIONS.index(large.direction)}


@pytest.mark.parametrize("large", LARGE, ids=lambda large: large.name)
def test_large_problems_have_plans_of_their_kernels(plan_module, large):
    assert "".join(name for name in "xwy" if large.is_over(name)) == large.over
    assert large.sizes == dict(zip("xwy", map(tuple, sizes_of(planned(large))), strict=True))
    assert offered(plan_module, planned(large), large.kernels)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_family_has_a_problem(family):
    kernels = [kernel for kernel in tensor_core_kernels() if family.has({"kernel": kernel})]
    found = [
        large.name
        for large in LARGE
        if large.direction == family.direction and any(re.fullmatch(large.kernels, kernel) for kernel in kernels)
    ]
    assert bool(found) != (family.name in REFUSES_ALL)


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
    "thin_direct_results": (
        r"thin_ieee_f32_direct", FORWARD, from_row(2**20, 1, 1, 1, 1), from_row(2**23, 1, 1, 1, 1),
    ),
    "flat_packed_source": (
        r"flat_f16_\w+", FORWARD, half(1, 16, 64, (8192, 512), 3, 1, 1), half(1, 64, 64, (8192, 512), 3, 1, 1)
    ),
    "patch_positions": (r"patch_f16_\w+", FORWARD, half(2**20, 1, 1, 16, 2, 2), half(2**20, 1, 1, 64, 2, 2)),
    "patch_direct_tiles": (r"patch_f16_direct_\d", FORWARD, half(1, 64, 64, 32, 2, 2), half(4, 64, 64, 512, 2, 2)),
    "mma_grad_weight_slabs": (
        r"mma_f16_grad_weight_\w+", GRAD_WEIGHT, half(1, 1024, 1024, 8, 3, 1, 1), half(1, 2**14, 2**14, 8, 3, 1, 1)
    ),
    "mma_tiles_of_a_tall_image": (  # tile numbers are divided by multiplication, which is exact up to a limit
        r"mma_f16_rows_\w+", FORWARD, half(1, 1, 1, (2**17, 64), 3, 1, 1), half(1, 1, 1, (2**19, 64), 3, 1, 1)
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
    """The binding replaces strides that would overflow, and changes nothing else."""
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
    """Strides of axes with several elements do not change, however long they are."""
    problem = from_row(2, 1, 4, 8, 3) | {"x_stride": [2**40, 2**31 - 1, 8, 1]}
    assert plan_module.settle_strides(problem) == problem

"""Plans that need tensor maps: CUDA can make every map of a plan."""

from __future__ import annotations

import pytest
from plan.problems import FLOAT16, FLOAT32, FORWARD, GRAD_INPUT, H200, HALF, TF32, Problem, element_bytes, from_row

LIMIT = 2**40  # bytes: strides are shorter
FORMS = {"tf32": (FLOAT32, TF32), "half": (FLOAT16, HALF)}
# A part of the kernels' names, the operand of the tensor map, and a problem that the engine supports.
ENGINES = {
    "nhwc": ("nhwc_", "x_stride", from_row(2, 64, 64, 16, 3, 1, 1, channels_last=True)),
    "nhwc_grad_input": ("nhwc_", "y_stride", from_row(2, 64, 64, 16, 3, 1, 1, channels_last=True)),
    "strided": ("strided_", "x_stride", from_row(2, 64, 64, 16, 4, 2, 1)),
    "strided_grad_input": ("strided_", "y_stride", from_row(2, 64, 64, 16, 4, 2, 1)),
    "window": ("window_", "x_stride", from_row(2, 64, 64, 16, 3, 1, 1)),
    "window_grad_input": ("window_", "y_stride", from_row(2, 64, 64, 16, 3, 1, 1)),
    "scatter": ("scatter_", "x_stride", from_row(2, 16, 3, 32, 4, 2, 1)),
    "scatter_pixels": ("scatter_", "x_stride", from_row(2, 16, 3, 32, 4, 2, 1, channels_last=True)),
    "patch_runs": ("_gather_runs_", "y_stride", from_row(2, 64, 64, 16, 4, 4)),
}  # fmt: skip
CASES = [(name, form) for name in ENGINES for form in FORMS]
# The window engine has up to 16 maps; each one steps over the rows and channels of the others.
LIMITS = {"window": LIMIT // 16, "window_grad_input": LIMIT // 16}


def case(name: str, form: str) -> tuple[str, str, Problem]:
    kernel, operand, problem = ENGINES[name]
    dtype, precision = FORMS[form]
    direction = GRAD_INPUT if operand == "y_stride" else FORWARD
    return kernel, operand, problem | {"direction": direction, "dtype": dtype, "precision": precision}


def serves(module, problem: Problem, kernel: str) -> bool:
    """Returns whether the engine has a plan with a tensor map; NHWC copies other sources element by element."""
    plans = [plan for plan in module.candidates(problem, H200) if kernel in plan["kernel"]]
    return any(plan["source_on_vectors"] or kernel != "nhwc_" for plan in plans)


def with_stride(problem: Problem, operand: str, axis: int, stride: int) -> Problem:
    return problem | {operand: [stride if i == axis else old for i, old in enumerate(problem[operand])]}


@pytest.mark.parametrize(("name", "form"), CASES)
def test_strides_that_are_too_long_for_a_map(plan_module, name, form):
    kernel, operand, problem = case(name, form)
    limit = LIMITS.get(name, LIMIT) // element_bytes(problem)
    vector = 16 // element_bytes(problem)
    assert serves(plan_module, with_stride(problem, operand, 0, limit - vector), kernel)
    assert not serves(plan_module, with_stride(problem, operand, 0, limit), kernel)


@pytest.mark.parametrize(("name", "form"), CASES)
def test_images_that_begin_between_vectors(plan_module, name, form):
    """A tensor map's strides are multiples of 16 bytes, that of images as those of pixels."""
    kernel, operand, problem = case(name, form)
    stride = problem[operand][0]
    assert serves(plan_module, with_stride(problem, operand, 0, 2 * stride), kernel)
    vector = 16 // element_bytes(problem)
    for further in (1, vector // 2):
        assert not serves(plan_module, with_stride(problem, operand, 0, 2 * stride + further), kernel)


@pytest.mark.parametrize("stride", [0, 1, 5, 2**40, 2**62 + 1])
@pytest.mark.parametrize(("name", "form"), CASES)
def test_the_stride_of_a_single_image_has_no_effect(plan_module, name, form, stride):
    kernel, operand, problem = case(name, form)
    problem |= {"batch": 1}
    assert serves(plan_module, with_stride(problem, operand, 0, stride), kernel)


@pytest.mark.parametrize("form", FORMS)
def test_weights_that_no_map_describes_are_packed(plan_module, form):
    """The NHWC engine's map of weights as they are steps over blocks of 64 bytes of columns."""
    _, _, problem = case("nhwc_grad_input", form)

    def direct(problem):
        plans = [plan for plan in plan_module.candidates(problem, H200) if plan["kernel"].startswith("nhwc_")]
        assert plans
        return {plan["direct"] for plan in plans}

    limit = LIMIT // 64
    stride, vector = problem["w_stride"][0], 16 // element_bytes(problem)
    assert direct(with_stride(problem, "w_stride", 0, stride + vector)) == {True}
    assert direct(with_stride(problem, "w_stride", 0, stride + vector // 2)) == {False}
    assert direct(with_stride(problem, "w_stride", 0, limit - 64)) == {True}
    assert direct(with_stride(problem, "w_stride", 0, limit)) == {False}
    # Taps are one dimension of the map where rows of them follow each other.
    limit = LIMIT // element_bytes(problem)
    far = problem | {"w_stride": [64, 1, 3 * (limit - 64), limit - 64]}
    assert direct(far) == {True}
    assert direct(far | {"w_stride": [64, 1, 3 * limit, limit]}) == {False}


def test_a_map_that_cuda_refuses_is_described(plan_module):
    """launch/operands.cpp appends it to CUDA's error number, and launch/launch.cpp appends the problem."""
    text = plan_module.describe_box([64, 16, 12, 2], [64, 1024, 2**40], [32, 8, 4, 1], 4096 + 8)
    assert text == (
        "float32 of sizes [64, 16, 12, 2] and strides [64, 1024, 1099511627776], innermost first, in boxes of "
        "[32, 8, 4, 1] every [1, 1, 1, 1], swizzled by 0 bytes, 8 bytes behind a multiple of 16"
    )
    problem = from_row(2, 6, 4, (5, 7), (3, 4), (2, 1), (1, 0), 0, 2, (1, 2), dtype=FLOAT16, precision=HALF)
    assert plan_module.describe(problem | {"direction": GRAD_INPUT}) == (
        "grad_input in float16 and class half of input [2, 6, 5, 7] (strides [210, 35, 7, 1]), weight [6, 2, 3, 4] "
        "(strides [24, 12, 4, 1]) and output [2, 4, 9, 13] (strides [468, 117, 13, 1]), stride [2, 1], padding [1, 0], "
        "dilation [1, 2], groups 2"
    )

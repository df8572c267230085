"""ONNX's and JAX's cases on kernels of convt_ext, in every class."""

from __future__ import annotations

import pytest
import torch
from other_suites import ONNX, jax_cases, onnx_case
from served import on_kernels

from convt_ext.functional import FUNCTIONS

CLASSES = {
    "exact": (torch.float32, 1e-6),
    "aten": (torch.float32, 1e-6),
    "tf32": (torch.float32, 2e-3),
    "tf32x3": (torch.float32, 1e-6),
    "half": (torch.bfloat16, 2e-2),
    "float64": (torch.float64, 1e-14),
}
each_class = pytest.mark.parametrize("name", CLASSES)


def check(case, name) -> None:
    dtype, tolerance = CLASSES[name]
    function = FUNCTIONS[case.x.dim() - 2]
    found = case.run(function, "cuda", dtype, **on_kernels("exact" if name == "float64" else name))
    assert found.shape == case.expected.shape
    assert (found.double().cpu() - case.expected).norm() <= tolerance * case.expected.norm()


@each_class
@pytest.mark.parametrize("case", ONNX)
def test_onnx(case, name):
    check(onnx_case(case), name)


@each_class
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("stride", [(1,), (2,), (3,), (1, 1), (1, 2), (2, 1), (2, 2), (3, 3)], ids=str)
def test_jax(stride, padding, transposed, name):
    torch.manual_seed(0)
    for dilation in (1, 2):
        for case in jax_cases(len(stride), stride, padding, dilation, transposed):
            check(case, name)

"""ONNX's and JAX's cases on the CPU, where PyTorch's operator runs: the definitions of `other_suites` are right."""

from __future__ import annotations

import pytest
import torch
from other_suites import ONNX, jax_cases, onnx_case

from convt_ext.functional import FUNCTIONS


@pytest.mark.parametrize("name", ONNX)
def test_onnx(name):
    case = onnx_case(name)
    found = case.run(FUNCTIONS[case.x.dim() - 2], "cpu", torch.float64)
    assert torch.equal(found, case.expected)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("stride", [(1,), (2,), (3,), (1, 1), (1, 2), (2, 1), (2, 2), (3, 3)], ids=str)
def test_jax(stride, padding, transposed):
    for dilation in (1, 2):
        for case in jax_cases(len(stride), stride, padding, dilation, transposed):
            found = case.run(FUNCTIONS[len(stride)], "cpu", torch.float64)
            torch.testing.assert_close(found, case.expected)

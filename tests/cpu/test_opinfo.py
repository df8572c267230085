"""PyTorch's test data on the CPU: with PyTorch's operator, and with convt_ext's ops computed by PyTorch."""

from __future__ import annotations

import pytest
import pytorch_samples
import torch
from cpu_kernels import RAN


@pytest.fixture(params=["pytorch", "ours"])
def server(request):
    """Selects the implementation: PyTorch's operator, or convt_ext's ops."""
    if request.param == "ours":
        request.getfixturevalue("cpu_is_gpu")
    yield request.param
    if request.param == "ours":
        assert "forward" in RAN


def test_there_are_samples():
    assert len(pytorch_samples.samples("cpu", torch.float32)) >= pytorch_samples.NUM_SAMPLES


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64], ids=str)
def test_forward(dtype):
    pytorch_samples.check_forward("cpu", dtype, 1e-12 if dtype is torch.float64 else 2e-6)


def test_forward_by_our_ops(cpu_is_gpu):
    for arguments, named in pytorch_samples.samples("cpu", torch.float64):
        expected = torch.nn.functional.conv_transpose2d(*arguments, **named)
        torch.testing.assert_close(pytorch_samples.ours(*arguments, **named), expected)
        negated = (torch._neg_view(arguments[0]), *arguments[1:])
        expected = torch.nn.functional.conv_transpose2d(*negated, **named)
        torch.testing.assert_close(pytorch_samples.ours(*negated, **named), expected)
    assert "forward" in RAN


def test_gradients():
    pytorch_samples.check_gradients("cpu", torch.float64, 1e-12)


def test_gradcheck_and_gradgradcheck(server):
    pytorch_samples.check_gradcheck("cpu")


def test_modules():
    assert pytorch_samples.check_modules("cpu", torch.float64, 1e-12) >= 2

"""PyTorch's test data on the CPU: with PyTorch's operator, and with convt_ext's ops computed by PyTorch."""

from __future__ import annotations

import pytest
import pytorch_samples
import torch
from cpu_kernels import RAN


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64], ids=str)
def test_forward(dtype):
    pytorch_samples.check_forward("cpu", dtype, 1e-12 if dtype is torch.float64 else 2e-6)


def test_forward_by_our_ops(cpu_is_gpu):
    samples = pytorch_samples.samples("cpu", torch.float64)
    assert len(samples) >= pytorch_samples.NUM_SAMPLES
    for arguments, named in samples:
        for one in (arguments, (torch._neg_view(arguments[0]), *arguments[1:])):
            expected = torch.nn.functional.conv_transpose2d(*one, **named)
            torch.testing.assert_close(pytorch_samples.ours(*one, **named), expected)
    assert "forward" in RAN


def test_gradients():
    pytorch_samples.check_gradients("cpu", torch.float64, 1e-12)


def test_gradcheck_and_gradgradcheck(server):
    pytorch_samples.check_gradcheck("cpu")
    assert ("forward" in RAN) == (server == "ours")


def test_modules():
    assert pytorch_samples.check_modules("cpu", torch.float64, 1e-12) >= 2

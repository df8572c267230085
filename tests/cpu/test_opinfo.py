"""PyTorch's test data on the CPU: with PyTorch's operator, and with convt_ext's ops computed by PyTorch."""

from __future__ import annotations

import pytest
import pytorch_samples
import torch
from cpu_kernels import RAN

each_dims = pytest.mark.parametrize("dims", pytorch_samples.DIMS)


@each_dims
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64], ids=str)
def test_forward(dtype, dims):
    pytorch_samples.check_forward(dims, "cpu", dtype, 1e-12 if dtype is torch.float64 else 2e-6)


@each_dims
def test_forward_by_our_ops(cpu_is_gpu, dims):
    samples = pytorch_samples.samples(dims, "cpu", torch.float64)
    assert len(samples) >= pytorch_samples.NUM_SAMPLES[dims]
    for arguments, named in samples:
        for one in (arguments, (torch._neg_view(arguments[0]), *arguments[1:])):
            expected = pytorch_samples.theirs(dims)(*one, **named)
            torch.testing.assert_close(pytorch_samples.ours(dims)(*one, **named), expected)
    assert "forward" in RAN or dims == 3  # needs a plan


@each_dims
def test_gradients(dims):
    pytorch_samples.check_gradients(dims, "cpu", torch.float64, 1e-12)


@each_dims
def test_gradcheck_and_gradgradcheck(server, dims):
    pytorch_samples.check_gradcheck(dims, "cpu")
    assert dims == 3 or ("forward" in RAN) == (server == "ours")


@each_dims
def test_modules(dims):
    assert pytorch_samples.check_modules(dims, "cpu", torch.float64, 1e-12) >= 2

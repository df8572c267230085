"""PyTorch's own test data on the GPU in every dtype of convt_ext, without a precision and with "exact"."""

from __future__ import annotations

import contextlib

import pytest
import pytorch_samples
import torch
from served import SeenOps, switch, tf32

from convt_ext import use_precision

# Relative to the norm: a few units of each dtype.
DTYPES = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
each_dims = pytest.mark.parametrize("dims", pytorch_samples.DIMS)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@pytest.fixture(params=[None, "exact"], autouse=True)
def precision(request):
    """convt_ext runs float64 and float32 under both, float16 and bfloat16 under "exact"."""
    context = contextlib.nullcontext() if request.param is None else use_precision(request.param)
    with tf32(False), switch(torch.backends.cudnn, "deterministic", True), context:
        yield request.param


@pytest.mark.parametrize("dims", [2, 3])
def test_there_are_samples(precision, dims):
    if dims == 3 and precision is None:
        pytest.skip("PyTorch's operator may be faster")
    with SeenOps() as seen:
        for arguments, named in pytorch_samples.samples(dims, "cuda", torch.float32):
            pytorch_samples.ours(dims)(*arguments, **named)
    assert seen.names.count("convt_ext.forward.default") >= pytorch_samples.NUM_SAMPLES[dims]


@each_dims
@each_dtype
def test_forward(dtype, dims):
    pytorch_samples.check_forward(dims, "cuda", dtype, DTYPES[dtype])


@each_dims
@each_dtype
def test_gradients(dtype, dims):
    pytorch_samples.check_gradients(dims, "cuda", dtype, DTYPES[dtype])


@each_dims
def test_gradcheck_and_gradgradcheck(precision, dims):
    if precision is not None:
        pytest.skip("forward-mode is PyTorch's operator, which an explicit precision refuses")
    pytorch_samples.check_gradcheck(dims, "cuda")


@pytest.mark.parametrize("dims", [2, 3])
@each_dtype
def test_memory_formats(dtype, dims):
    pytorch_samples.check_memory_formats(dims, "cuda", dtype)


@each_dims
@each_dtype
def test_modules(dtype, dims):
    assert pytorch_samples.check_modules(dims, "cuda", dtype, DTYPES[dtype]) >= 2

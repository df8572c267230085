"""The module and `convert` on the GPU."""

from __future__ import annotations

import copy

import pytest
import torch
from served import on_kernels, served_by, switch, tf32
from torch import nn
from torch.nn.utils import parametrizations

from convt_ext import ConvTranspose2d, conv_transpose2d, convert, explain, use_precision


@pytest.fixture(autouse=True)
def inference_without_tf32():
    """PyTorch may serve a layer where it is the faster one; its results, too, are compared bit for bit."""
    torch.manual_seed(0)
    with torch.no_grad(), tf32(False), switch(torch.backends.cudnn, "deterministic", True):
        yield


def generator():
    """A small DCGAN generator."""
    return nn.Sequential(
        nn.ConvTranspose2d(16, 32, 4, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.ConvTranspose2d(16, 3, 4, stride=2, padding=1),
        nn.Tanh(),
    ).cuda()


def test_module_is_the_functional():
    layer = ConvTranspose2d(8, 6, (3, 4), stride=(2, 3), padding=1, output_padding=(1, 2), groups=2, device="cuda")
    x = torch.randn(2, 8, 5, 6, device="cuda")
    expected = conv_transpose2d(x, layer.weight, layer.bias, (2, 3), 1, (1, 2), 2)
    assert served_by(layer, x) == "convt_ext"
    assert torch.equal(layer(x), expected)
    assert torch.equal(layer(x[0]), expected[0])
    assert torch.equal(layer(x, output_size=expected.shape), expected)


def test_precision_of_a_module():
    x = torch.randn(2, 70, 5, 6, device="cuda")
    for precision in ("exact", "aten", "tf32x3", "tf32"):
        layer = ConvTranspose2d(70, 3, 3, stride=2, **on_kernels(precision), device="cuda")
        with tf32(True):
            assert served_by(layer, x) == "convt_ext"
            assert torch.equal(layer(x), conv_transpose2d(x, layer.weight, layer.bias, 2, **on_kernels(precision)))


@pytest.mark.parametrize("precision", [None, "exact", "aten"])
@pytest.mark.parametrize("channels_last", [False, True])
def test_converted_generator(precision, channels_last):
    model = generator().eval()
    z = torch.randn(4, 16, 1, 1, device="cuda")
    if channels_last:
        model, z = model.to(memory_format=torch.channels_last), z.contiguous(memory_format=torch.channels_last)
    before = model(z)
    convert(model, precision=precision)
    after = model(z)
    assert after.stride() == before.stride()
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-5)
    assert torch.equal(model(z), after)


def test_converted_modules_run_ours():
    model = convert(generator().eval())
    x = torch.randn(4, 16, 8, 8, device="cuda")
    assert served_by(model[6], x) == "convt_ext"
    assert explain(x, model[6].weight, stride=2, padding=1).served_by == "convt_ext"
    with tf32(True):
        assert served_by(model[6], x) == explain(x, model[6].weight, stride=2, padding=1).served_by


def test_converted_parametrization():
    layer = parametrizations.weight_norm(nn.ConvTranspose2d(8, 6, 3, stride=2)).cuda()
    x = torch.randn(2, 8, 5, 6, device="cuda")
    before = layer(x)
    convert(layer, precision="exact")
    torch.testing.assert_close(layer(x), before, rtol=1e-4, atol=1e-5)
    assert isinstance(copy.deepcopy(layer), ConvTranspose2d)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes(dtype):
    model = convert(generator().eval().to(dtype), precision="exact")
    z = torch.randn(4, 16, 1, 1, device="cuda", dtype=dtype)
    assert model(z).dtype is dtype
    assert torch.isfinite(model(z)).all()


def test_a_converted_model_has_the_originals_gradients():
    model = generator()
    plain = copy.deepcopy(model)
    convert(model, precision="exact")
    z = torch.randn(4, 16, 1, 1, device="cuda")
    with torch.enable_grad():
        for one in (model, plain):
            one(z).square().sum().backward()
        assert served_by(model[6], torch.randn(4, 16, 8, 8, device="cuda")) == "convt_ext"
    for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert (mine.grad - theirs.grad).norm() <= 1e-4 * theirs.grad.norm()


@pytest.mark.parametrize("precision", [None, "exact"])
def test_autocast(precision):
    layer = convert(nn.ConvTranspose2d(8, 6, 3, stride=2).cuda(), precision=precision)
    x = torch.randn(2, 8, 5, 6, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert precision is None or served_by(layer, x) == "convt_ext"
        assert layer(x).dtype is torch.bfloat16


def test_lazy_module():
    layer = convert(nn.LazyConvTranspose2d(6, 3, stride=2).cuda())
    x = torch.randn(2, 8, 5, 6, device="cuda")
    first = layer(x)
    assert type(layer) is ConvTranspose2d
    assert torch.equal(layer(x), first)


@pytest.mark.needs_two_gpus
def test_data_parallel_keeps_a_precision():
    layer = ConvTranspose2d(64, 32, 4, stride=2, padding=1, device="cuda:0")
    x = torch.randn(4, 64, 16, 16, device="cuda:0")
    with use_precision("exact"):
        expected = layer(x)
        assert torch.equal(nn.DataParallel(layer, [0, 1])(x), expected)

"""Compiled programs whose pointwise operations run as steps of our ops."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from served import allow_tf32
from torch import nn
from torch._inductor.utils import run_and_get_code

import convt_ext
from convt_ext.compile import mode as compile_mode
from convt_ext.dispatch import planner

pytestmark = pytest.mark.usefixtures("fresh_compiler")


@pytest.fixture(autouse=True)
def always_fused(monkeypatch):
    monkeypatch.setattr(compile_mode, "MODE", compile_mode.FUSED)


CHANNELS = 64


def batch_norm(dtype):
    norm = nn.BatchNorm2d(CHANNELS)
    for one in (norm.running_mean, norm.running_var, norm.weight, norm.bias):
        one.data.uniform_(0.5, 1.5)
    return norm.eval().to("cuda", dtype)


PROGRAMS = {
    "relu": lambda y, norm, residual: F.relu(y),
    "norm and relu": lambda y, norm, residual: F.relu(norm(y)),
    "residual and relu": lambda y, norm, residual: F.relu(y + residual),
    "mish, add, hardtanh, scale": lambda y, norm, residual: F.hardtanh(F.mish(y) + 0.5) * 2,
    "subtract channels, tanh": lambda y, norm, residual: torch.tanh(y - residual[0, :, :1, :1]),
    "gelu": lambda y, norm, residual: F.gelu(y),
    "silu": lambda y, norm, residual: F.silu(y),
    "sigmoid": lambda y, norm, residual: torch.sigmoid(y),
}


@pytest.mark.parametrize("by_torch", [False, True], ids=["ours", "torchs"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_near_float64_as_pytorchs(monkeypatch, name, dtype, layout, by_torch):
    best = planner.BestPlan(300.0, 200.0 if by_torch else 400.0, 0)
    monkeypatch.setattr(planner, "best_plan", lambda *_: best)
    torch.manual_seed(0)
    layer = convt_ext.ConvTranspose2d(CHANNELS, CHANNELS, 4, 2, 1).to("cuda", dtype)
    theirs = nn.ConvTranspose2d(CHANNELS, CHANNELS, 4, 2, 1).to("cuda", dtype)
    theirs.load_state_dict(layer.state_dict())
    norm, after = batch_norm(dtype), PROGRAMS[name]
    x = torch.randn(2, CHANNELS, 15, 17, device="cuda", dtype=dtype).contiguous(memory_format=layout)
    residual = torch.randn(2, CHANNELS, 30, 34, device="cuda", dtype=dtype).transpose(2, 3).contiguous().transpose(2, 3)
    with torch.no_grad(), allow_tf32(True):
        program = torch.compile(lambda x, residual: after(layer(x), norm, residual), fullgraph=True)
        found, (code,) = run_and_get_code(program, x, residual)
        eager = after(theirs(x), norm, residual)
        exact = after(theirs.double()(x.double()), norm.double(), residual.double())
    if torch.cuda.get_device_capability() == (9, 0):  # elsewhere PyTorch's operator serves these classes
        assert "convt_ext.conv_transpose2d_then" in code
    assert found.dtype is dtype
    assert found.stride() == eager.stride()
    # PyTorch may have taken an algorithm without TF32, which it allows.
    allowed = 1e-3 * exact.abs().max() if dtype is torch.float32 else 1e-6
    assert (found - exact).abs().max() <= 2 * (eager - exact).abs().max() + allowed


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "after", [F.relu, torch.tanh, partial(F.leaky_relu, negative_slope=0.2)], ids=["relu", "tanh", "leaky relu"]
)
def test_gradients_are_as_near_float64_as_pytorchs(monkeypatch, after, dtype, layout):
    monkeypatch.setattr(planner, "best_plan", lambda *_: planner.BestPlan(300.0, 400.0, 0))
    torch.manual_seed(0)
    layer = convt_ext.ConvTranspose2d(CHANNELS, CHANNELS, 4, 2, 1).to("cuda", dtype)
    theirs = nn.ConvTranspose2d(CHANNELS, CHANNELS, 4, 2, 1).to("cuda", dtype)
    theirs.load_state_dict(layer.state_dict())
    x = torch.randn(2, CHANNELS, 15, 17, device="cuda", dtype=dtype).contiguous(memory_format=layout)
    ramp = torch.linspace(-1.0, 1.0, 2 * CHANNELS * 30 * 34, device="cuda").view(2, CHANNELS, 30, 34)

    def gradients(module, function):
        leaf = x.detach().to(module.weight.dtype).requires_grad_()
        return torch.autograd.grad((function(leaf) * ramp).sum(), [leaf, *module.parameters()])

    # A result near 0 may have another sign in TF32, and another gradient of relu.
    with allow_tf32(after is torch.tanh):
        program = torch.compile(lambda x: after(layer(x)), fullgraph=True)
        found, codes = run_and_get_code(gradients, layer, program)
        eager = gradients(theirs, lambda x: after(theirs(x)))
        exact = gradients(theirs.double(), lambda x: after(theirs(x)))
    if torch.cuda.get_device_capability() == (9, 0):
        assert "convt_ext.conv_transpose2d_then" in "".join(codes)
    for one, other, reference in zip(found, eager, exact, strict=True):
        allowed = 2 * (other - reference).norm() + 2e-3 * reference.norm()
        assert (one - reference).norm() <= allowed


@pytest.mark.parametrize("precision", ["exact", "tf32x3"])
def test_a_precision_by_name(precision):
    torch.manual_seed(0)
    layer = convt_ext.ConvTranspose2d(CHANNELS, CHANNELS, 4, 2, 1, precision=precision).cuda()
    x = torch.randn(2, CHANNELS, 16, 16, device="cuda")
    with torch.no_grad():
        found, (code,) = run_and_get_code(torch.compile(lambda x: layer(x).relu() * 0.5, fullgraph=True), x)
        expected = layer(x).relu() * 0.5
    assert "convt_ext.forward_then" in code
    assert torch.equal(found, expected)


def test_a_batch_of_any_size_is_one_program():
    torch.manual_seed(0)
    layer = convt_ext.ConvTranspose2d(CHANNELS, CHANNELS, 4, 2, 1).cuda()
    program = torch.compile(lambda x: torch.tanh(layer(x) * 0.5), fullgraph=True, dynamic=True)
    with torch.no_grad(), allow_tf32(False), torch.compiler.set_stance("default"):
        for batch in (2, 3, 5):
            x = torch.randn(batch, CHANNELS, 8, 8, device="cuda")
            torch.testing.assert_close(program(x), torch.tanh(layer(x) * 0.5), rtol=1e-5, atol=1e-5)
            torch.compiler.set_stance("fail_on_recompile")
    torch.compiler.set_stance("default")

"""`backend=` on the GPU: PyTorch's operator, kernels of convt_ext, or the faster one in a precision that both have."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from cases import named
from gradients import leaves
from served import SeenOps, served_by, switch, tf32

import convt_ext
from convt_ext import ConvTranspose2d, conv_transpose2d, explain, flags
from convt_ext.dispatch import planner, routing

CASE = named("many_channels_in")
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def same_algorithm_each_time():
    with switch(torch.backends.cudnn, "deterministic", True):
        yield


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_torch_has_pytorchs_bits_in_every_direction(dtype):
    operands = leaves(CASE, dtype, "cuda")
    theirs = F.conv_transpose2d(*operands, **CASE.arguments)
    expected = (theirs, *torch.autograd.grad(theirs.square().sum(), operands))
    for within in (flags(backend="torch"), flags()):
        with within:
            keywords = {} if convt_ext.dispatch.scopes.now().requested else {"backend": "torch"}
            assert served_by(conv_transpose2d, *operands, **CASE.arguments, **keywords) == "torch"
            mine = conv_transpose2d(*operands, **CASE.arguments, **keywords)
        found = (mine, *torch.autograd.grad(mine.square().sum(), operands))
        for one, right in zip(found, expected, strict=True):
            assert torch.equal(one, right)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_convt_ext_runs_its_kernel_in_the_precision_of_the_switches(dtype):
    operands = CASE.tensors(dtype, device="cuda")
    for on in (False, True):
        with tf32(on):
            assert served_by(conv_transpose2d, *operands, **CASE.arguments, backend="convt_ext") == "convt_ext"
            name = explain(*operands, **CASE.arguments).precision
            word = {"ieee": "exact", "f16": "half", "bf16": "half"}.get(name, name)
            found = conv_transpose2d(*operands, **CASE.arguments, backend="convt_ext")
            expected = conv_transpose2d(*operands, **CASE.arguments, backend="convt_ext", precision=word)
            assert torch.equal(found, expected)


@pytest.mark.parametrize(("dtype", "word", "on"), [
    (torch.float32, "tf32", True), (torch.float32, "ieee", False), (torch.float64, "ieee", True),
    (torch.bfloat16, "half", True),
])  # fmt: skip
def test_auto_is_the_default_where_the_switches_agree(dtype, word, on):
    operands = CASE.tensors(dtype, device="cuda")
    with tf32(on), torch.no_grad():
        assert (
            served_by(conv_transpose2d, *operands, **CASE.arguments, precision=word)
            == explain(*operands, **CASE.arguments).served_by
        )
        found = conv_transpose2d(*operands, **CASE.arguments, precision=word)
        assert torch.equal(found, conv_transpose2d(*operands, **CASE.arguments))


def test_pytorchs_operator_in_another_precision_is_an_error():
    operands = CASE.tensors(device="cuda")
    with tf32(False), pytest.raises(ValueError, match=r"computes float32 as 'ieee'.*precision='tf32'"):
        conv_transpose2d(*operands, **CASE.arguments, precision="tf32", backend="torch")


@pytest.mark.parametrize("backward", ["first", "second"])
def test_gradients_keep_the_precision_when_the_switches_change(monkeypatch, backward):
    """PyTorch's operator is chosen in float32; TF32 is on when the backward runs."""
    torch_is_faster = planner.BestPlan(estimate_us=300.0, torch_us=200.0, packed_bytes=0)
    monkeypatch.setattr(planner, "best_plan", lambda problem, direction=0, preferred=0: torch_is_faster)
    routing.forget()
    x, weight, _ = leaves(CASE, torch.float32, "cuda")
    with tf32(False), SeenOps() as seen:
        result = conv_transpose2d(x, weight, None, 2, precision="ieee")
    routing.forget()
    assert not any(name.startswith("convt_ext.") for name in seen.names)
    exact = [tensor.detach().double().requires_grad_() for tensor in (x, weight)]
    right = F.conv_transpose2d(*exact, None, 2)
    with tf32(True), SeenOps() as seen:
        found = torch.autograd.grad(result.pow(3).sum(), (x, weight), create_graph=True)
        expected = torch.autograd.grad(right.pow(3).sum(), exact, create_graph=True)
        if backward == "second":
            found = torch.autograd.grad(found[0].square().sum() + found[1].square().sum(), (x, weight))
            expected = torch.autograd.grad(expected[0].square().sum() + expected[1].square().sum(), exact)
    assert "convt_ext.grad_input.default" in seen.names
    for one, other in zip(found, expected, strict=True):
        assert (one.double() - other).norm() <= 1e-5 * other.norm()


@pytest.mark.parametrize("backend", ["convt_ext", "torch"])
def test_compiled_and_converted(backend):
    layer = torch.nn.ConvTranspose2d(32, 16, 4, 2, 1).cuda().bfloat16()
    x = torch.randn(4, 32, 40, 40, device="cuda", dtype=torch.bfloat16)
    expected = layer(x)
    mine = convt_ext.convert(layer, backend=backend)
    assert isinstance(mine, ConvTranspose2d)
    assert served_by(mine, x) == backend
    with SeenOps() as seen, torch.no_grad():
        found = torch.compile(mine)(x)
    assert ("convt_ext.forward.default" in seen.names) == (backend == "convt_ext")
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)

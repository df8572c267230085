"""Training on the CPU, with the ops computed by PyTorch: loops, autocast, FLOP counts, and no binary."""

from __future__ import annotations

import copy
import textwrap

import pytest
import torch
import torch.nn.functional as F
from cases import each_case, named
from cpu.python_process import run
from cpu_kernels import RAN
from gradients import leaves
from torch.utils.flop_counter import FlopCounterMode
from training import generator, train

from convt_ext import conv_transpose2d as ours
from convt_ext import convert
from convt_ext.dispatch import precision

pytestmark = pytest.mark.usefixtures("cpu_is_gpu")


@pytest.mark.parametrize("precision", [None, "exact"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_losses_are_the_originals(precision, layout):
    original = generator().to(memory_format=layout)
    mine = convert(copy.deepcopy(original), precision=precision)
    theirs, losses = train(original, 8), train(mine, 8)
    assert losses[-1] < losses[0]
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(theirs), rtol=1e-4, atol=1e-6)
    assert {"forward", "grad_input", "grad_weight", "grad_bias"} == set(RAN)
    assert mine[3].weight.grad.stride() == mine[3].weight.stride()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_casts_and_leaves_get_float32(dtype):
    x, weight, bias = leaves(named("k4s2p1"), torch.float32)
    with torch.autocast("cpu", dtype=dtype):
        result = ours(x, weight, bias, 2, 1, precision="exact")
        theirs = F.conv_transpose2d(x, weight, bias, 2, 1)
    assert RAN == ["forward"]
    assert result.dtype is theirs.dtype is dtype
    torch.testing.assert_close(result, theirs)
    grads = [torch.autograd.grad(one.float().square().sum(), (x, weight, bias)) for one in (result, theirs)]
    assert {one.dtype for one in grads[0]} == {torch.float32}
    torch.testing.assert_close(*grads, rtol=2e-2, atol=2e-1)


def test_autocast_without_a_precision_is_pytorchs(monkeypatch):
    """PyTorch's operator uses tensor cores here; nothing is cast twice before it."""
    monkeypatch.setattr(precision, "has_estimates", lambda served, _: served in precision.EXACT_CLASSES)
    x, weight, bias = leaves(named("k4s2p1"), torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ours(x, weight, bias, 2, 1).dtype is torch.bfloat16
    assert RAN == []


def test_autocast_leaves_float64_alone_and_mixes_the_rest():
    x, weight, bias = leaves(named("k4s2p1"), torch.float64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ours(x, weight, bias, 2, 1, precision="exact").dtype is torch.float64
        mixed = ours(x.half(), weight.float(), bias.bfloat16(), 2, 1, precision="exact")
        assert mixed.dtype is torch.bfloat16
        with pytest.raises(RuntimeError, match=r"should be the same|expected"):
            ours(x, weight.float(), bias, 2, 1, precision="exact")


def test_backward_under_autocast():
    """First and second derivatives use the dtype of their forward pass."""
    x, weight, bias = leaves(named("k4s2p1"), torch.float32)
    (grad,) = torch.autograd.grad(ours(x, weight, bias, 2, 1, precision="exact").square().sum(), x, create_graph=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        grad.square().sum().backward()
    assert weight.grad.dtype is torch.float32


@pytest.mark.parametrize("precision", [None, "exact"])
def test_deterministic_mode(precision):
    operands = leaves(named("k4s2p1"), torch.float32)
    torch.use_deterministic_algorithms(True)
    try:
        ours(*operands, 2, 1, precision=precision).sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert set(RAN) == {"forward", "grad_input", "grad_weight", "grad_bias"}


@each_case("k4s2p1", "k3s2p1op1", "kb81", "gcd_2", "groups_2")
def test_flops_of_a_step_are_pytorchs(case):
    counts = []
    for call in (lambda *a, **n: ours(*a, **n, precision="exact"), F.conv_transpose2d):
        operands = leaves(case, torch.float32)
        with FlopCounterMode(display=False) as counter:
            result = call(*operands, **case.arguments)
            if case.g == 1:  # PyTorch counts products between groups in gradients
                result.sum().backward()
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0


def test_frozen_and_shared_weights():
    x, weight, _ = leaves(named("k4s2p1"), torch.float64)
    frozen = weight.detach()
    ours(ours(x, weight, None, 2, 1)[:, :4], frozen, None, 2, 1).sum().backward()
    assert sorted(RAN) == ["forward", "forward", "grad_input", "grad_input", "grad_weight"]
    assert weight.grad is not None


def test_without_a_binary_training_is_pytorchs():
    """A CPU-only build has no compiled ops."""
    script = """
        import torch

        def refuse(path):
            raise OSError("no library")

        torch.ops.load_library = refuse
        import convt_ext
        assert convt_ext.build_info()["cuda"] is None
        x, w = torch.randn(1, 2, 3, 3, requires_grad=True), torch.randn(2, 3, 2, 2, requires_grad=True)
        call = lambda x, w: convt_ext.conv_transpose2d(x, w, stride=2)
        for function in (call, torch.compile(call, backend="aot_eager", fullgraph=True)):
            torch.autograd.grad(function(x, w).square().sum(), (x, w))
        print("fine")
    """
    assert run(textwrap.dedent(script)).strip() == "fine"

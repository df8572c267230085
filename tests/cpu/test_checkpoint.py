"""Non-reentrant checkpointing: the saved tensors of a recorded call do not depend on measurements made meanwhile."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from cpu_kernels import RAN, cpu_is_gpu
from torch import nn
from torch.utils.checkpoint import checkpoint

from convt_ext import _torch
from convt_ext import conv_transpose2d as ours
from convt_ext import epilogue as epilogues
from convt_ext.auto_dispatch import AutoDispatch
from convt_ext.functional import conv_transpose2d_then
from convt_ext.tuning import choices

pytestmark = pytest.mark.usefixtures("cpu_is_gpu")
__all__ = ["cpu_is_gpu"]

EPILOGUES = {
    "relu": [torch.relu],
    "mul_relu": [(torch.mul, 2.0), torch.relu],
    "by_channel": [(torch.mul, torch.rand(3, 1, 1) + 0.5), torch.relu],
    "add": [(torch.add, 1.0)],
    "div_tanh": [(torch.div, 2.0), torch.tanh],
    "residual": [(torch.add, torch.randn(2, 3, 6, 6)), torch.relu],
    "half_residual": [(torch.add, torch.randn(2, 3, 6, 6).bfloat16()), torch.relu],
    "gelu": [F.gelu],
    "prelu": [nn.PReLU()],
    "nothing": [],
}


@pytest.fixture(params=[False, True], ids=["ours", "torchs"])
def by_torch(request, monkeypatch):
    """Returns which directions PyTorch's operator computes."""
    choice = choices.Choice(request.param, 0, 1.0, 2.0, "estimated")
    monkeypatch.setattr(choices, "estimated", lambda problem, direction: choice)
    return request.param


@pytest.fixture(params=[(True, False), (False, True)], ids=["first", "then"])
def changing(request, monkeypatch):
    """Changes the choices of a problem on each query, as measurements in between do."""
    for name in ("serves", "is_recorded_by_torch"):
        answers = itertools.cycle(request.param)
        monkeypatch.setattr(AutoDispatch, name, lambda *_, answers=answers: next(answers))


def leaves():
    torch.manual_seed(0)
    return [torch.randn(size, requires_grad=True) for size in ((2, 3, 6, 6), (3, 3, 3, 3), (3,))]


def gradients(call, operands):
    return torch.autograd.grad(call(*operands).float().square().sum(), operands)


@pytest.mark.usefixtures("by_torch", "changing")
@pytest.mark.parametrize("lowers", [False, True], ids=["float32", "autocast"])
@pytest.mark.parametrize("name", EPILOGUES)
def test_a_recomputation_saves_the_same(name, lowers):
    entries = EPILOGUES[name]

    def block(x, weight, bias, operator=ours):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=lowers):
            if operator is ours:
                return conv_transpose2d_then(x, weight, bias, padding=1, epilogue=entries)
            return epilogues.apply(F.conv_transpose2d(x, weight, bias, padding=1), entries)

    operands = leaves()
    expected = gradients(lambda *tensors: block(*tensors, operator=F.conv_transpose2d), operands)
    for _ in range(3):
        found = gradients(lambda *tensors: checkpoint(block, *tensors, use_reentrant=False), operands)
        for one, other in zip(found, expected, strict=True):
            if lowers:  # eight bits, rounded after the convolution and after each step
                assert (one - other).norm() <= 2 * 2**-8 * other.norm()
            else:
                torch.testing.assert_close(one, other)


def test_other_calls_are_chosen_as_ever(by_torch):
    """Small calls without hooks keep PyTorch's operations; those with hooks run in one node of convt_ext."""
    operands = leaves()
    ours(*operands, activation="relu")
    assert "steps" not in RAN
    with torch.autograd.graph.saved_tensors_hooks(lambda one: one, lambda one: one):
        result = ours(*operands, activation="relu")
        assert type(result.grad_fn).__name__ == "ThenBackward"
        with torch.no_grad():
            assert ours(*operands, activation="relu").grad_fn is None


def test_a_release_without_that_name_is_watched_always(monkeypatch):
    """The fallback of fused.py keeps results correct."""
    monkeypatch.setattr(_torch, "saved_tensors_hooks", lambda _: True)
    result = ours(*leaves(), activation="relu")
    assert type(result.grad_fn).__name__ == "ThenBackward"

"""Calls that use the copies of a frozen weight, on the CPU: under autocast, with fused steps, and in compiled programs.

test_frozen.py tests when copies are made and dropped.
"""

from __future__ import annotations

import copy

import pytest
import torch
from cpu_kernels import RAN, cpu_is_gpu
from torch import nn
from torch._inductor import config

import convt_ext
from convt_ext import ConvTranspose2d, convert, planner
from convt_ext.compile import mode

pytestmark = pytest.mark.usefixtures("cpu_is_gpu", "packing")
__all__ = ["cpu_is_gpu"]

PACKS, PACKED = "forward_packing", "forward_packed"


@pytest.fixture
def packing(monkeypatch):
    """A planner with plans that pack the weight of `layer`."""
    monkeypatch.setattr(planner, "best_plan", lambda *_, **__: planner.BestPlan(1.0, 0.0, 4 * 6 * 9 * 4))


def layer() -> ConvTranspose2d:
    torch.manual_seed(0)
    return ConvTranspose2d(4, 6, 3, stride=2).eval()


def with_norm(*others: nn.Module) -> nn.Sequential:
    norm = nn.BatchNorm2d(6)
    with torch.no_grad():
        norm.running_var.uniform_(0.5, 2)
        norm.running_mean.normal_()
    return convert(nn.Sequential(nn.ConvTranspose2d(4, 6, 3, stride=2), norm, *others).eval(), fuse=True)


X = torch.randn(2, 4, 5, 6, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def check(frozen, plain, first, second, call=lambda model: model(X)):
    """Two calls run the ops `first` and `second`, with the results of `plain`, before and after a write."""
    for factor in (1, 0.5):
        for model in (frozen, plain):
            for weight in model.parameters():
                weight.mul_(factor)
        for expected_ops in (first, second):
            expected = call(plain)
            RAN.clear()
            result = call(frozen)
            assert list(RAN) == expected_ops
            torch.testing.assert_close(result, expected, rtol=0, atol=0)


def autocast(model):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return model(X)


def test_autocast_packs_the_cast_weight():
    plain = layer()
    frozen = convt_ext.freeze(copy.deepcopy(plain))
    check(frozen, plain, [PACKS], [PACKED], autocast)
    assert [one.weight.dtype for one in frozen._frozen._casts.values()] == [torch.bfloat16]


@torch.no_grad()
def test_autocast_casts_a_weight_that_no_kernel_packs_once(monkeypatch):
    monkeypatch.setattr(planner, "best_plan", lambda *_, **__: planner.BestPlan(1.0, 0.0, 0))
    frozen = convt_ext.freeze(layer())
    results = []
    for _ in range(2):
        results.append(autocast(frozen))
        (cast,) = frozen._frozen._casts.values()
        results.append(cast.weight)
    assert results[1] is results[3]
    torch.testing.assert_close(results[0], results[2], rtol=0, atol=0)


def test_autocast_of_a_call_that_records_gradients_casts_the_parameter():
    frozen = convt_ext.freeze(layer())
    autocast(frozen).sum().backward()
    assert frozen.weight.grad is not None
    assert not frozen._frozen._casts


def test_steps_are_fused_with_a_packed_weight():
    plain = convert(nn.Sequential(layer(), nn.ReLU()), fuse=True)
    frozen = convt_ext.freeze(copy.deepcopy(plain))
    check(frozen, plain, [PACKS, "steps"], [PACKED, "steps"])
    check(frozen, plain, [PACKS, "steps"], [PACKED, "steps"], autocast)


def test_a_folded_weight_is_packed():
    torch.manual_seed(0)
    plain = with_norm()
    check(convt_ext.freeze(copy.deepcopy(plain)), plain, [PACKS], [PACKED])
    plain = with_norm(nn.ReLU())
    frozen = convt_ext.freeze(copy.deepcopy(plain))
    check(frozen, plain, [PACKS, "steps"], [PACKED, "steps"])
    check(frozen, plain, [PACKS, "steps"], [PACKED, "steps"], autocast)


def test_a_residual_has_the_plan_for_residuals():
    plain = layer()
    frozen = convt_ext.freeze(copy.deepcopy(plain))
    residual = torch.randn(2, 6, 11, 13)

    def call(model):
        return convt_ext.conv_transpose2d(X, model.weight, model.bias, 2, residual=residual)

    check(frozen, plain, ["forward", "steps"], ["forward", "steps"], call)


def test_functional_calls_with_the_frozen_parameter():
    plain = layer()
    frozen = convt_ext.freeze(copy.deepcopy(plain))
    check(frozen, plain, [PACKS], [PACKED], lambda one: convt_ext.conv_transpose2d(X, one.weight, one.bias, 2))
    with convt_ext.enabled():
        check(frozen, plain, [PACKS], [PACKED], lambda one: nn.functional.conv_transpose2d(X, one.weight, one.bias, 2))


def test_layers_that_share_a_weight_share_its_copies():
    first, second = layer(), layer()
    second.weight = first.weight
    convt_ext.freeze(nn.Sequential(first, second))
    assert first._frozen is second._frozen
    first.train()
    assert second._frozen is not None


def compiled(model, **options):
    torch._dynamo.reset()
    return torch.compile(model, fullgraph=True, **options)


@pytest.mark.parametrize("then", [False, True])
@pytest.mark.parametrize("call", [lambda model: model(X), autocast], ids=["float32", "autocast"])
def test_compiled_programs_use_the_copies(monkeypatch, then, call):
    monkeypatch.setattr(mode, "MODE", mode.FUSED)
    plain = nn.Sequential(layer(), nn.ReLU()) if then else layer()
    frozen = convt_ext.freeze(copy.deepcopy(plain))
    steps = ["steps"] if then else []
    check(compiled(frozen), plain, [PACKS, *steps], [PACKED, *steps], call)


@torch.no_grad()
def test_a_program_is_compiled_again_after_unfreezing():
    frozen = convt_ext.freeze(layer())
    program = compiled(frozen)
    program(X)
    convt_ext.unfreeze(frozen)
    RAN.clear()
    program(X)
    assert RAN == ["forward"]


@pytest.mark.parametrize("call", [lambda model: model(X), autocast], ids=["float32", "autocast"])
def test_cuda_graphs_read_the_parameter(call):
    plain = layer()
    frozen = convt_ext.freeze(copy.deepcopy(plain))
    with config.patch({"triton.cudagraphs": True}):
        check(compiled(frozen), plain, ["forward"], ["forward"], call)


@pytest.mark.parametrize("call", [lambda model: model(X), autocast], ids=["float32", "autocast"])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_the_original_in_a_program_reads_the_parameter(monkeypatch, backend, call):
    monkeypatch.setattr(mode, "MODE", mode.ORIGINAL)
    plain = layer()
    frozen = convt_ext.freeze(copy.deepcopy(plain))
    expected = [] if backend == "inductor" else ["forward"]
    program = compiled(frozen, backend=backend)
    check(program, torch.compile(plain, backend=backend, fullgraph=True), expected, expected, call)


def test_compiled_training_does_not_use_them():
    frozen = convt_ext.freeze(layer())
    program = compiled(frozen)
    program(X).sum().backward()
    assert PACKS not in RAN
    assert frozen.weight.grad is not None

"""Calls that use the copies of a frozen weight, on the CPU: under autocast, with fused steps, and in compiled programs.

test_frozen.py tests when copies are made and dropped.
"""

from __future__ import annotations

import copy
import functools

import pytest
import torch
from cpu_kernels import RAN
from torch import nn
from torch._inductor import config

import convt_ext
from convt_ext import ConvTranspose2d, convert
from convt_ext.compile import mode

pytestmark = pytest.mark.usefixtures("cpu_is_gpu", "packing")

PACKS, PACKED = "forward_packing", "forward_packed"


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


def call_model(model):
    return model(X)


@torch.no_grad()
def check(plain, first, second, call=call_model, frozen_by=lambda model: model, plain_by=lambda model: model):
    """Two calls of a frozen copy run the ops `first` and `second`, with the results of `plain`, also after a write."""
    frozen, plain = frozen_by(convt_ext.freeze(copy.deepcopy(plain))), plain_by(plain)
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
    check(layer(), [PACKS], [PACKED], autocast)


@torch.no_grad()
def test_autocast_casts_a_weight_that_no_kernel_packs_once(packing):
    packing["packed"] = 0
    frozen = convt_ext.freeze(layer())
    results = []
    for _ in range(2):
        results.append(autocast(frozen))
        (cast,) = frozen._frozen._casts.values()
        results.append(cast.weight)
    assert results[1] is results[3]
    assert results[1].dtype is torch.bfloat16
    torch.testing.assert_close(results[0], results[2], rtol=0, atol=0)


def test_autocast_of_a_call_that_records_gradients_casts_the_parameter():
    frozen = convt_ext.freeze(layer())
    autocast(frozen).sum().backward()
    assert frozen.weight.grad is not None
    assert not frozen._frozen._casts


each_call = pytest.mark.parametrize("call", [call_model, autocast], ids=["float32", "autocast"])


@each_call
def test_steps_are_fused_with_a_packed_weight(call):
    check(convert(nn.Sequential(layer(), nn.ReLU()), fuse=True), [PACKS, "steps"], [PACKED, "steps"], call)


@each_call
def test_a_folded_weight_is_packed(call):
    torch.manual_seed(0)
    check(with_norm(), [PACKS], [PACKED])
    check(with_norm(nn.ReLU()), [PACKS, "steps"], [PACKED, "steps"], call)


def test_a_residual_has_the_plan_for_residuals():
    residual = torch.randn(2, 6, 11, 13)

    def call(model):
        return convt_ext.conv_transpose2d(X, model.weight, model.bias, 2, residual=residual)

    check(layer(), ["forward", "steps"], ["forward", "steps"], call)


def test_functional_calls_with_the_frozen_parameter():
    check(layer(), [PACKS], [PACKED], lambda one: convt_ext.conv_transpose2d(X, one.weight, one.bias, 2))
    with convt_ext.enabled():
        check(layer(), [PACKS], [PACKED], lambda one: nn.functional.conv_transpose2d(X, one.weight, one.bias, 2))


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
@each_call
def test_compiled_programs_use_the_copies(monkeypatch, then, call):
    monkeypatch.setattr(mode, "MODE", mode.FUSED)
    plain = nn.Sequential(layer(), nn.ReLU()) if then else layer()
    steps = ["steps"] if then else []
    check(plain, [PACKS, *steps], [PACKED, *steps], call, frozen_by=compiled)


@torch.no_grad()
def test_a_program_is_compiled_again_after_unfreezing():
    frozen = convt_ext.freeze(layer())
    program = compiled(frozen)
    program(X)
    convt_ext.unfreeze(frozen)
    RAN.clear()
    program(X)
    assert RAN == ["forward"]


@each_call
def test_cuda_graphs_read_the_parameter(call):
    with config.patch({"triton.cudagraphs": True}):
        check(layer(), ["forward"], ["forward"], call, frozen_by=compiled)


@each_call
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_the_original_in_a_program_reads_the_parameter(monkeypatch, backend, call):
    monkeypatch.setattr(mode, "MODE", mode.ORIGINAL)
    expected = [] if backend == "inductor" else ["forward"]
    by = functools.partial(torch.compile, backend=backend, fullgraph=True)
    torch._dynamo.reset()
    check(layer(), expected, expected, call, by, by)


def test_compiled_training_does_not_use_them():
    frozen = convt_ext.freeze(layer())
    program = compiled(frozen)
    program(X).sum().backward()
    assert PACKS not in RAN
    assert frozen.weight.grad is not None

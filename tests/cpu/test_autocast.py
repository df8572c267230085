"""Casts under autocast on the CPU: as many as PyTorch makes, none older than PyTorch's cache allows."""

from __future__ import annotations

import threading

import pytest
import torch
from cpu_kernels import cpu_is_gpu
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import convt_ext
from convt_ext import ConvTranspose2d, convert, ops

pytestmark = pytest.mark.usefixtures("cpu_is_gpu")
__all__ = ["cpu_is_gpu"]

BFLOAT16 = torch.bfloat16


class Casts(TorchDispatchMode):
    """Counts casts."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.number += func is torch.ops.aten._to_copy.default
        return func(*args, **(kwargs or {}))


def lowered(**named):
    return torch.autocast("cpu", dtype=BFLOAT16, **named)


def casts_of(model, x, calls=10, **named) -> int:
    with lowered(**named), Casts() as casts:
        for _ in range(calls):
            model(x)
    return casts.number


def frozen(model):
    model = convert(model.eval())
    convt_ext.freeze(model)
    return model


def plain_layer():
    return nn.ConvTranspose2d(3, 4, 4)


def with_relu():
    return nn.Sequential(plain_layer(), nn.ReLU()).eval()


MODELS = {
    "plain": (plain_layer, convert),
    "fused": (with_relu, lambda model: convert(model, fuse=True)),
}


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("records", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_as_many_casts_as_pytorch(name, records, cache):
    make, converted = MODELS[name]
    theirs, ours, x = make(), converted(make()), torch.randn(2, 3, 6, 6)
    with torch.set_grad_enabled(records):
        number = casts_of(theirs, x, cache_enabled=cache)
        assert number == (12 if cache else 30)
        assert casts_of(ours, x, cache_enabled=cache) == number
    for parameter in (*theirs.parameters(), *ours.parameters()):
        parameter.requires_grad_(False)
    assert casts_of(ours, x) == casts_of(theirs, x) == 30


@torch.no_grad()
def test_a_frozen_weight_is_cast_once():
    layer, x = frozen(plain_layer()), torch.randn(2, 3, 6, 6)
    assert casts_of(layer, x, cache_enabled=False) == 21  # ten times input and bias, once the weight
    assert casts_of(layer, x, cache_enabled=False) == 20


def test_gradients_flow_to_the_leaves():
    """Covers calls that share one cast, and calls after one that recorded nothing."""
    mine, x = ConvTranspose2d(3, 4, 4, precision="exact"), torch.randn(2, 3, 6, 6)
    theirs = nn.ConvTranspose2d(3, 4, 4)
    theirs.load_state_dict(mine.state_dict())
    found = []
    for model in (mine, theirs):
        with lowered():
            if model is mine:  # PyTorch's cache would lose the gradients of the calls that follow
                with torch.no_grad():
                    model(x)
                with torch.inference_mode():
                    model(x)
            (model(x) + model(x)).float().square().sum().backward()
            model(x).float().sum().backward()
        assert model.weight.grad.dtype is torch.float32
        found.append((model.weight.grad, model.bias.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-1)


@torch.no_grad()
def test_changed_weights_are_seen_when_pytorch_sees_them():
    """PyTorch keeps a cast until its region ends or its cache is cleared."""
    mine, x = ConvTranspose2d(3, 4, 4, bias=False), torch.randn(2, 3, 6, 6)
    theirs = nn.ConvTranspose2d(3, 4, 4, bias=False)
    theirs.load_state_dict(mine.state_dict())
    found = []
    for model in (mine, theirs):
        with lowered():
            before = model(x)
            model.weight.mul_(2)
            results = [model(x)]
            torch.clear_autocast_cache()
            results.append(model(x))
            model.weight = nn.Parameter(model.weight * 2)
            results.append(model(x))
            model.weight.data.mul_(2)
        with lowered():
            results.append(model(x))
        found.append([(result / before).nanmean().round().item() for result in results])
    assert found[0] == found[1] == [1, 2, 4, 8]


@torch.no_grad()
def test_casts_live_as_long_as_the_outermost_region():
    model, x = ConvTranspose2d(3, 4, 4), torch.randn(2, 3, 6, 6)
    with Casts() as casts:
        with lowered():
            model(x)
            with lowered():
                model(x)
            with torch.autocast("cpu", enabled=False):
                assert model(x).dtype is torch.float32
            model(x)
        assert casts.number == 3 + 2
        with lowered():
            model(x)
        assert casts.number == 5 + 3


def test_a_pytorch_without_the_function(monkeypatch):
    """The casts are made on every call then."""
    monkeypatch.setattr(ops, "autocast", None)
    assert casts_of(ConvTranspose2d(3, 4, 4), torch.randn(2, 3, 6, 6)) == 30


def test_nested_regions_of_two_dtypes():
    model, x = ConvTranspose2d(3, 4, 4), torch.randn(2, 3, 6, 6)
    with lowered():
        assert model(x).dtype is BFLOAT16
        with torch.autocast("cpu", dtype=torch.float16):
            assert model(x).dtype is torch.float16
            with lowered(cache_enabled=False):
                assert model(x).dtype is BFLOAT16
        assert model(x).dtype is BFLOAT16


def test_leaves_that_are_freed_are_not_mistaken():
    """New tensors may have the ids of old ones."""
    x = torch.ones(1, 1, 1, 1)
    with torch.no_grad(), lowered():
        for value in range(50):
            model = ConvTranspose2d(1, 1, 1, bias=False)
            model.weight = nn.Parameter(torch.full((1, 1, 1, 1), float(value)))
            assert model(x).item() == value


def test_threads():
    """A region that ends in one thread clears the cache that another one uses, as PyTorch's."""
    model, x = ConvTranspose2d(3, 4, 4), torch.randn(2, 3, 6, 6)
    with lowered():
        expected = model(x).detach()
    failures = []

    def work(records):
        try:
            for _ in range(50):
                with torch.set_grad_enabled(records), lowered():
                    for _ in range(2):
                        result = model(x)
                        assert torch.equal(result, expected)
                        assert result.requires_grad is records
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number % 2 == 0,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_modes_see_only_the_casts():
    """Recomputation then matches."""
    model, x = ConvTranspose2d(3, 4, 4), torch.randn(2, 3, 6, 6, requires_grad=True)
    seen = []

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with lowered(), Seen():
        model(x)
    assert seen.count(torch.ops.aten._to_copy.default) == 3
    assert torch.ops.convt_ext._autocast.default not in seen
    with lowered():
        result = checkpoint(model, x, use_reentrant=False)
    result.float().sum().backward()
    assert model.weight.grad is not None

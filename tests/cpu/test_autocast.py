"""Casts under autocast on the CPU: as many as PyTorch makes, none older than PyTorch's cache allows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from served import SeenOps
from torch import nn
from torch.utils.checkpoint import checkpoint

import convt_ext
from convt_ext import ConvTranspose2d, convert
from convt_ext.dispatch import ops

pytestmark = pytest.mark.usefixtures("cpu_is_gpu")

BFLOAT16 = torch.bfloat16


X = torch.randn(2, 3, 6, 6)


class Casts(SeenOps):
    """Counts casts."""

    @property
    def number(self) -> int:
        return self.names.count("aten._to_copy.default")


def lowered(**named):
    return torch.autocast("cpu", dtype=BFLOAT16, **named)


def casts_of(model, **named) -> int:
    with lowered(**named), Casts() as casts:
        for _ in range(10):
            model(X)
    return casts.number


def with_the_same_weights(**named):
    """Returns a layer of convt_ext, and PyTorch's."""
    mine, theirs = ConvTranspose2d(3, 4, 4, **named), nn.ConvTranspose2d(3, 4, 4, bias=named.get("bias", True))
    theirs.load_state_dict(mine.state_dict())
    return mine, theirs


def plain_layer():
    return nn.ConvTranspose2d(3, 4, 4)


MODELS = {
    "plain": (plain_layer, convert),
    "fused": (lambda: nn.Sequential(plain_layer(), nn.ReLU()).eval(), partial(convert, fuse=True)),
}


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("records", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_as_many_casts_as_pytorch(name, records, cache):
    make, converted = MODELS[name]
    theirs, ours = make(), converted(make())
    with torch.set_grad_enabled(records):
        number = casts_of(theirs, cache_enabled=cache)
        assert number == (12 if cache else 30)
        assert casts_of(ours, cache_enabled=cache) == number
    for parameter in (*theirs.parameters(), *ours.parameters()):
        parameter.requires_grad_(False)
    assert casts_of(ours) == casts_of(theirs) == 30


@torch.no_grad()
def test_a_frozen_weight_is_cast_once():
    layer = convert(plain_layer().eval())
    convt_ext.freeze(layer)
    assert casts_of(layer, cache_enabled=False) == 21  # ten times input and bias, once the weight
    assert casts_of(layer, cache_enabled=False) == 20


def test_gradients_flow_to_the_leaves():
    """Covers calls that share one cast, and calls after one that recorded nothing."""
    mine, theirs = with_the_same_weights(precision="exact")
    found = []
    for model in (mine, theirs):
        with lowered():
            if model is mine:  # PyTorch's cache would lose the gradients of the calls that follow
                for context in (torch.no_grad(), torch.inference_mode()):
                    with context:
                        model(X)
            (model(X) + model(X)).float().square().sum().backward()
            model(X).float().sum().backward()
        assert model.weight.grad.dtype is torch.float32
        found.append((model.weight.grad, model.bias.grad))
    torch.testing.assert_close(*found, rtol=2e-2, atol=2e-1)


@torch.no_grad()
def test_changed_weights_are_seen_when_pytorch_sees_them():
    """PyTorch keeps a cast until its region ends or its cache is cleared."""
    found = []
    for model in with_the_same_weights(bias=False):
        with lowered():
            before = model(X)
            model.weight.mul_(2)
            results = [model(X)]
            torch.clear_autocast_cache()
            results.append(model(X))
            model.weight = nn.Parameter(model.weight * 2)
            results.append(model(X))
            model.weight.data.mul_(2)
        with lowered():
            results.append(model(X))
        found.append([(result / before).nanmean().round().item() for result in results])
    assert found[0] == found[1] == [1, 2, 4, 8]


@torch.no_grad()
def test_casts_live_as_long_as_the_outermost_region():
    model = ConvTranspose2d(3, 4, 4)
    with Casts() as casts:
        with lowered():
            model(X)
            with lowered():
                model(X)
            with torch.autocast("cpu", enabled=False):
                assert model(X).dtype is torch.float32
            model(X)
        assert casts.number == 3 + 2
        with lowered():
            model(X)
        assert casts.number == 5 + 3


def test_a_pytorch_without_the_function(monkeypatch):
    """The casts are made on every call then."""
    monkeypatch.setattr(ops, "autocast", None)
    assert casts_of(ConvTranspose2d(3, 4, 4)) == 30


def test_nested_regions_of_two_dtypes():
    model = ConvTranspose2d(3, 4, 4)
    with lowered():
        assert model(X).dtype is BFLOAT16
        with torch.autocast("cpu", dtype=torch.float16):
            assert model(X).dtype is torch.float16
            with lowered(cache_enabled=False):
                assert model(X).dtype is BFLOAT16
        assert model(X).dtype is BFLOAT16


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
    model = ConvTranspose2d(3, 4, 4)
    with lowered():
        expected = model(X).detach()

    def work(records):
        for _ in range(50):
            with torch.set_grad_enabled(records), lowered():
                for _ in range(2):
                    result = model(X)
                    assert torch.equal(result, expected)
                    assert result.requires_grad is records

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, [True, False] * 2))


def test_modes_see_only_the_casts():
    """Recomputation then matches."""
    model, x = ConvTranspose2d(3, 4, 4), X.clone().requires_grad_()
    with lowered(), Casts() as seen:
        model(x)
    assert seen.number == 3
    assert "convt_ext._autocast.default" not in seen.names
    with lowered():
        result = checkpoint(model, x, use_reentrant=False)
    result.float().sum().backward()
    assert model.weight.grad is not None

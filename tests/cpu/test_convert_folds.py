"""A BatchNorm that convert(fuse=True) folds, on the CPU: its error bound, and detection of writes to its tensors."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from fusing_models import X, folding_bound, layer, randomized, with_norm
from torch import nn
from torch.nn.utils import parametrizations

import convt_ext
from convt_ext import convert


@pytest.fixture(autouse=True)
def seed():
    """For some weights ReLU makes every result 0 and hides changes of a weight."""
    torch.manual_seed(0)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("channels_last", [True, False])
@torch.no_grad()
def test_folding_is_within_its_bound(fused_calls, groups, bias, affine, channels_last):
    model = randomized(nn.Sequential(layer(groups=groups, bias=bias), nn.BatchNorm2d(6, affine=affine)))
    if channels_last:
        model.to(memory_format=torch.channels_last)
    exact, bound = copy.deepcopy(model).double()(X.double()), folding_bound(model[0], model[1], X)
    convert(model, fuse=True)
    assert ((model(X) - exact).abs() <= bound).all()
    assert len(fused_calls) == 1
    assert fused_calls[0][0] is not model[0].weight


# Writes that PyTorch counts.
COUNTED = [
    lambda model: model[1].running_mean.add_(1), lambda model: model[1].running_var.mul_(2),
    lambda model: model[0].weight.mul_(2), lambda model: model[0].bias.add_(1),
    lambda model: setattr(model[1], "eps", 0.5),
    lambda model: setattr(model[0], "weight", nn.Parameter(torch.randn_like(model[0].weight))),
    lambda model: setattr(model[0].weight, "data", torch.randn_like(model[0].weight)),
    lambda model: model.load_state_dict(randomized(with_norm()).state_dict()),
    lambda model: model.load_state_dict(randomized(with_norm()).state_dict(), assign=True),
    lambda model: model.half().float(),
    lambda model: [model.train(), model(X), model.eval()],
    lambda model: setattr(model, "1", randomized(nn.BatchNorm2d(6))),
]  # fmt: skip


def halve_through_data(model):
    """Writes as moving averages of models often do."""
    for one in (*model.parameters(), *model.buffers()):
        if one.is_floating_point():
            one.data.copy_(one.data * 0.5)


# Writes that PyTorch does not count.
UNCOUNTED = [
    halve_through_data,
    lambda model: model[0].weight.data.mul_(2), lambda model: model[1].running_var.data.mul_(2),
    lambda model: F.batch_norm(
        torch.randn(2, 6, 7, 7) * 5 + 3, model[1].running_mean, model[1].running_var, training=True, momentum=0.9
    ),
]  # fmt: skip


def seen(model, change):
    before = model(X)
    change(model)
    after = model(X)
    torch.testing.assert_close(after, nn.Sequential(*model)(X), rtol=1e-4, atol=1e-5)
    return not torch.allclose(after, before, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("change", COUNTED + UNCOUNTED)
@torch.no_grad()
def test_every_write_is_seen(fused_calls, change):
    assert seen(convert(randomized(with_norm()), fuse=True), change)
    assert len(fused_calls) >= 2


@torch.no_grad()
def test_training_that_counts_no_batches_is_seen():
    model = randomized(with_norm())
    model[1].num_batches_tracked = None
    assert seen(convert(model, fuse=True), lambda model: [model.train(), model(X), model.eval()])


@pytest.mark.parametrize("change", COUNTED)
@torch.no_grad()
def test_writes_that_pytorch_counts_are_seen_after_freezing(fused_calls, change):
    model = convert(randomized(with_norm()), fuse=True)
    convt_ext.freeze(model[0])
    assert seen(model, change)
    assert len(fused_calls) >= 2


@torch.no_grad()
def test_frozen_convolutions_keep_what_was_folded(fused_calls):
    model = convert(randomized(with_norm()), fuse=True)
    for _ in range(2):
        model(X)
    convt_ext.freeze(model[0])
    expected = model(X)
    assert torch.equal(model(X), expected)
    weights = [weight for weight, _ in fused_calls]
    assert len({id(weight) for weight in weights}) == 3
    assert weights[2] is weights[3]
    assert torch.equal(weights[0], weights[3])
    halve_through_data(model)
    assert torch.equal(model(X), expected)  # freeze() reports it
    convt_ext.freeze(model[0])
    torch.testing.assert_close(model(X), nn.Sequential(*model)(X), rtol=1e-4, atol=1e-5)
    halve_through_data(model)
    model.train().eval()
    torch.testing.assert_close(model(X), nn.Sequential(*model)(X), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_track_running_stats_switched_off_later():
    model = convert(randomized(with_norm()), fuse=True)
    model(X)
    model[1].track_running_stats = False
    torch.testing.assert_close(model(X), nn.Sequential(*model)(X), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_weights_larger_than_the_result_are_folded_where_that_is_kept(fused_calls):
    """Folding needs a pass over the weight, BatchNorm a pass over the result."""
    model, x = randomized(nn.Sequential(nn.ConvTranspose2d(4, 6, 9), nn.BatchNorm2d(6))), torch.randn(1, 4, 1, 1)
    weight = model[0].weight
    expected = convert(model, fuse=True)(torch.randn(1, 4, 1, 1)), model(x)
    assert weight.numel() == 4 * expected[0].numel()
    assert fused_calls == []
    convt_ext.freeze(model[0])
    torch.testing.assert_close(model(x), expected[1], rtol=1e-4, atol=1e-5)
    assert len(fused_calls) == 1


@torch.no_grad()
def test_a_parametrized_weight_is_folded_anew(fused_calls):
    model = randomized(nn.Sequential(parametrizations.weight_norm(layer()), nn.BatchNorm2d(6)))
    before = model(X)
    convert(model, fuse=True)
    torch.testing.assert_close(model(X), before, rtol=1e-4, atol=1e-5)
    model[0].bias.add_(1)
    assert not torch.allclose(model(X), before)
    assert len(fused_calls) == 2

"""convert(fuse=True) on the CPU: which modules are fused, which are not, and that results do not change."""

from __future__ import annotations

import copy
import logging
import pickle
import warnings

import pytest
import torch
import torch.nn.functional as F
from fusing_models import X, folding_bound, layer, randomized, with_norm
from torch import fx, nn
from torch.nn.utils import parametrizations

import convt_ext
from convt_ext import convert
from convt_ext.epilogue import graph


@pytest.mark.parametrize(
    "followers",
    [
        (nn.ReLU(),), (nn.LeakyReLU(0.3), nn.Tanh()), (nn.PReLU(6),), (nn.GELU("tanh"),), (nn.Dropout(), nn.SiLU()),
        (nn.Identity(), nn.Hardtanh(-0.1, 0.2)), (nn.ReLU(inplace=True), nn.Conv2d(6, 4, 1)),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("grad", [False, True])
def test_following_modules_are_fused_and_results_stay(fused_calls, followers, grad):
    model = randomized(nn.Sequential(nn.Conv2d(4, 4, 1), layer(), *followers))
    keys, parameters, before = list(model.state_dict()), list(model.parameters()), model(X)
    convert(model, fuse=True)
    with torch.set_grad_enabled(grad):
        assert torch.equal(model(X), before)
    assert len(fused_calls) == 1
    assert len(fused_calls[0][1]) == sum(not isinstance(one, (nn.Conv2d, nn.Dropout, nn.Identity)) for one in followers)
    assert list(model.state_dict()) == keys
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))


# Layers of one and three dimensions with their followers, and whether a BatchNorm is folded.
FOLLOWED = {
    "1d": (nn.ConvTranspose1d(4, 6, 3, groups=2), (nn.BatchNorm1d(6), nn.ReLU()), True),
    "3d": (nn.ConvTranspose3d(4, 6, (1, 3, 2), 2), (nn.Identity(), nn.BatchNorm3d(6), nn.GELU()), True),
    "3d_no_bias": (nn.ConvTranspose3d(4, 6, 3, bias=False), (nn.BatchNorm3d(6, affine=False), nn.PReLU(6)), True),
    "3d_relu": (nn.ConvTranspose3d(4, 6, 2), (nn.ReLU(), nn.BatchNorm3d(6)), False),
}


@pytest.mark.parametrize("name", FOLLOWED)
@pytest.mark.parametrize("way", ["sequential", "traced", "traced after conversion"])
@torch.no_grad()
def test_one_and_three_dimensions(fused_calls, name, way):
    conv, followers, is_folded = FOLLOWED[name]
    x = torch.randn(2, 4, 5, 6, 3)[(slice(None),) * 2 + (0,) * (3 - len(conv.stride))]
    plain = randomized(nn.Sequential(copy.deepcopy(conv), *followers))
    model = copy.deepcopy(plain)
    if way == "traced after conversion":
        model = convert(model)
    if way != "sequential":
        model = fx.symbolic_trace(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error" if is_folded else "ignore")
        convert(model, fuse=True)
    torch.testing.assert_close(model(x), plain(x), rtol=1e-4, atol=1e-5)
    [(weight, epilogue)] = fused_calls
    assert (torch.equal(weight, plain[0].weight), len(epilogue)) == (not is_folded, 1)
    if way != "sequential":
        assert graph.is_fused(model)
    plain.train(), model.train()
    torch.testing.assert_close(model(x), plain(x))


def test_training_computes_what_it_did(fused_calls):
    model = randomized(with_norm()).train()
    plain = copy.deepcopy(model)
    convert(model, fuse=True)
    for one in (model, plain):
        one(X).square().sum().backward()
        one.eval()(X).square().sum().backward()  # in eval mode gradients go through the BatchNorm too
    assert fused_calls == []
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)
    assert torch.equal(model[1].running_var, plain[1].running_var)


class Up(nn.Sequential):
    pass


def test_copies_pickles_and_slices(fused_calls):
    for make in (nn.Sequential, Up):
        model = convert(randomized(make(*with_norm())), fuse=True)
        with torch.no_grad():
            expected = model(X)
            for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
                fused_calls.clear()
                assert isinstance(other, make)
                assert torch.equal(other(X), expected)
                assert len(fused_calls) == 1
            assert torch.equal(F.relu(model[:2](X)), expected)


@torch.no_grad()
def test_hooks_added_later_see_what_they_would(fused_calls):
    model = convert(randomized(with_norm()), fuse=True)
    seen = []
    handle = model[1].register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    model(X)
    assert torch.equal(seen[0], model[0](X))
    assert fused_calls == []
    handle.remove()
    model(X)
    assert len(fused_calls) == 1


class OwnReLU(nn.ReLU):
    pass


class OwnForward(nn.Sequential):
    def forward(self, input):
        return super().forward(input) + 1


def changed(change):
    model = with_norm()
    change(model[1])
    return model


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.Sequential(layer(), nn.BatchNorm2d(6, track_running_stats=False)), "1 after 0 .*no running stat"),
        (lambda: nn.Sequential(layer(), nn.ReLU(), nn.BatchNorm2d(6)), "2 after 0 .*does not directly follow"),
        (lambda: nn.Sequential(layer(), OwnReLU()), "1 after 0 .*subclass"),
        (lambda: changed(lambda norm: norm.register_forward_hook(lambda *_: None)), "1 after 0 .*hooks"),
        (lambda: changed(lambda norm: setattr(norm, "forward", torch.neg)), "1 after 0 .*its forward was replaced"),
        (lambda: OwnForward(layer(), nn.ReLU()), "its own forward"),
        (lambda: nn.Sequential(layer(), nn.Conv2d(6, 4, 1)), "found nothing to fuse"),
    ],
)
def test_unfused_modules_are_named_and_compute_what_they_did(fused_calls, make, words):
    model = randomized(make())
    before = model(X)
    with pytest.warns(UserWarning, match=words) as caught:
        convert(model, fuse=True)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert torch.equal(model(X), before)


@pytest.mark.filterwarnings("error")
def test_fusions_are_logged(caplog):
    with caplog.at_level(logging.INFO, logger="convt_ext"):
        convert(nn.ModuleDict({"up": with_norm()}), fuse=True)
    assert caplog.records[-1].getMessage() == "fused up.0 with up.1, up.2"


def test_scripted_traced_and_compiled_models_run_the_modules(fused_calls):
    model = randomized(with_norm())
    before = model(X)
    convert(model, fuse=True)
    for other in (
        torch.jit.script(model), torch.jit.trace(model, X), torch.compile(model, backend="eager", fullgraph=True),
        fx.symbolic_trace(model),
    ):  # fmt: skip
        assert torch.equal(other(X), before)


# ---- a BatchNorm that is folded: its error bound, and detection of writes to its tensors


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


def assert_runs_its_modules(model):
    torch.testing.assert_close(model(X), nn.Sequential(*model)(X), rtol=1e-4, atol=1e-5)


def assert_seen(model, change):
    before = model(X)
    change(model)
    assert_runs_its_modules(model)
    assert not torch.allclose(model(X), before, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("change", COUNTED + UNCOUNTED)
@torch.no_grad()
def test_every_write_is_seen_and_after_freezing_those_that_pytorch_counts(fused_calls, change):
    for frozen in (False, True) if change in COUNTED else (False,):
        fused_calls.clear()
        model = convert(randomized(with_norm()), fuse=True)
        if frozen:
            convt_ext.freeze(model[0])
        assert_seen(model, change)
        assert len(fused_calls) >= 2


@torch.no_grad()
def test_training_that_counts_no_batches_is_seen():
    model = randomized(with_norm())
    model[1].num_batches_tracked = None
    assert_seen(convert(model, fuse=True), lambda model: [model.train(), model(X), model.eval()])


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
    assert_runs_its_modules(model)
    halve_through_data(model)
    model.train().eval()
    assert_runs_its_modules(model)


@torch.no_grad()
def test_track_running_stats_switched_off_later():
    model = convert(randomized(with_norm()), fuse=True)
    model(X)
    model[1].track_running_stats = False
    assert_runs_its_modules(model)


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

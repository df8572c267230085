"""convert(fuse=True) on the CPU: what is fused, what is left, and that models compute what they did."""

from __future__ import annotations

import copy
import logging
import pickle
import warnings

import pytest
import torch
import torch.nn.functional as F
from fusing_models import folding_bound, randomized
from torch import fx, nn
from torch.nn.utils import parametrizations

from convt_ext import convert
from convt_ext.fusing import chain

X = torch.randn(2, 4, 5, 6)


def layer(**settings):
    return nn.ConvTranspose2d(4, 6, 3, stride=2, **settings)


def with_norm(**settings):
    return nn.Sequential(layer(**settings), nn.BatchNorm2d(6), nn.ReLU())


@pytest.fixture
def calls(monkeypatch):
    """Weight and epilogue of each fused call."""
    found = []
    plain = chain.conv_transpose2d

    def recording(input, weight, *arguments, epilogue=(), **named):
        found.append((weight, epilogue))
        return plain(input, weight, *arguments, epilogue=epilogue, **named)

    monkeypatch.setattr(chain, "conv_transpose2d", recording)
    return found


@pytest.mark.parametrize(
    "followers",
    [
        (nn.ReLU(),), (nn.LeakyReLU(0.3), nn.Tanh()), (nn.PReLU(6),), (nn.GELU("tanh"),), (nn.Dropout(), nn.SiLU()),
        (nn.Identity(), nn.Hardtanh(-0.1, 0.2)), (nn.ReLU(inplace=True), nn.Conv2d(6, 4, 1)),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("grad", [False, True])
def test_what_follows_is_taken_and_results_stay(calls, followers, grad):
    model = randomized(nn.Sequential(nn.Conv2d(4, 4, 1), layer(), *followers))
    keys, parameters, before = list(model.state_dict()), list(model.parameters()), model(X)
    convert(model, fuse=True)
    with torch.set_grad_enabled(grad):
        assert torch.equal(model(X), before)
    assert len(calls) == 1
    assert len(calls[0][1]) == sum(not isinstance(one, (nn.Conv2d, nn.Dropout, nn.Identity)) for one in followers)
    assert list(model.state_dict()) == keys
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("channels_last", [True, False])
@torch.no_grad()
def test_folding_is_within_its_bound(calls, groups, bias, affine, channels_last):
    model = randomized(nn.Sequential(layer(groups=groups, bias=bias), nn.BatchNorm2d(6, affine=affine)))
    if channels_last:
        model.to(memory_format=torch.channels_last)
    exact, bound = copy.deepcopy(model).double()(X.double()), folding_bound(model[0], model[1], X)
    convert(model, fuse=True)
    assert ((model(X) - exact).abs() <= bound).all()
    assert len(calls) == 1
    assert calls[0][0] is not model[0].weight
    model(X)
    assert calls[1][0] is calls[0][0]  # kept


@pytest.mark.parametrize(
    "change",
    [
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
    ],
)  # fmt: skip
@torch.no_grad()
def test_changes_are_seen(calls, change):
    model = convert(randomized(with_norm()), fuse=True)
    before = model(X)
    change(model)
    plain = nn.Sequential(*model)
    after = model(X)
    assert len(calls) >= 2
    torch.testing.assert_close(after, plain(X), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(after, before, rtol=1e-4, atol=1e-5)


def test_training_computes_what_it_did(calls):
    model = randomized(with_norm()).train()
    plain = copy.deepcopy(model)
    convert(model, fuse=True)
    for one in (model, plain):
        one(X).square().sum().backward()
        one.eval()(X).square().sum().backward()  # in eval mode gradients go through the BatchNorm too
    assert calls == []
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)
    assert torch.equal(model[1].running_var, plain[1].running_var)


class Up(nn.Sequential):
    pass


def test_copies_pickles_and_slices(calls):
    for make in (nn.Sequential, Up):
        model = convert(randomized(make(*with_norm())), fuse=True)
        with torch.no_grad():
            expected = model(X)
            for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
                calls.clear()
                assert isinstance(other, make)
                assert other[0]._fold is None
                assert torch.equal(other(X), expected)
                assert len(calls) == 1
            assert torch.equal(F.relu(model[:2](X)), expected)


@torch.no_grad()
def test_hooks_added_later_see_what_they_would(calls):
    model = convert(randomized(with_norm()), fuse=True)
    seen = []
    handle = model[1].register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    model(X)
    assert torch.equal(seen[0], model[0](X))
    assert calls == []
    handle.remove()
    model(X)
    assert len(calls) == 1


class OwnReLU(nn.ReLU):
    pass


class OwnForward(nn.Sequential):
    def forward(self, input):
        return super().forward(input) + 1


def hooked():
    model = with_norm()
    model[1].register_forward_hook(lambda module, inputs, output: None)
    return model


def replaced():
    model = with_norm()
    model[1].forward = lambda input: input + 1
    return model


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.Sequential(layer(), nn.BatchNorm2d(6, track_running_stats=False)), "1 behind 0 .*no running stat"),
        (lambda: nn.Sequential(layer(), nn.ReLU(), nn.BatchNorm2d(6)), "2 behind 0 .*does not directly follow"),
        (lambda: nn.Sequential(layer(), OwnReLU()), "1 behind 0 .*subclass"),
        (hooked, "1 behind 0 .*hooks"),
        (replaced, "1 behind 0 .*its forward was replaced"),
        (lambda: OwnForward(layer(), nn.ReLU()), "forward of its own"),
        (lambda: nn.Sequential(layer(), nn.Conv2d(6, 4, 1)), "found nothing to fuse"),
    ],
)
def test_what_is_left_is_named_and_computes_what_it_did(calls, make, words):
    model = randomized(make())
    before = model(X)
    with pytest.warns(UserWarning, match=words) as caught:
        convert(model, fuse=True)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert torch.equal(model(X), before)


def test_fusions_are_logged(caplog):
    with caplog.at_level(logging.INFO, logger="convt_ext"), warnings.catch_warnings():
        warnings.simplefilter("error")
        convert(nn.ModuleDict({"up": with_norm()}), fuse=True)
    assert caplog.records[-1].getMessage() == "fused up.0 with up.1, up.2"


@torch.no_grad()
def test_a_parametrized_weight_is_folded_anew(calls):
    model = randomized(nn.Sequential(parametrizations.weight_norm(layer()), nn.BatchNorm2d(6)))
    before = model(X)
    convert(model, fuse=True)
    torch.testing.assert_close(model(X), before, rtol=1e-4, atol=1e-5)
    model[0].bias.add_(1)
    assert not torch.allclose(model(X), before)
    assert len(calls) == 2


def test_scripted_traced_and_compiled_models_run_the_modules(calls):
    model = randomized(with_norm())
    before = model(X)
    convert(model, fuse=True)
    for other in (
        torch.jit.script(model), torch.jit.trace(model, X), torch.compile(model, backend="eager", fullgraph=True),
        fx.symbolic_trace(model),
    ):  # fmt: skip
        assert torch.equal(other(X), before)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.act = layer(groups=2), nn.BatchNorm2d(6), nn.ReLU(inplace=True)
        self.side, self.last = nn.Conv2d(6, 6, 1), nn.ConvTranspose2d(6, 6, 1)

    def forward(self, x):
        y = self.act(self.norm(self.up(x)))
        z = self.last(y) + self.side(y)
        return 1 - F.leaky_relu(z.mul_(0.5), negative_slope=0.1).clamp(max=1.0)


@torch.no_grad()
def test_one_of_two_convolutions_takes_their_sum(calls):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.side = layer(), layer()

        def forward(self, x):
            return torch.relu(self.up(x) + self.side(x)) * 0.5

    plain = Two().eval()
    model = convert(fx.symbolic_trace(plain), fuse=True)
    assert torch.equal(model(X), plain(X))
    assert [len(entries) for _, entries in calls] == [3]


@torch.no_grad()
def test_traced_model(calls):
    plain = randomized(Net())
    traced = fx.symbolic_trace(plain)
    keys = list(traced.state_dict())
    model = convert(traced, fuse=True)
    assert list(model.state_dict()) == keys
    for other in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        calls.clear()
        torch.testing.assert_close(other(X), plain(X), rtol=1e-4, atol=1e-5)
        assert [len(entries) for _, entries in calls] == [1, 5]
    model.load_state_dict(randomized(Net()).state_dict())
    plain.load_state_dict(model.state_dict())
    torch.testing.assert_close(model(X), plain(X), rtol=1e-4, atol=1e-5)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(X), plain(X))


@fx.wrap
def doubled(x):
    return x.mul_(2)


@pytest.mark.parametrize(
    ("rest", "num_entries"),
    [
        (lambda up, x: up + up, None),  # two uses
        (lambda up, x: torch.add(up, x.mean(), alpha=2), None),
        (lambda up, x: torch.div(up, 0.3, rounding_mode="floor"), None),
        (lambda up, x: 2 / up, None),
        (lambda up, x: F.gelu(up, approximate="tanh"), 1),
        (lambda up, x: torch.relu(up) * x.mean(), 2),
        (lambda up, x: torch.clamp(up, -0.1, 0.1).sub_(x.sum()), 2),
        (lambda up, x: (x.mul_(2), torch.relu(up))[1] + x.mean(), None),  # up reads x before it is written to
        (lambda up, x: (doubled(x), torch.relu(up))[1] + x.mean(), None),
        (lambda up, x: torch.tanh(up) + torch.ones(3, 1, 6, 11, 13), 2),  # a larger result
    ],
)  # fmt: skip
@torch.no_grad()
@pytest.mark.filterwarnings("ignore:convt_ext.convert")
def test_functions_in_graphs(calls, rest, num_entries):
    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = layer()

        def forward(self, x):
            return rest(self.up(x), x)

    plain = Small().eval()
    expected = plain(X.clone())
    model = convert(fx.symbolic_trace(plain), fuse=True)
    assert torch.equal(model(X.clone()), expected)
    assert [len(entries) for _, entries in calls] == ([] if num_entries is None else [num_entries])

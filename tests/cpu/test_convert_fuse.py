"""convert(fuse=True) on the CPU: which modules are fused, which are not, and that results do not change."""

from __future__ import annotations

import copy
import logging
import pickle
import warnings

import pytest
import torch
import torch.nn.functional as F
from fusing_models import X, layer, randomized, with_norm
from torch import fx, nn

from convt_ext import convert


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
        (lambda: nn.Sequential(layer(), nn.BatchNorm2d(6, track_running_stats=False)), "1 after 0 .*no running stat"),
        (lambda: nn.Sequential(layer(), nn.ReLU(), nn.BatchNorm2d(6)), "2 after 0 .*does not directly follow"),
        (lambda: nn.Sequential(layer(), OwnReLU()), "1 after 0 .*subclass"),
        (hooked, "1 after 0 .*hooks"),
        (replaced, "1 after 0 .*its forward was replaced"),
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


def test_fusions_are_logged(caplog):
    with caplog.at_level(logging.INFO, logger="convt_ext"), warnings.catch_warnings():
        warnings.simplefilter("error")
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

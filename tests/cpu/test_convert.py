"""convert.py: every nn.ConvTranspose2d becomes a convt_ext.ConvTranspose2d, and nothing else changes."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import convt_ext
from convt_ext import ConvTranspose2d, LazyConvTranspose2d, convert, revert

PARAMETRIZATIONS = {
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "old_weight_norm": nn.utils.weight_norm,
    "old_spectral_norm": nn.utils.spectral_norm,
}


def layer(**settings):
    return nn.ConvTranspose2d(4, 4, 3, stride=2, **settings)


X = torch.randn(2, 4, 5, 6)


@pytest.fixture(autouse=True)
def no_warnings():
    """A conversion warns only if a test expects it, except for the deprecation of the old norms."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


def test_result_parameters_and_flags_stay():
    model = nn.Sequential(layer(), nn.ReLU(), nn.Sequential(layer(bias=False), nn.Conv2d(4, 4, 1))).eval()
    model.append(model[0])  # a shared module stays shared
    model[0].weight.requires_grad_(False)
    before, parameters, modules = model(X), dict(model.named_parameters()), list(model.modules())
    assert convert(model) is model
    assert model[3] is model[0]
    assert type(model[0]) is type(model[2][0]) is ConvTranspose2d
    assert type(model[2][1]) is nn.Conv2d
    assert all(new is old for new, old in zip(model.modules(), modules, strict=True))
    assert all(parameter is parameters[name] for name, parameter in model.named_parameters())
    assert not model[0].training
    assert not model[0].weight.requires_grad
    assert torch.equal(model(X), before)


def test_hooks_and_attributes_stay():
    one, calls = layer(), []
    one.register_forward_pre_hook(lambda *_: calls.append("before"))
    one.register_forward_hook(lambda *_: calls.append("after"))
    one.register_full_backward_hook(lambda *_: calls.append("backward"))
    one.register_buffer("counter", torch.zeros(1))
    one.note = "kept"
    convert(one)
    one(X.clone().requires_grad_()).sum().backward()
    assert calls == ["before", "after", "backward"]
    assert one.note == "kept"
    assert "counter" in one.state_dict()


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", PARAMETRIZATIONS)
def test_parametrizations_stay(name):
    torch.manual_seed(0)
    one = PARAMETRIZATIONS[name](layer()).eval()
    keys, parameters, before = list(one.state_dict()), list(one.parameters()), one(X)
    convert(one)
    assert isinstance(one, ConvTranspose2d)
    assert list(one.state_dict()) == keys
    assert all(new is old for new, old in zip(one.parameters(), parameters, strict=True))
    assert torch.equal(one(X), before)
    assert parametrize.is_parametrized(one) == (not name.startswith("old"))
    if not name.startswith("old"):  # those cannot be copied while their weight has a gradient
        assert isinstance(copy.deepcopy(one), ConvTranspose2d)
        assert torch.equal(copy.deepcopy(one)(X), before)


def test_copy_of_a_parametrized_module_is_not_converted_with_it():
    one = parametrizations.weight_norm(layer())
    other = copy.deepcopy(one)
    convert(one)
    assert not isinstance(other, ConvTranspose2d)
    assert torch.equal(one(X), other(X))


def test_lazy_module_is_converted_when_it_gets_its_channels():
    model = nn.Sequential(nn.LazyConvTranspose2d(4, 3))
    convert(model, precision="exact")
    assert isinstance(model[0], nn.LazyConvTranspose2d)
    model(X)
    assert type(model[0]) is ConvTranspose2d
    assert model[0].precision == "exact"


class Unknown(nn.ConvTranspose2d):
    def forward(self, input, output_size=None):
        return super().forward(input, output_size) + 1


def test_unknown_classes_are_left_alone_and_named():
    model = nn.Sequential(layer(), Unknown(4, 4, 3), parametrizations.weight_norm(Unknown(4, 4, 3)))
    model.add_module("patched", layer())
    model.patched.forward = lambda input: input
    with pytest.warns(UserWarning, match=r"left 3 module\(s\)") as caught:
        convert(model)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    message = str(caught[0].message)
    for part in ("1 (", "Unknown", "2 (", "patched (its forward was replaced"):
        assert part in message
    assert [type(model[0]), type(model[1]), type(model.patched)] == [ConvTranspose2d, Unknown, nn.ConvTranspose2d]
    assert not isinstance(model[2], ConvTranspose2d)


class Upsampling(nn.ConvTranspose2d):
    """A layer with its own sizes and helper."""

    def __init__(self, channels):
        super().__init__(channels, channels, 4, 2, 1)

    def doubled(self, input):
        return 2 * self(input)


class OtherPadding(nn.ConvTranspose2d):
    def _output_padding(self, *args, **kwargs):
        return [0, 0]


def test_subclasses_that_change_no_computation_are_converted():
    model = nn.Sequential(Upsampling(4), parametrizations.weight_norm(Upsampling(4)))
    expected = model(X)
    convert(model, precision="exact")
    for one in (model, copy.deepcopy(model[:1]), pickle.loads(pickle.dumps(model[:1]))):
        assert isinstance(one[0], Upsampling)
        assert isinstance(one[0], ConvTranspose2d)
        assert type(one[0]) is type(model[0])
        assert type(one[0]).__name__ == "Upsampling"
        assert one[0].precision == "exact"
        assert torch.equal(one[0].doubled(X), 2 * model[0](X))
    assert torch.equal(model(X), expected)
    parametrize.remove_parametrizations(model[1], "weight")
    assert type(model[1]) is type(model[0])
    with pytest.warns(UserWarning, match="OtherPadding"):
        assert type(convert(OtherPadding(4, 4, 3))) is OtherPadding


def test_revert():
    lazy = nn.Sequential(nn.LazyConvTranspose2d(4, 3))
    model = nn.ModuleList([layer(), Upsampling(4), *(make(layer()) for make in PARAMETRIZATIONS.values()), lazy])
    types = [type(one) for one in model.modules()]
    convert(model, precision="exact", fuse=False)
    assert isinstance(model[0], ConvTranspose2d)
    convt_ext.freeze(model.eval()[0])
    assert revert(model) is model
    for now, before in zip(model.modules(), types, strict=True):
        is_parametrized = before.__module__ == parametrize.__name__
        assert type(now).__bases__ == before.__bases__ if is_parametrized else type(now) is before
        assert not {"precision", "_frozen", "_requested"} & vars(now).keys()
    assert all(one(X).shape == (2, 4, 11, 13) for one in (model[0], *model[2:6]))
    assert type(revert(LazyConvTranspose2d(4, 3))) is nn.LazyConvTranspose2d
    parametrize.remove_parametrizations(model[2], "weight")
    assert type(model[2]) is nn.ConvTranspose2d


def test_revert_of_fused_models():
    model = convert(nn.Sequential(layer(), nn.ReLU()), fuse=True)
    assert type(model) is not nn.Sequential
    assert [type(one) for one in revert(model).modules()] == [nn.Sequential, nn.ConvTranspose2d, nn.ReLU]
    traced = convert(torch.fx.symbolic_trace(nn.Sequential(layer(), nn.ReLU())), fuse=True)
    model = nn.Sequential(convert(layer()), traced)
    with pytest.raises(ValueError, match="fusion of a traced graph"):
        revert(model)
    assert type(model[0]) is ConvTranspose2d
    with pytest.raises(TypeError, match="revert expects"):
        revert([layer()])


def test_a_filter_chooses():
    model = nn.ModuleDict({"big": layer(), "small": nn.ConvTranspose2d(4, 4, 1)})
    asked = []

    def keep(module, name):
        asked.append(name)
        return module.kernel_size == (3, 3)

    convert(model, filter_fn=keep)
    assert asked == ["big", "small"]
    assert [type(one) for one in model.values()] == [ConvTranspose2d, nn.ConvTranspose2d]
    assert type(convert(layer(), filter_fn=lambda module, name: name != "")) is nn.ConvTranspose2d


def test_precision():
    model = nn.Sequential(layer(), ConvTranspose2d(4, 4, 3, precision="aten"))
    convert(model)
    assert [one.precision for one in model] == [None, "aten"]
    convert(model, precision="exact")
    assert [one.precision for one in model] == ["exact", "exact"]
    convert(model)
    assert [one.precision for one in model] == ["exact", "exact"]
    convert(model, precision=None)
    assert [one.precision for one in model] == [None, None]
    for precision in ("fast", 1):
        with pytest.raises(ValueError, match="precision must be one of"):
            convert(model, precision=precision)
    with pytest.raises(TypeError, match=r"expects a torch\.nn\.Module, but got list"):
        convert([layer()])

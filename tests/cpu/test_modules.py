"""modules.py: convt_ext.ConvTranspose2d differs from PyTorch's only in the implementation."""

from __future__ import annotations

import copy
import inspect
import io
import pickle

import bad_input
import pytest
import torch
from torch import nn

from convt_ext import ConvTranspose2d, conv_transpose2d, convert
from convt_ext.modules import LazyConvTranspose2d

SETTINGS = [
    {"stride": 2, "padding": 1},
    {"stride": (2, 3), "padding": (1, 2), "output_padding": (1, 2), "bias": False},
    {"stride": 2, "groups": 2, "dilation": (2, 1)},
    {"dtype": torch.float64},
]


def both(precision=None, **settings):
    """Returns equal layers of PyTorch and of convt_ext, from one seed."""
    torch.manual_seed(0)
    theirs = nn.ConvTranspose2d(4, 6, (3, 4), **settings)
    torch.manual_seed(0)
    return theirs, ConvTranspose2d(4, 6, (3, 4), precision=precision, **settings)


@pytest.mark.parametrize("settings", SETTINGS)
def test_same_parameters_and_result(settings):
    theirs, ours = both(**settings)
    assert isinstance(ours, nn.ConvTranspose2d)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, other)
    x = torch.randn(2, 4, 5, 6, dtype=settings.get("dtype"))
    assert torch.equal(ours(x), theirs(x))
    assert torch.equal(ours(x[0]), theirs(x[0]))
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())


def test_constructor_accepts_pytorchs_arguments():
    positional = ConvTranspose2d(4, 6, 3, 2, 1, 1, 2, False, 1, "zeros", None, torch.float64)
    assert positional.weight.dtype is torch.float64
    assert (positional.groups, positional.bias) == (2, None)
    with pytest.raises(TypeError):
        ConvTranspose2d(4, 6, 3, 2, 1, 1, 2, False, 1, "zeros", None, torch.float64, "exact")
    for arguments in ({"padding_mode": "reflect"}, {"groups": 3}, {"groups": 0}):
        theirs = bad_input.outcome(nn.ConvTranspose2d, 4, 6, 3, **arguments)
        assert bad_input.outcome(ConvTranspose2d, 4, 6, 3, **arguments) == theirs


def test_constructor_has_pytorchs_signature():
    """The names, the order and the defaults are PyTorch's; the others are keywords."""
    *mine, precision, backend = inspect.signature(ConvTranspose2d).parameters.values()
    theirs = list(inspect.signature(nn.ConvTranspose2d).parameters.values())
    assert [(one.name, one.default) for one in mine] == [(one.name, one.default) for one in theirs]
    assert (precision.name, precision.kind) == ("precision", inspect.Parameter.KEYWORD_ONLY)
    assert (backend.name, backend.kind) == ("backend", inspect.Parameter.KEYWORD_ONLY)


def test_forward_has_pytorchs_signature():
    names = list(inspect.signature(ConvTranspose2d.forward).parameters)
    assert names == list(inspect.signature(nn.ConvTranspose2d.forward).parameters)


@pytest.mark.parametrize(
    "size", [(9, 12), (2, 6, 10, 13), [10, 13], torch.Size([10, 13]), (11, 13), (9, 11), (9,), (1, 9, 12)]
)
def test_output_size(size):
    theirs, ours = both(stride=2, padding=1)
    x = torch.randn(2, 4, 5, 6)
    mine, other = (bad_input.outcome(layer, x, size) for layer in (ours, theirs))
    assert torch.equal(mine, other) if isinstance(other, torch.Tensor) else mine == other


def test_padding_mode_set_later_is_an_error():
    theirs, ours = both()
    theirs.padding_mode = ours.padding_mode = "reflect"
    x = torch.randn(2, 4, 5, 6)
    assert bad_input.outcome(ours, x) == bad_input.outcome(theirs, x)


def test_precision():
    layer = ConvTranspose2d(4, 6, 3, precision="exact")
    assert layer.precision == "exact"
    assert "precision='exact'" in repr(layer)
    assert "precision" not in repr(ConvTranspose2d(4, 6, 3))
    assert repr(ConvTranspose2d(4, 6, 3, backend="torch")).endswith(", backend='torch')")
    with pytest.raises(ValueError, match="backend must be one of 'auto', 'convt_ext', 'torch', but got 'cudnn'"):
        ConvTranspose2d(4, 6, 3, backend="cudnn")
    with pytest.raises(ValueError, match="precision must be one of"):
        ConvTranspose2d(4, 6, 3, precision="fast")
    assert layer(torch.ones(1, 4, 2, 2)).shape == (1, 6, 4, 4)


def test_precision_and_backend_reach_the_functional(monkeypatch):
    seen = []
    monkeypatch.setattr("convt_ext.modules.conv_transpose2d", lambda *args, **named: seen.append(named))
    ConvTranspose2d(4, 6, 3, precision="aten", backend="convt_ext")(torch.ones(1, 4, 2, 2))
    ConvTranspose2d(4, 6, 3)(torch.ones(1, 4, 2, 2))
    assert seen == [{"precision": "aten", "backend": "convt_ext"}, {"precision": None, "backend": None}]


@pytest.mark.parametrize("copier", ["deepcopy", "pickle", "torch.save"])
def test_copies(copier):
    layer = ConvTranspose2d(4, 6, 3, stride=2, precision="aten").eval()
    if copier == "deepcopy":
        other = copy.deepcopy(layer)
    elif copier == "pickle":
        other = pickle.loads(pickle.dumps(layer))
    else:
        buffer = io.BytesIO()
        torch.save(layer, buffer)
        buffer.seek(0)
        other = torch.load(buffer, weights_only=False)
    assert type(other) is ConvTranspose2d
    assert (other.precision, other.training) == ("aten", False)
    x = torch.randn(1, 4, 3, 3)
    assert torch.equal(other(x), layer(x))


def test_a_converted_model_loads_with_weights_only():
    """It loads as PyTorch's does, if convt_ext's classes are registered as safe instead of PyTorch's."""
    buffers, loaded = [], []
    original = nn.Sequential(nn.ConvTranspose2d(4, 6, 3, stride=2), nn.ReLU())
    for model, safe in ((original, nn.ConvTranspose2d), (convert(copy.deepcopy(original), "exact"), ConvTranspose2d)):
        buffers.append(io.BytesIO())
        torch.save(model, buffers[-1])
        buffers[-1].seek(0)
        with torch.serialization.safe_globals([nn.Sequential, nn.ReLU, safe]):
            loaded.append(torch.load(buffers[-1], weights_only=True))
    x = torch.randn(1, 4, 3, 3)
    assert type(loaded[1][0]) is ConvTranspose2d
    assert loaded[1][0].precision == "exact"
    assert torch.equal(loaded[1](x), loaded[0](x))


def test_state_of_an_older_object():
    """An object that was pickled without a precision, as for PyTorch's class."""
    state = nn.ConvTranspose2d(4, 6, 3).__dict__
    layer = ConvTranspose2d.__new__(ConvTranspose2d)
    layer.__setstate__(state)
    assert layer.precision is None
    assert layer(torch.ones(1, 4, 2, 2)).shape == (1, 6, 4, 4)


def test_lazy():
    lazy = LazyConvTranspose2d(6, 3, stride=2, precision="exact")
    assert isinstance(lazy, nn.LazyConvTranspose2d)
    x = torch.randn(2, 4, 5, 6)
    first = lazy(x)
    assert type(lazy) is ConvTranspose2d
    assert (lazy.in_channels, lazy.precision) == (4, "exact")
    assert torch.equal(lazy(x), first)


def test_half_and_to():
    layer = ConvTranspose2d(4, 6, 3).to(torch.bfloat16)
    assert layer(torch.ones(1, 4, 2, 2, dtype=torch.bfloat16)).dtype is torch.bfloat16
    assert layer.to("meta")(torch.empty(1, 4, 2, 2, dtype=torch.bfloat16, device="meta")).is_meta


@pytest.mark.parametrize("precision", [None, "aten"])
def test_symbolic_trace_keeps_the_precision(precision):
    """torch.fx records convt_ext's function; with an output_size the module must be a leaf."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            _, self.up = both(precision=precision, stride=2)
            self.up.backend = "convt_ext"
            self.output_size = None

        def forward(self, x):
            return self.up(x, self.output_size)

    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, module, name):
            return isinstance(module, ConvTranspose2d) or super().is_leaf_module(module, name)

    model, x = Model(), torch.randn(2, 4, 5, 6)
    traced = torch.fx.symbolic_trace(model)
    calls = [node for node in traced.graph.nodes if node.op == "call_function"]
    keywords = {"precision": precision, "backend": "convt_ext"}
    assert [(node.target, node.kwargs) for node in calls] == [(conv_transpose2d, keywords)]
    for one in (traced, pickle.loads(pickle.dumps(traced))):
        assert torch.equal(one(x), model(x))
    model.output_size = (12, 14)
    traced = torch.fx.GraphModule(model, Tracer().trace(model))
    assert torch.equal(traced(x), model(x))
    assert "conv_transpose2d(x, x" in torch.fx.symbolic_trace(lambda x: conv_transpose2d(x, x)).code


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
@pytest.mark.parametrize("precision", [None, "exact"])
def test_scripts(precision):
    """TorchScript runs PyTorch's operator for any precision, as docs/guide.md states."""
    _, ours = both(precision=precision, stride=2)
    x = torch.randn(2, 4, 5, 6)
    scripted = torch.jit.script(ours)
    assert torch.equal(scripted(x), ours(x))
    assert torch.equal(scripted(x, [12, 14]), ours(x, [12, 14]))

"""modules.py: convt_ext's modules differ from PyTorch's only in the implementation."""

from __future__ import annotations

import copy
import inspect
import io
import pickle

import bad_input
import pytest
import torch
from torch import nn

from convt_ext import (
    ConvTranspose1d,
    ConvTranspose2d,
    LazyConvTranspose1d,
    LazyConvTranspose2d,
    conv_transpose2d,
    convert,
    functional,
)

LAYERS = {1: (nn.ConvTranspose1d, ConvTranspose1d), 2: (nn.ConvTranspose2d, ConvTranspose2d)}
LAZY = {1: (nn.LazyConvTranspose1d, LazyConvTranspose1d), 2: (nn.LazyConvTranspose2d, LazyConvTranspose2d)}
SETTINGS = [
    (1, {"stride": 2, "padding": 1}),
    (1, {"stride": (3,), "output_padding": (2,), "bias": False}),
    (1, {"stride": 2, "groups": 2, "dilation": 2}),
    (1, {"dtype": torch.float64}),
    (2, {"stride": 2, "padding": 1}),
    (2, {"stride": (2, 3), "padding": (1, 2), "output_padding": (1, 2), "bias": False}),
    (2, {"stride": 2, "groups": 2, "dilation": (2, 1)}),
    (2, {"dtype": torch.float64}),
]
each_dims = pytest.mark.parametrize("dims", [1, 2])


def both(dims, precision=None, **settings):
    """Returns equal layers of PyTorch and of convt_ext, from one seed."""
    theirs, ours = LAYERS[dims]
    torch.manual_seed(0)
    one = theirs(4, 6, (3, 4)[-dims:], **settings)
    torch.manual_seed(0)
    return one, ours(4, 6, (3, 4)[-dims:], precision=precision, **settings)


def image(dims, dtype=None):
    return torch.randn(2, 4, *(5, 6)[-dims:], dtype=dtype)


@pytest.mark.parametrize(("dims", "settings"), SETTINGS)
def test_same_parameters_and_result(server, dims, settings):
    theirs, ours = both(dims, **settings)
    assert isinstance(ours, LAYERS[dims][0])
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, other)
    x = image(dims, settings.get("dtype"))
    assert torch.equal(ours(x), theirs(x))
    assert torch.equal(ours(x[0]), theirs(x[0]))
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())


@each_dims
def test_signatures_and_errors_are_pytorchs(dims):
    """The names, the order and the defaults are PyTorch's; the others are keywords."""
    of_pytorch, of_ours = LAYERS[dims]
    *mine, precision, backend = inspect.signature(of_ours).parameters.values()
    theirs = list(inspect.signature(of_pytorch).parameters.values())
    assert [(one.name, one.default) for one in mine] == [(one.name, one.default) for one in theirs]
    assert (precision.name, backend.name) == ("precision", "backend")
    assert {precision.kind, backend.kind} == {inspect.Parameter.KEYWORD_ONLY}
    of_forward = [list(inspect.signature(one.forward).parameters) for one in (of_pytorch, of_ours)]
    assert of_forward[0] == of_forward[1]
    for arguments in ({"padding_mode": "reflect"}, {"groups": 3}, {"groups": 0}):
        expected = bad_input.outcome(of_pytorch, 4, 6, 3, **arguments)
        assert bad_input.outcome(of_ours, 4, 6, 3, **arguments) == expected
    theirs, ours = both(dims)
    theirs.padding_mode = ours.padding_mode = "reflect"
    assert bad_input.outcome(ours, image(dims)) == bad_input.outcome(theirs, image(dims))


@pytest.mark.parametrize(
    "size",
    [
        (12,), [13], (2, 6, 13), torch.Size([13]), (14,), (11,),
        (9, 12), (2, 6, 10, 13), [10, 13], torch.Size([10, 13]), (11, 13), (9, 11), (9,), (1, 9, 12),
    ],
)  # fmt: skip
@each_dims
def test_output_size(dims, size):
    theirs, ours = both(dims, stride=2, padding=1)
    x = image(dims)
    mine, other = (bad_input.outcome(layer, x, size) for layer in (ours, theirs))
    assert torch.equal(mine, other) if isinstance(other, torch.Tensor) else mine == other


@each_dims
def test_precision_and_backend(dims):
    of_ours = LAYERS[dims][1]
    layer = of_ours(4, 6, 3, precision="exact")
    assert layer.precision == "exact"
    assert "precision='exact'" in repr(layer)
    assert repr(of_ours(4, 6, 3, backend="torch")).endswith(", backend='torch')")
    with pytest.raises(ValueError, match="backend must be one of 'auto', 'convt_ext', 'torch', but got 'cudnn'"):
        of_ours(4, 6, 3, backend="cudnn")
    with pytest.raises(ValueError, match="precision must be one of"):
        of_ours(4, 6, 3, precision="fast")
    assert layer(image(dims)).shape == (2, 6, *(7, 8)[-dims:])


@each_dims
def test_precision_and_backend_reach_the_functional(monkeypatch, dims):
    seen = []
    monkeypatch.setitem(functional.FUNCTIONS, dims, lambda *args, **named: seen.append(named))
    LAYERS[dims][1](4, 6, 3, precision="aten", backend="convt_ext")(image(dims))
    LAYERS[dims][1](4, 6, 3)(image(dims))
    assert seen == [{"precision": "aten", "backend": "convt_ext"}, {"precision": None, "backend": None}]


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


@each_dims
def test_lazy(dims):
    of_pytorch, of_ours = LAZY[dims]
    lazy, x = of_ours(6, 3, stride=2, precision="exact"), image(dims)
    assert isinstance(lazy, of_pytorch)
    for layer, precision in ((lazy, "exact"), (convert(of_pytorch(6, 3, stride=2)), None)):
        first = layer(x)
        assert type(layer) is LAYERS[dims][1]
        assert (layer.in_channels, layer.precision) == (4, precision)
        assert torch.equal(layer(x), first)


@pytest.mark.parametrize("precision", [None, "aten"])
def test_symbolic_trace_keeps_the_precision(precision):
    """torch.fx records convt_ext's function; with an output_size the module must be a leaf."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            _, self.up = both(2, precision=precision, stride=2)
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
@each_dims
@pytest.mark.parametrize("precision", [None, "exact"])
def test_scripts(dims, precision):
    """TorchScript runs PyTorch's operator for any precision, as docs/guide.md states."""
    _, ours = both(dims, precision=precision, stride=2)
    x, scripted = image(dims), torch.jit.script(ours)
    assert torch.equal(scripted(x), ours(x))
    size = [12, 14][-dims:]
    assert torch.equal(scripted(x, size), ours(x, size))

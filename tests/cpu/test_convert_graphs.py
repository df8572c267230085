"""convert(fuse=True) on models that torch.fx has traced, on the CPU: results do not change."""

from __future__ import annotations

import copy
import operator
import pickle
import re

import numpy
import pytest
import torch
import torch.nn.functional as F
from fusing_models import X, layer, randomized
from torch import fx, nn

from convt_ext import conv_transpose2d, convert
from convt_ext.epilogue import graph


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.act = layer(groups=2), nn.BatchNorm2d(6), nn.ReLU(inplace=True)
        self.side, self.last = nn.Conv2d(6, 6, 1), nn.ConvTranspose2d(6, 6, 1)

    def forward(self, x):
        y = self.act(self.norm(self.up(x)))
        z = self.last(y) + self.side(y)
        return 1 - F.leaky_relu(z.mul_(0.5), negative_slope=0.1).clamp(max=1.0)


@fx.wrap
def doubled(x):
    return x.mul_(2)


@pytest.mark.parametrize(
    ("rest", "num_entries"),
    [
        (lambda up, x, side: up + up, None),  # two uses
        (lambda up, x, side: torch.add(up, x.mean(), alpha=2), None),
        (lambda up, x, side: torch.div(up, 0.3, rounding_mode="floor"), None),
        (lambda up, x, side: 2 / up, None),
        (lambda up, x, side: F.gelu(up, approximate="tanh"), 1),
        (lambda up, x, side: torch.relu(up) * x.mean(), 2),
        (lambda up, x, side: torch.clamp(up, -0.1, 0.1).sub_(x.sum()), 2),
        (lambda up, x, side: (x.mul_(2), torch.relu(up))[1] + x.mean(), None),  # up reads x before it is written to
        (lambda up, x, side: (doubled(x), torch.relu(up))[1] + x.mean(), None),
        (lambda up, x, side: torch.tanh(up) + torch.ones(3, 1, 6, 11, 13), 2),  # a larger result
        (lambda up, x, side: torch.relu(up + side) * 0.5, 3),  # one of two convolutions fuses their sum
    ],
)  # fmt: skip
@torch.no_grad()
@pytest.mark.filterwarnings("ignore:convt_ext.convert")
def test_functions_in_graphs(fused_calls, rest, num_entries):
    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.side = layer(), layer()

        def forward(self, x):
            return rest(self.up(x), x, self.side(x) if num_entries == 3 else None)

    plain = Small().eval()
    expected = plain(X.clone())
    model = convert(fx.symbolic_trace(plain), fuse=True)
    assert torch.equal(model(X.clone()), expected)
    assert [len(entries) for _, entries in fused_calls] == ([] if num_entries is None else [num_entries])


class Behind(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.up, self.function = layer(), function

    def forward(self, x, other):
        return torch.relu(self.function(F.leaky_relu(self.up(x)), other))


def outcome(model, *inputs):
    """The result, or the type of the error."""
    try:
        return model(*inputs)
    except Exception as error:
        return type(error)


def assert_same_outcome(model, plain, x, other):
    expected, found = outcome(plain, x, other), outcome(model, x, other)
    assert type(found) is type(expected), other
    if isinstance(expected, torch.Tensor):
        assert found.dtype is expected.dtype, other
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    else:
        assert found is expected, other


class Halved(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        result = super().__torch_function__(function, types, arguments, keywords or {})
        return result * 0.5 if function is torch.Tensor.add else result


class Added:
    def __radd__(self, other):
        return other - 1

    def __mul__(self, other):
        return other * 3


TENSORS = [
    torch.rand(6, 1, 1), torch.rand(6, 1, 1).double(), torch.rand(6, 1, 1).half(), torch.rand(2, 6, 11, 13).bfloat16(),
    torch.ones(6, 1, 1).long(), torch.ones(6, 1, 1) > 0, torch.ones(6, 1, 1) * 1j, torch.rand(3, 1, 6, 1, 1),
    torch.rand(1, 2, 6, 11, 13), torch.rand(4, 6, 11, 13), torch.rand(5), torch.tensor(0.3), torch.tensor(0.3).double(),
    torch.tensor(1j), torch.tensor(2), torch.tensor(True), torch.rand(0), torch.rand(6, 1, 1).as_subclass(Halved),
    torch.rand(6, 11, 13).to_sparse(), nn.Parameter(torch.rand(6, 1, 1)),
]  # fmt: skip
NUMBERS = [
    2, 0.5, True, None, "text", 1j, 10**400, float("nan"), numpy.float32(0.3), numpy.float64(0.3), numpy.int64(2),
    numpy.bool_(True), numpy.ones((6, 1, 1), "float32"), [1.0], Added(),
]  # fmt: skip
SPELLINGS = {
    "y + t": lambda y, t: y + t,
    "t - y": lambda y, t: t - y,
    "t * y": lambda y, t: t * y,
    "torch.sub": torch.sub,
    "F.softplus": lambda y, t: F.softplus(y, beta=t),
    "F.leaky_relu": lambda y, t: F.leaky_relu(y, t, inplace=True),
    "F.hardtanh": lambda y, t: F.hardtanh(y, max_val=t, min_val=-1),
    "torch.clamp": lambda y, t: torch.clamp(y, max=t),
    "clamp_": lambda y, t: y.clamp_(t),
    "operator.iadd": operator.add,
    "add_": lambda y, t: y.add_(t),
    "mul_": lambda y, t: y.mul_(t),
    "div_": lambda y, t: y.div_(other=t),
    "sigmoid_": lambda y, t: y.sigmoid_().sub_(t),
}


def traced(name):
    found = fx.symbolic_trace(Behind(SPELLINGS[name]).eval())
    for node in found.graph.nodes:
        if name == "operator.iadd" and node.target is operator.add:
            node.target = operator.iadd  # as Dynamo has it; tracing makes `+` of `+=`
    found.recompile()
    return found


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.filterwarnings("ignore")
@torch.no_grad()
def test_operands_of_every_kind_do_what_they_did(name, dtype):
    plain = traced(name).to(dtype)
    model = convert(copy.deepcopy(plain), fuse=True)
    assert sum(node.target is graph.run_chain for node in model.graph.nodes) == 1
    for other in (*TENSORS, *NUMBERS):
        assert_same_outcome(model, plain, X.to(dtype), other)


@pytest.mark.parametrize("name", ["add_", "mul_", "operator.iadd"])
@pytest.mark.parametrize("lowered", [False, True])
@torch.no_grad()
@pytest.mark.usefixtures("cpu_is_gpu")
def test_kernels_take_operands_that_change_no_dtype(fused_calls, name, lowered):
    """In bfloat16, by itself or by autocast."""
    plain = traced(name)
    plain, x = (plain, X) if lowered else (plain.bfloat16(), X.bfloat16())
    model = convert(copy.deepcopy(plain), precision="half", fuse=True)
    convert(plain, precision="half")
    with torch.autocast("cpu", torch.bfloat16, enabled=lowered):
        for other, num_entries in (
            (torch.rand(6, 1, 1).bfloat16(), 3), (2, 3), (torch.tensor(0.3), 3), (torch.rand(6, 1, 1), 1),
            (torch.rand(3, 6, 11, 13).bfloat16(), 1), (torch.rand(1, 2, 6, 11, 13).bfloat16(), 1),
        ):  # fmt: skip
            fused_calls.clear()
            assert_same_outcome(model, plain, x, other)
            assert [len(entries) for _, entries in fused_calls] == [num_entries], other


@torch.no_grad()
def test_modules_with_unsupported_numbers_run_unchanged(fused_calls):
    followers = nn.LeakyReLU(numpy.float32(0.3)), nn.Hardtanh(0, numpy.float32(1)), nn.Softplus(torch.tensor(2.0))
    plain = nn.Sequential(layer(), nn.Tanh(), *followers)
    model = convert(copy.deepcopy(plain), fuse=True)
    assert torch.equal(model(X), plain(X))
    assert [len(entries) for _, entries in fused_calls] == [1]


class Nested(nn.Module):
    """A Sequential inside a model with its own forward."""

    def __init__(self):
        super().__init__()
        self.body, self.up, self.norm = nn.Sequential(layer(groups=2), nn.ReLU()), layer(), nn.BatchNorm2d(6)

    def forward(self, x):
        return torch.tanh(self.norm(self.up(x))) * self.body(x)


ORDERS = {
    "trace, fuse": lambda model: convert(fx.symbolic_trace(model), fuse=True),
    "convert, trace, fuse": lambda model: convert(fx.symbolic_trace(convert(model)), fuse=True),
    "trace, convert, fuse": lambda model: convert(convert(fx.symbolic_trace(model)), fuse=True),
    "fuse, trace, fuse": lambda model: convert(fx.symbolic_trace(convert(model, fuse=True)), fuse=True),
    "convert, trace, convert, trace, fuse": lambda model: convert(
        fx.symbolic_trace(convert(fx.symbolic_trace(convert(model)))), fuse=True
    ),
}


@pytest.mark.parametrize(
    ("order", "make", "num_entries"), [("trace, fuse", Net, [1, 5]), *((order, Nested, [1, 2]) for order in ORDERS)]
)
@torch.no_grad()
def test_models_are_fused_in_every_order(fused_calls, order, make, num_entries):
    plain = randomized(make())
    traced = ORDERS[order](copy.deepcopy(plain))
    assert traced.state_dict().keys() == plain.state_dict().keys()
    for model in (traced, copy.deepcopy(traced), pickle.loads(pickle.dumps(traced))):
        fused_calls.clear()
        torch.testing.assert_close(model(X), plain(X), rtol=1e-4, atol=1e-5)
        assert sorted(len(entries) for _, entries in fused_calls) == num_entries
    model.load_state_dict(randomized(plain).state_dict())
    torch.testing.assert_close(model(X), plain(X), rtol=1e-4, atol=1e-5)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(X), plain(X), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_advice_works_once_it_was_given(fused_calls):
    plain = randomized(Net())
    model = copy.deepcopy(plain)
    with pytest.warns(UserWarning, match=re.escape("convert(torch.fx.symbolic_trace(model), fuse=True)")):
        convert(model, precision="aten", fuse=True)
    torch.testing.assert_close(convert(torch.fx.symbolic_trace(model), fuse=True)(X), plain(X), rtol=1e-4, atol=1e-5)
    assert len(fused_calls) == 2


@pytest.mark.usefixtures("cpu_is_gpu")
def test_calls_of_our_function_are_fused_with_their_precision(fused_calls):
    def both(x, weight):
        return torch.relu(conv_transpose2d(x, weight, stride=2, precision="exact"))

    weight = torch.randn(4, 6, 3, 3, requires_grad=True)
    model = convert(fx.symbolic_trace(both), fuse=True)
    model(X, weight).sum().backward()
    assert len(fused_calls) == 1
    grad, weight.grad = weight.grad, None
    both(X, weight).sum().backward()
    assert torch.equal(grad, weight.grad)
    dynamic = fx.symbolic_trace(lambda x, w, stride: torch.relu(conv_transpose2d(x, w, stride=stride)))
    with pytest.warns(UserWarning, match="found nothing"):
        convert(dynamic, fuse=True)


@pytest.mark.parametrize("package", ["torch_utils", "mathematics", "builtins_of_mine"])
@torch.no_grad()
def test_functions_of_packages_with_similar_names_may_write(package):
    def scale(x):
        return x.mul_(2)

    scale.__module__ = package
    traced = fx.Graph()
    x = traced.placeholder("x")
    up, scaled = traced.call_module("up", (x,)), traced.call_function(scale, (x,))
    traced.output((traced.call_function(torch.relu, (up,)), scaled))
    plain = fx.GraphModule(nn.ModuleDict({"up": layer()}), traced)
    with pytest.warns(UserWarning, match="relu.* after up .*may write"):
        model = convert(copy.deepcopy(plain), fuse=True)
    assert torch.equal(model(X.clone())[0], plain(X.clone())[0])

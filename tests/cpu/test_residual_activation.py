"""The keywords `residual` and `activation`: activation(conv_transpose2d(...) + residual), as PyTorch computes it."""

from __future__ import annotations

import weakref

import pytest
import torch
import torch.nn.functional as F
from cpu_kernels import RAN, needs_binary
from torch import nn

import convt_ext
from convt_ext import conv_transpose2d as ours
from convt_ext import functional
from convt_ext.functional import conv_transpose_then

# An activation, PyTorch's function for it, and whether a kernel supports it.
ACTIVATIONS = {
    "relu": ("relu", torch.relu, True),
    "gelu": ("gelu", F.gelu, True),
    "silu": ("silu", F.silu, True),
    "tanh": ("tanh", torch.tanh, True),
    "sigmoid": ("sigmoid", torch.sigmoid, True),
    "leaky_relu": ("leaky_relu", F.leaky_relu, True),
    "hardswish": ("hardswish", F.hardswish, True),
    "mish": ("mish", F.mish, True),
    "function": (F.relu6, F.relu6, True),
    "module": (nn.LeakyReLU(0.3), nn.LeakyReLU(0.3), True),
    "prelu": (nn.PReLU(6), F.prelu, True),
    "lambda": (lambda y: y.sin() * 2, lambda y: y.sin() * 2, False),
    "unknown_module": (nn.Softmax(1), lambda y: y.softmax(1), False),
}


def operands(requires_grad=False):
    generator = torch.Generator().manual_seed(3)
    return [
        torch.randn(size, generator=generator).requires_grad_(requires_grad)
        for size in ((2, 4, 5, 6), (4, 6, 3, 3), (6,))
    ]


@pytest.mark.parametrize("has_residual", [False, True])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_result_is_pytorchs(server, name, has_residual):
    activation, function, is_known = ACTIVATIONS[name]
    residual = torch.randn(2, 6, 7, 8) if has_residual else None
    tensors = operands()
    expected = F.conv_transpose2d(*tensors)
    expected = expected if residual is None else expected + residual
    expected = function(expected, activation.weight) if name == "prelu" else function(expected)
    with torch.no_grad():
        torch.testing.assert_close(ours(*tensors, residual=residual, activation=activation), expected)
        assert ("steps" in RAN) == (server == "ours" and (is_known or has_residual))
        if server == "pytorch" and has_residual:
            return
        torch._dynamo.reset()
        compiled = torch.compile(
            lambda *tensors: ours(*tensors, residual=residual, activation=activation), backend="eager", fullgraph=True
        )
        torch.testing.assert_close(compiled(*tensors), expected)


@pytest.mark.parametrize("name", ["relu", "silu", "lambda"])
def test_gradients(server, name):
    activation, function, _ = ACTIVATIONS[name]
    leaves = [*operands(True), torch.randn(6, 1, 1, requires_grad=True)]
    results = (
        ours(*leaves[:3], residual=leaves[3], activation=activation),
        function(F.conv_transpose2d(*leaves[:3]) + leaves[3]),
    )
    found, expected = (torch.autograd.grad(result.square().sum(), leaves) for result in results)
    torch.testing.assert_close(found, expected)


def test_nothing_is_no_step(cpu_is_gpu):
    ours(*operands(), residual=None, activation=None)
    assert RAN == ["forward"]


@pytest.mark.parametrize("under", ["call", "compile", "explain"])
def test_invalid_residuals_and_activations(under):
    call = {"call": ours, "explain": convt_ext.explain}.get(under) or torch.compile(ours, backend="eager")
    unknown = r"activation must be 'relu', .*'mish', or a function or module, but got 'swish'"
    for named, kind, words in (
        ({"activation": "swish"}, ValueError, unknown),
        ({"activation": 3}, TypeError, "activation must be a name, a function, a module or None, but got 3"),
        ({"residual": 0.5}, TypeError, "residual must be a tensor or None, but got 0.5"),
    ):
        with pytest.raises(kind, match=words):
            call(*operands(), **named)
    with pytest.raises(TypeError, match=r"add\(\)"):  # PyTorch's words
        ours(*operands(), activation=torch.add)


@needs_binary
@pytest.mark.parametrize("word", ["tf32", "exact"])
def test_explain_reports_where_steps_run(word):
    x, weight = torch.empty(8, 64, 32, 32, device="meta"), torch.empty(64, 64, 4, 4, device="meta")

    def epilogue(**named):
        return convt_ext.explain(x, weight, stride=2, padding=1, precision=word, **named).epilogue

    where = "in the kernel" if word == "tf32" else "in one pass over the result"
    assert epilogue(residual=torch.empty(1), activation="silu") == f"add, silu: {where}"
    assert epilogue(activation=nn.Softmax(1)) == "Softmax: after the kernel"
    assert epilogue() == ""


def test_symbolic_traces_hold_pytorchs_functions(server):
    def call(x, weight, bias, residual):
        return ours(x, weight, bias, stride=2, padding=1, residual=residual, activation="relu")

    traced = torch.fx.symbolic_trace(call)
    assert [node.target for node in traced.graph.nodes if node.op == "call_function"] == [ours, torch.add, torch.relu]
    arguments = (*operands(), torch.randn(2, 6, 9, 11))
    torch.testing.assert_close(traced(*arguments), call(*arguments))


def test_a_compiled_step_accepts_changing_numbers():
    compiled = torch.compile(
        lambda x, weight, factor: conv_transpose_then(2, x, weight, None, epilogue=[(torch.mul, factor)]),
        backend="eager", fullgraph=True, dynamic=True,
    )  # fmt: skip
    x, weight, _ = operands()
    for factor in (2.5, 3.5):
        torch.testing.assert_close(compiled(x, weight, factor), F.conv_transpose2d(x, weight) * factor)


def test_steps_by_pytorchs_functions_hold_no_more_than_two_results(monkeypatch):
    """PyTorch's functions, one after the other, do not need memory for three results either."""
    convolve, seen = functional.torchs_or_a_tools, []

    def convolve_and_watch(*arguments):
        found = convolve(*arguments)
        seen.append(weakref.ref(found))
        return found

    def second_step(self, input):
        seen.append(seen.pop()() is not None)
        return F.relu(input)

    monkeypatch.setattr(functional, "torchs_or_a_tools", convolve_and_watch)
    monkeypatch.setattr(nn.ReLU, "forward", second_step)
    x, weight, _ = operands()
    model = nn.Sequential(convt_ext.ConvTranspose2d(4, 6, 3), nn.Tanh(), nn.ReLU()).eval()
    with torch.no_grad():
        ours(x, weight, residual=torch.ones(1), activation=nn.ReLU())
        convt_ext.convert(model, fuse=True)(x)
    assert seen == [False] * 2

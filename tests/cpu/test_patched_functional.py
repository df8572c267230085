"""Tools that replace torch.nn.functional.conv_transpose2d, and how the package finds PyTorch's operator then."""

from __future__ import annotations

import logging
import threading

import pytest
import torch
import torch.nn.functional as F
from cases import named
from cpu_kernels import RAN
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.overrides import TorchFunctionMode

import convt_ext
from convt_ext import conv_transpose2d as ours
from convt_ext import use_precision
from convt_ext.dispatch import planner, replaced

pytestmark = pytest.mark.usefixtures("cpu_is_gpu")

BUILTIN = torch.conv_transpose2d


@pytest.fixture
def seen(monkeypatch):
    """Records the arguments of each call of a tool's replacement of PyTorch's function."""
    calls = []

    def counting(input, weight, *args, **kwargs):
        calls.append((input, weight, *args))
        return BUILTIN(input, weight, *args, **kwargs)

    monkeypatch.setattr(F, "conv_transpose2d", counting)
    monkeypatch.setattr(replaced, "_logged", False)
    return calls


def operands():
    return named("k4s2p1").tensors()


def expected(*tensors):
    return BUILTIN(*tensors, 2, 1)


def test_a_tool_sees_each_call_once(seen):
    tensors = operands()
    assert torch.equal(ours(*tensors, 2, 1), expected(*tensors))
    assert len(seen) == 1
    assert seen[0] == (*tensors, 2, 1, 0, 1, 1)
    assert RAN == []
    model = convt_ext.convert(nn.Sequential(nn.ConvTranspose2d(6, 10, 4, 2, 1), nn.ConvTranspose2d(10, 3, 3)).eval())
    convt_ext.freeze(model[0])
    with torch.no_grad():
        model(torch.randn(2, 6, 8, 8))
    assert len(seen) == 3
    assert RAN == []


def test_the_result_of_the_tool_counts_and_gradients_flow(monkeypatch):
    monkeypatch.setattr(F, "conv_transpose2d", lambda *args: BUILTIN(*args) * 3)
    x, weight, bias = (tensor.requires_grad_() for tensor in operands())
    residual = bias.view(-1, 1, 1)
    for activation in (torch.relu, "relu"):
        result = ours(x, weight, bias, 2, 1, residual=residual, activation=activation)
        assert torch.equal(result, (expected(x, weight, bias) * 3 + residual).relu())
    result.sum().backward()
    assert weight.grad is not None
    assert RAN == []


def test_an_explicit_precision_runs_our_kernels(seen):
    ours(*operands(), 2, 1, precision="exact")
    with use_precision("exact"):
        ours(*operands(), 2, 1)
    assert seen == []
    assert RAN == ["forward"] * 2
    ours(*(tensor.to(torch.complex64) for tensor in operands()), 2, 1, precision="exact")  # which is PyTorch's
    assert len(seen) == 1


def test_a_tool_that_calls_us(monkeypatch):
    calls = []
    monkeypatch.setattr(F, "conv_transpose2d", lambda *args: calls.append(args) or ours(*args))
    assert torch.equal(ours(*operands(), 2, 1), expected(*operands()))
    with pytest.raises(RuntimeError):
        ours(torch.ones(1), torch.ones(1))
    ours(*operands(), 2, 1)
    assert len(calls) == 3
    assert RAN == ["forward"] * 2
    monkeypatch.setattr(F, "conv_transpose2d", lambda *args: ours(*args))
    counter = CompileCounterWithBackend("eager")
    torch.compile(lambda *tensors: ours(*tensors, 2, 1), backend=counter, fullgraph=True)(*operands())
    assert str(counter.graphs[0].graph).count("conv_transpose2d.default") == 1


def test_our_function_in_the_place_of_pytorchs(monkeypatch, caplog):
    monkeypatch.setattr(F, "conv_transpose2d", ours)
    monkeypatch.setattr(replaced, "_logged", False)
    assert torch.equal(F.conv_transpose2d(*operands(), 2, 1), expected(*operands()))
    assert RAN == ["forward"]
    cpu = [tensor.to(torch.complex64) for tensor in operands()]
    assert torch.equal(F.conv_transpose2d(*cpu, 2, 1), expected(*cpu))
    assert not caplog.records


def test_the_guard_is_of_a_thread(monkeypatch):
    """The tool also receives calls of another thread while this one is inside the tool's function."""
    calls = []

    def counting(*args):
        calls.append(threading.current_thread())
        if len(calls) == 1:
            thread = threading.Thread(target=ours, args=(*operands(), 2, 1))
            thread.start()
            thread.join()
        return BUILTIN(*args)

    monkeypatch.setattr(F, "conv_transpose2d", counting)
    ours(*operands(), 2, 1)
    assert len(set(calls)) == 2


def test_it_is_logged_once(seen, caplog):
    with caplog.at_level(logging.WARNING, "convt_ext"):
        for _ in range(2):
            ours(*operands(), 2, 1)
    assert [record.name for record in caplog.records] == ["convt_ext"]
    assert "counting replaces torch.nn.functional.conv_transpose2d" in caplog.text


def test_compiled_code_calls_the_tool_too(seen):
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(lambda *tensors: ours(*tensors, 2, 1), backend=counter, fullgraph=True)
    assert torch.equal(compiled(*operands()), expected(*operands()))
    assert len(seen) == 1
    assert "torch.conv_transpose2d" in str(counter.graphs[0].graph)
    assert "convt_ext" not in str(counter.graphs[0].graph)


def test_a_mode_sees_pytorchs_own_function():
    found = []

    class Counting(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            found.append(function is F.conv_transpose2d)
            return function(*args, **(kwargs or {}))

    with Counting():
        ours(*operands(), 2, 1)
    assert found.count(True) == 1


def test_fallbacks_of_the_package_are_pytorchs(monkeypatch):
    """A call that falls back to PyTorch does not reach the tool a second time."""
    monkeypatch.setattr(planner, "best_plan", lambda *arguments: planner.BestPlan(30.0, 1.0, 0))
    calls = []
    monkeypatch.setattr(F, "conv_transpose2d", lambda *args: calls.append(args) or ours(*args))
    assert torch.equal(ours(*operands(), 2, 1), expected(*operands()))
    assert len(calls) == 1
    assert RAN == []

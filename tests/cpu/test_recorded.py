"""Calls that an autograd node of PyTorch records (kernels/binding/eager.cpp), and the cases that run Python."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from cases import named
from cpu_kernels import needs_binary
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from convt_ext import conv_transpose2d as ours
from convt_ext.dispatch import ops, planner, routing

pytestmark = [needs_binary, pytest.mark.usefixtures("cpu_is_gpu")]

BY_TORCH, BY_PYTHON = "ConvolutionOverrideableBackward0", "_ForwardBackward"


def leaves(dtype=torch.float64):
    return [tensor.requires_grad_() for tensor in named("k4s2p1").tensors(dtype)]


def name_of_node(result):
    return result.grad_fn.name()


def grads(call, operands, **named):
    result = call(*operands, 2, 1, **named)
    torch.manual_seed(1)
    return torch.autograd.grad(result, operands, torch.randn_like(result))


def by_torch(monkeypatch, direction):
    """Makes PyTorch's operator faster in one direction."""
    plans = {True: planner.BestPlan(30.0, 20.0, 0), False: planner.BestPlan(30.0, 90.0, 0)}
    monkeypatch.setattr(planner, "best_plan", lambda problem, asked: plans[asked == direction])


@pytest.mark.parametrize("precision", [None, "exact"])
def test_light_calls_are_recorded_by_torch(monkeypatch, precision):
    operands = leaves(torch.float32)
    assert name_of_node(ours(*operands, 2, 1, precision=precision)) == BY_TORCH
    monkeypatch.setattr(routing, "_LIGHT_BYTES", 100)
    routing.forget()
    assert name_of_node(ours(*operands, 2, 1, precision=precision)) == BY_PYTHON


def test_watched_calls_are_recorded_by_python():
    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            return op(*args, **(kwargs or {}))

    with Watching():
        assert name_of_node(ours(*leaves(), 2, 1)) == BY_PYTHON


@pytest.mark.parametrize("precision", [None, "exact"])
def test_a_dual_grad_output(precision):
    """PyTorch's operator differentiates it; an explicit precision refuses it."""
    operands = leaves()
    results = [ours(*operands, 2, 1, precision=precision), F.conv_transpose2d(*operands, 2, 1)]
    assert name_of_node(results[0]) == BY_TORCH
    torch.manual_seed(3)
    grad_output, tangent = torch.randn_like(results[0]), torch.randn_like(results[0])
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(grad_output, tangent)
        if precision is not None:
            with pytest.raises(RuntimeError, match="forward-mode"):
                torch.autograd.grad(results[0], operands[1], dual)
            return
        grads = [torch.autograd.grad(result, operands[1], dual)[0] for result in results]
        found, expected = (forward_ad.unpack_dual(grad).tangent for grad in grads)
    assert found is not None
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("light_bytes", [0, 1 << 20], ids=[BY_PYTHON, BY_TORCH])
@pytest.mark.parametrize("failing", [0, 1, 2], ids=["forward", "grad_input", "grad_weight"])
def test_a_failure_of_pytorch_inside_of_an_op_is_reported_by_pytorch(monkeypatch, failing, light_bytes):
    """The stable ABI reports only that it failed."""
    monkeypatch.setattr(routing, "_LIGHT_BYTES", light_bytes)
    by_torch(monkeypatch, failing)
    operands = leaves(torch.float32)

    def fails(run):
        def call(*arguments):
            number, needs_grad_mask = arguments[3:5] if len(arguments) == 5 else (arguments[-1], 0)
            if ops.remembered(number)[15] & (2 * needs_grad_mask & 6 or 1):
                raise RuntimeError("torch_call_dispatcher failed")
            return run(*arguments)

        return call

    for name in ("run_forward", "run_recorded", "run_gradients"):
        monkeypatch.setattr(ops, name, fails(getattr(ops, name)))
    torch.testing.assert_close(grads(ours, operands), grads(F.conv_transpose2d, operands))


def test_calls_are_remembered_by_what_they_are():
    numbers = (2, 2, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1)
    call = ops.remember(numbers)
    assert ops.remember(numbers) == torch.ops.convt_ext._remember(numbers) == call
    assert ops.remembered(call) == numbers
    assert ops.remember((3, *numbers[1:])) != call
    for wrong, words in ((numbers[:-1], "a list of 16"), ((*numbers[:12], -1, *numbers[13:]), "must not be negative")):
        with pytest.raises(RuntimeError, match=words):
            torch.ops.convt_ext._remember(wrong)


def test_a_node_keeps_what_it_needs_and_no_more():
    operands = leaves()
    result = ours(*operands, 2, 1)
    with torch.no_grad():
        operands[1].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_a_number_that_another_thread_finds_has_its_arguments(monkeypatch):
    class Calls(dict):
        def __setitem__(self, numbers, call):
            super().__setitem__(numbers, call)
            assert ops.remembered(self[numbers]) == numbers  # another thread may request it now

    monkeypatch.setattr(ops, "_calls", Calls())
    monkeypatch.setattr(ops, "_numbers_of", {})
    numbers = (3, 3, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1)
    assert ops.remembered(ops.remember(numbers)) == numbers

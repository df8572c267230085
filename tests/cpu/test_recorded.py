"""Calls that an autograd node of PyTorch records (kernels/binding/eager.cpp), and the cases that run Python."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from cases import named
from cpu_kernels import MASKS, RAN, needs_binary
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


def test_watched_calls_are_not():
    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            return op(*args, **(kwargs or {}))

    with Watching():
        assert name_of_node(ours(*leaves(), 2, 1)) == BY_PYTHON


def test_it_asks_for_what_is_wanted():
    operands = leaves()
    result = ours(*operands, 2, 1)
    for index, name in enumerate(("grad_input", "grad_weight", "grad_bias")):
        RAN.clear()
        torch.autograd.grad(result, operands[index], torch.ones_like(result), retain_graph=True)
        assert [name] == RAN


def test_its_second_derivatives_are_ours():
    operands = leaves()
    torch.manual_seed(2)
    found, expected = (
        torch.autograd.grad(
            sum(one.square().sum() for one in torch.autograd.grad(call(*operands, 2, 1).sin().sum(), operands,
                                                                   create_graph=True)),
            operands,
        )
        for call in (ours, F.conv_transpose2d)
    )  # fmt: skip
    torch.testing.assert_close(found, expected)
    assert RAN.count("forward") == 3  # the call, and the gradients of both gradients


def test_a_dual_grad_output_is_differentiated():
    operands = leaves()
    results = [call(*operands, 2, 1) for call in (ours, F.conv_transpose2d)]
    assert name_of_node(results[0]) == BY_TORCH
    torch.manual_seed(3)
    grad_output, tangent = torch.randn_like(results[0]), torch.randn_like(results[0])
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(grad_output, tangent)
        found = [
            forward_ad.unpack_dual(torch.autograd.grad(result, operands[1], dual)[0]).tangent for result in results
        ]
    assert found[0] is not None
    torch.testing.assert_close(*found)


def test_a_dual_grad_output_of_a_call_by_name_is_refused():
    operands = leaves()
    result = ours(*operands, 2, 1, precision="exact")
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.ones_like(result), torch.ones_like(result))
        with pytest.raises(RuntimeError, match="forward-mode"):
            torch.autograd.grad(result, operands[1], dual)


@pytest.mark.parametrize("batched", ["is_grads_batched", "vmap"])
def test_batches_of_backwards(batched):
    operands = leaves()
    results = [call(*operands, 2, 1) for call in (ours, F.conv_transpose2d)]
    assert name_of_node(results[0]) == BY_TORCH
    torch.manual_seed(4)
    several = torch.randn(3, *results[0].shape, dtype=torch.float64)

    def backward(result):
        if batched == "is_grads_batched":
            return torch.autograd.grad(result, operands, several, is_grads_batched=True)
        return torch.func.vmap(lambda one: torch.autograd.grad(result, operands, one, retain_graph=True))(several)

    torch.testing.assert_close(backward(results[0]), backward(results[1]))


@pytest.mark.parametrize("precision", [None, "exact"])
def test_where_memory_is_short(monkeypatch, precision):
    operands = leaves(torch.float32)
    expected = grads(F.conv_transpose2d, operands)
    result = ours(*operands, 2, 1, precision=precision)
    assert name_of_node(result) == BY_TORCH
    real = ops.run_gradients

    def run(grad_output, input, weight, call, needs_grad_mask):
        if needs_grad_mask & 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 8 GiB")
        return real(grad_output, input, weight, call, needs_grad_mask)

    monkeypatch.setattr(ops, "run_gradients", run)
    torch.manual_seed(1)
    grad_output = torch.randn_like(result)
    if precision is not None:
        with pytest.raises(RuntimeError, match="CUDA out of memory"):
            torch.autograd.grad(result, operands, grad_output)
        return
    torch.testing.assert_close(torch.autograd.grad(result, operands, grad_output), expected)


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


def test_mixed_gradients_are_one_op(monkeypatch):
    by_torch(monkeypatch, 2)
    operands = leaves(torch.float32)
    torch.testing.assert_close(grads(ours, operands), grads(F.conv_transpose2d, operands))
    assert RAN == ["forward", "grad_input", "grad_bias"]
    assert MASKS == [[False, True, False]]


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

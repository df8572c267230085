"""Compiled calls without a precision on the CPU: which implementation runs, and with how many calls."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from cases import each_case, named
from cpu_kernels import CODES, MASKS, RAN, cpu_is_gpu
from pretend_gpu import A100
from served import allow_tf32
from torch._dynamo.testing import CompileCounterWithBackend

from convt_ext import conv_transpose2d as ours
from convt_ext import geometry, ops, planner
from convt_ext import precision as precisions
from convt_ext.compile import traced_ops

pytestmark = pytest.mark.usefixtures("cpu_is_gpu")
__all__ = ["cpu_is_gpu"]

NUMBERS = [2, 2, 1, 1, 0, 0, 1, 1, 1]  # stride 2, padding 1


def with_gradients(function, operands):
    leaves = [tensor.detach().clone().requires_grad_() for tensor in operands]
    result = function(*leaves)
    return [result, *torch.autograd.grad(result.square().sum(), leaves)]


def test_tensor_core_kernels_run_if_pytorch_uses_tensor_cores():
    operands = named("k4s2p1").tensors()
    call = torch.compile(lambda *tensors: ours(*tensors, 2, 1), backend="aot_eager", fullgraph=True)
    with allow_tf32(True):
        with_gradients(call, operands)
        assert RAN == ["forward", "grad_input", "grad_weight"]
        assert [precisions.CODES["tf32"]] * 3 == CODES
        call(*(tensor.bfloat16() for tensor in operands))
    assert CODES[3:] == [precisions.CODES["bf16"]]


def test_a_gpu_without_kernels_on_tensor_cores_gets_pytorchs_operator(monkeypatch):
    monkeypatch.setattr(planner, "device_numbers", lambda index: A100)
    operands = named("k4s2p1").tensors()
    counter = CompileCounterWithBackend("aot_eager")
    call = torch.compile(lambda *tensors: ours(*tensors, 2, 1), backend=counter, fullgraph=True)
    with allow_tf32(True):
        with_gradients(call, operands)
    assert RAN == []
    assert "convt_ext" not in str(counter.graphs[0].graph)
    with allow_tf32(False):
        torch._dynamo.reset()
        with_gradients(call, operands)
    assert RAN == ["forward", "grad_input", "grad_weight"]


def test_memory_format_does_not_change_after_tracing():
    """The code around a result is compiled for its strides."""
    x, weight, _ = named("channels_last").tensors()
    grad_output = torch.randn(F.conv_transpose2d(x, weight, None, 2, 1).shape)
    for last in (False, True):
        results = [traced_ops.forward(x, weight, None, NUMBERS, last)]
        results += traced_ops.backward(grad_output, x, weight, NUMBERS, [last, not last], [True, True])
        for result, its_last in zip(results, (last, last, not last), strict=True):
            assert result.is_contiguous(memory_format=geometry.memory_format(its_last))


def count_calls(monkeypatch, owner, name):
    """Records the arguments of each call of a function."""
    calls, real = [], getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *arguments: calls.append(arguments) or real(*arguments))
    return calls


@pytest.mark.parametrize("needed", [(True, True), (True, False), (False, True)], ids=str)
@pytest.mark.parametrize("by_torch", [False, True])
def test_a_backward_is_one_call_of_what_is_needed(monkeypatch, needed, by_torch):
    of_ours = count_calls(monkeypatch, ops, "run_gradients")
    best = planner.BestPlan(2.0, 1.0, 0) if by_torch else planner.BestPlan(1.0, 2.0, 0)
    monkeypatch.setattr(planner, "best_plan", lambda *_: best)
    x, weight, bias = named("k4s2p1").tensors()
    x, weight = x.requires_grad_(needed[0]), weight.requires_grad_(needed[1])
    result = torch.compile(lambda *t: ours(*t, 2, 1), backend="aot_eager", fullgraph=True)(x, weight, bias)
    wanted = [one for one in (x, weight) if one.requires_grad]
    found = torch.autograd.grad(result.square().sum(), wanted)
    assert [call[-1] & 3 for call in of_ours] == [needed[0] + 2 * needed[1]]
    assert ([[*needed, False]] if by_torch else []) == MASKS
    assert (RAN == []) == by_torch
    theirs = F.conv_transpose2d(x, weight, bias, 2, 1)
    for one, other in zip(found, torch.autograd.grad(theirs.square().sum(), wanted), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


def test_a_program_that_runs_enters_the_dispatcher_once_for_each_op(monkeypatch):
    """In a small network a call costs more on the host than on the GPU."""
    operands = named("k4s2p1").tensors()
    call = torch.compile(lambda *t: ours(*t, 2, 1), backend="aot_eager", fullgraph=True)

    def run():
        with_gradients(call, operands)
        with torch.no_grad():
            call(*operands)

    run()
    again = [count_calls(monkeypatch, traced_ops.Traced, name) for name in ("forward", "gradients")]
    run()
    assert again == [[], []]


@pytest.mark.parametrize("grads", [False, True])
@each_case("k4s2p1", "kb75", "gcd_2", "channels_last", "no_bias")
def test_opcheck_of_what_decides_when_it_runs(case, grads):
    x, weight, bias = (tensor if tensor is None else tensor.requires_grad_(grads) for tensor in case.tensors())
    grad_output = torch.randn(case.output_size, requires_grad=grads)
    numbers = [*case.s, *case.p, *case.op, case.g, *case.d]
    for last in (None, True) if not grads else (None,):  # in a format that was named nothing is recorded
        torch.library.opcheck(traced_ops.forward, (x, weight, bias, numbers, last))
    for wanted in ([True, True], [True, False], [False, True]):
        torch.library.opcheck(traced_ops.backward, (grad_output, x, weight, numbers, None, wanted))


@pytest.mark.parametrize("which", [(0,), (1,), (0, 1), (0, 1, 2)], ids=str)
def test_derivatives_of_every_order_of_what_decides_when_it_runs(which):
    operands = [tensor.requires_grad_() for tensor in named("k4s2p1").tensors(torch.float64)]
    wanted = [operands[one] for one in which]

    def derivatives(call):
        first = torch.autograd.grad(call(*operands).pow(3).sum(), wanted, create_graph=True)
        second = torch.autograd.grad(sum(one.square().sum() for one in first), operands, create_graph=True)
        return *first, *second, *torch.autograd.grad(sum(one.square().sum() for one in second), operands)

    found = derivatives(lambda *tensors: traced_ops.forward(*tensors, NUMBERS, None))
    torch.testing.assert_close(found, derivatives(lambda *tensors: F.conv_transpose2d(*tensors, 2, 1)))

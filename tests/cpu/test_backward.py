"""A backward computes only the requested gradients, in the class of its forward pass, in any context."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from cases import named
from cpu_kernels import CODES, RAN, cpu_is_gpu
from gradients import leaves
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from convt_ext import conv_transpose2d as ours
from convt_ext import directions, use_precision
from convt_ext.compile import traced_ops

pytestmark = pytest.mark.usefixtures("cpu_is_gpu")
__all__ = ["cpu_is_gpu"]

NAMES = ("grad_input", "grad_weight", "grad_bias")


@pytest.mark.parametrize("leaf", [True, False])
@pytest.mark.parametrize("asked", [which for n in (1, 2, 3) for which in itertools.combinations(range(3), n)], ids=str)
@pytest.mark.parametrize("create_graph", [False, True])
def test_only_what_is_asked_of_the_backward(asked, leaf, create_graph):
    """All three require gradients, and `autograd.grad` or `backward(inputs=...)` wants some of them."""
    roots = leaves(named("k4s2p1"))
    operands = roots if leaf else [tensor * 2 for tensor in roots]
    wanted = [operands[which] for which in asked]
    result = ours(*operands, 2, 1, precision="exact")
    RAN.clear()
    found = torch.autograd.grad(result.square().sum(), wanted, create_graph=create_graph)
    assert [NAMES[which] for which in asked] == RAN
    expected = torch.autograd.grad(F.conv_transpose2d(*operands, 2, 1).square().sum(), wanted, retain_graph=True)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    result = ours(*operands, 2, 1, precision="exact")
    RAN.clear()
    result.sum().backward(inputs=[roots[which] for which in asked], create_graph=create_graph)
    assert [NAMES[which] for which in asked] == RAN
    for which, root in enumerate(roots):
        assert (root.grad is not None) == (which in asked)
        root.grad = None


def test_only_what_is_asked_of_the_second_backward():
    x, weight, bias = leaves(named("k4s2p1"))
    result = ours(x, weight, bias, 2, 1, precision="exact")
    grads = torch.autograd.grad(result.square().sum(), (x, weight), create_graph=True)
    for grad, asked, ran in (
        (grads[0], x, ["forward", "grad_input"]),
        (grads[0], weight, ["forward", "grad_weight", "grad_weight"]),
        (grads[1], x, ["forward", "grad_input", "grad_input"]),
        (grads[1], weight, ["forward", "grad_weight"]),
    ):
        RAN.clear()
        torch.autograd.grad(grad.square().sum(), asked, retain_graph=True)
        assert ran == RAN


def test_an_operand_that_leads_to_what_is_asked_for_is_computed():
    x, weight, _ = leaves(named("k4s2p1"))

    def gradients_of_weight(call):
        behind = call(x * weight.sum(), weight, None, 2, 1)
        twice = call(weight, weight.transpose(0, 1), None, 2, 1)
        return [torch.autograd.grad(result.square().sum(), weight)[0] for result in (behind, twice)]

    found = gradients_of_weight(lambda *a: ours(*a, precision="exact"))
    torch.testing.assert_close(found, gradients_of_weight(F.conv_transpose2d))
    assert RAN == ["forward"] * 2 + ["grad_input", "grad_weight"] * 2


def test_a_backward_inside_of_a_backward_asks_for_itself():
    x, weight, bias = leaves(named("k4s2p1"))

    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(ctx, tensor):
            return tensor * 1

        @staticmethod
        def backward(ctx, grad):
            with torch.enable_grad():
                torch.autograd.grad(ours(x, weight, bias, 2, 1, precision="exact").sum(), weight)
                ours(x, weight, bias, 2, 1, precision="exact").sum().backward()
            return grad

    one = torch.ones(1, requires_grad=True)
    torch.autograd.grad(Inner.apply(one), one)
    assert ["forward", "grad_weight", "forward", *NAMES] == RAN
    assert x.grad is not None


def tangents_of_gradients(call):
    """Returns tangents of the first and second derivatives for a dual gradient of the result."""
    x, weight, bias = leaves(named("k4s2p1"))
    result = call(x, weight, bias, 2, 1)
    first = torch.autograd.grad(result.square().sum(), (x, weight), create_graph=True)
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(torch.ones_like(one), one.detach()) for one in (result, *first)]
        found = torch.autograd.grad(result, (x, weight, bias), duals[0], retain_graph=True)
        found += torch.autograd.grad(first, (x, weight), duals[1:])
        return [forward_ad.unpack_dual(one).tangent for one in found]


def test_forward_mode_around_a_backward():
    found = tangents_of_gradients(ours)
    assert not any(tangent is None for tangent in found)
    torch.testing.assert_close(found, tangents_of_gradients(F.conv_transpose2d))
    with pytest.raises(RuntimeError, match=r"precision='exact'.*its backward.*forward-mode.*outside of the dual level"):
        tangents_of_gradients(lambda *a: ours(*a, precision="exact"))


@pytest.mark.parametrize("which", [0, 1, 2])
def test_vmap_around_the_backward_of_a_program(which):
    """Its op has no explicit precision, so PyTorch's operator runs."""
    operands = leaves(named("k4s2p1"))
    result = traced_ops.forward(*operands, [2, 2, 1, 1, 0, 0, 1, 1, 1], None)
    grads = torch.randn(3, *result.shape, dtype=result.dtype)
    RAN.clear()

    def gradient(output, grad):
        return torch.autograd.grad(output, operands[which], grad, retain_graph=True)[0]

    found = torch.func.vmap(lambda grad: gradient(result, grad))(grads)
    assert RAN == []
    theirs = F.conv_transpose2d(*operands, 2, 1)
    torch.testing.assert_close(found, torch.stack([gradient(theirs, grad) for grad in grads]))


@pytest.mark.parametrize("which", [0, 1, 2])
def test_pytorchs_operator_computes_the_one_gradient_that_is_asked_for(monkeypatch, which):
    masks = []
    real = directions._convolution_backward
    monkeypatch.setattr(directions, "_convolution_backward", lambda *a: masks.append(a[-1]) or real(*a))
    x, weight, bias = leaves(named("k4s2p1"))
    theirs = F.conv_transpose2d(x, weight, bias, 2, 1)
    grad_output = torch.randn_like(theirs)
    arguments = ((2, 2), (1, 1), (0, 0), 1, (1, 1), False)
    by_torch = directions.AtenConv(arguments)
    assert not by_torch.by_name
    torch.testing.assert_close(by_torch.forward(x, weight, bias), theirs)
    found = [
        lambda: by_torch.grad_input(grad_output, x, weight),
        lambda: by_torch.grad_weight(grad_output, x, weight),
        lambda: by_torch.grad_bias(grad_output),
    ][which]()
    torch.testing.assert_close(found, torch.autograd.grad(theirs, (x, weight, bias)[which], grad_output)[0])
    assert masks == [[[True, False, False]], [[False, True, False]], []][which]
    assert RAN == []


@pytest.mark.parametrize("which", [0, 1, 2])
def test_vmap_around_a_backward(which):
    operands = leaves(named("k4s2p1"), torch.float32)
    results = {word: ours(*operands, 2, 1, precision=word) for word in (None, "aten")}
    grads = torch.randn(3, *results[None].shape)
    RAN.clear()

    def gradient(word, grad, **options):
        return torch.autograd.grad(results[word], operands[which], grad, retain_graph=True, **options)[0]

    expected = torch.stack([gradient(None, grad) for grad in grads])
    torch.testing.assert_close(gradient("aten", grads, is_grads_batched=True), expected)
    assert [NAMES[which]] * 6 == RAN
    torch.testing.assert_close(torch.func.vmap(lambda grad: gradient(None, grad))(grads), expected)
    assert len(RAN) == 6
    with pytest.raises(RuntimeError, match=r"precision='aten'.*its backward.*vmap.*outside of it"):
        torch.func.vmap(lambda grad: gradient("aten", grad))(grads)


def test_a_context_around_a_checkpoint_needs_a_context_fn():
    """The backward recomputes in its own context; docs/guide.md states the remedy."""
    x, weight, bias = leaves(named("k4s2p1"), torch.float32)
    contexts = lambda: (use_precision("aten"), use_precision("aten"))  # noqa: E731
    call = lambda *tensors: ours(*tensors, 2, 1).square()  # noqa: E731
    checkpoint(call, x, weight, bias, use_reentrant=False, context_fn=contexts).sum().backward()
    checkpoint(use_precision("aten")(call), x, weight, bias, use_reentrant=False).sum().backward()
    assert CODES == [1] * 8

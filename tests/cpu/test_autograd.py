"""Gradients of every order, on the CPU: the whole way from the functional through autograd to the ops and back."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from cases import Case, each_case, named
from cpu_kernels import CODES, MASKS, RAN
from gradients import assert_within_budget, gradients, leaves
from served import cudnn, tf32
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.utils.checkpoint import checkpoint

from convt_ext import conv_transpose2d as ours
from convt_ext import use_precision
from convt_ext.compile import traced_ops
from convt_ext.dispatch import directions, planner

pytestmark = pytest.mark.usefixtures("cpu_is_gpu")

NAMES = ("grad_input", "grad_weight", "grad_bias")


@each_case()
@pytest.mark.parametrize("precision", [None, "exact"])
def test_gradients(case, precision):
    operands = leaves(case)
    mine = gradients(ours, case, operands, precision=precision)
    assert ["forward", "grad_input", "grad_weight"] + ["grad_bias"] * case.bias == RAN
    assert_within_budget(mine, case, operands)


@pytest.mark.parametrize("requires", list(itertools.product([False, True], repeat=3)), ids=str)
@pytest.mark.parametrize("unbatched", [False, True])
def test_only_the_requested_gradients(requires, unbatched):
    case = named("k4s2p1")
    x, weight, bias = leaves(case, requires=requires)
    result = ours(x[0] if unbatched else x, weight, bias, 2, 1, precision="exact")
    assert result.requires_grad == any(requires)
    if any(requires):
        result.sum().backward()
    assert [tensor.grad is not None for tensor in (x, weight, bias)] == list(requires)
    assert ["forward", *itertools.compress(NAMES, requires)] == RAN


@each_case("k4s2p1", "kb75", "k3s2p1op1", "gcd_2", "depthwise", "channels_last", "output_padding_over_stride",
           "no_bias")  # fmt: skip
def test_gradcheck_twice(case):
    operands = [tensor for tensor in leaves(case) if tensor is not None]
    call = lambda *tensors: ours(*tensors, **case.arguments)  # noqa: E731
    assert gradcheck(call, operands, fast_mode=True, check_batched_grad=True, check_forward_ad=True)
    assert gradgradcheck(call, operands, fast_mode=True, check_batched_grad=True)
    assert {"grad_input", "grad_weight"} <= set(RAN)


def test_third_order():
    """Without output_padding, with which PyTorch's own third derivative is an error."""
    operands = leaves(named("k4s2p1"))

    def third(call):
        result = call(*operands, 2, 1)
        first = torch.autograd.grad(result.square().sum(), operands[:2], create_graph=True)
        second = torch.autograd.grad(sum(grad.square().sum() for grad in first), operands[:2], create_graph=True)
        return torch.autograd.grad(sum(grad.square().sum() for grad in second), operands)

    found = third(lambda *tensors: ours(*tensors, precision="exact"))
    torch.testing.assert_close(found, third(F.conv_transpose2d), rtol=1e-10, atol=1e-10)


def test_saves_the_operands_and_nothing_else():
    x, weight, bias = leaves(named("k4s2p1"))
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor):
        ours(x, weight, bias, 2, 1, precision="exact")
    assert [tensor.data_ptr() for tensor in saved] == [x.data_ptr(), weight.data_ptr()]


@each_case("channels_last", "channels_last_input", "channels_last_weight", "k4s2p1", "channels_last_op",
           "channel_slice")  # fmt: skip
@pytest.mark.parametrize("grad_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_memory_formats_follow_input_and_weight(case, grad_format):
    x, weight, bias = leaves(case, torch.float32)
    result = ours(x, weight, bias, **case.arguments, precision="exact")
    grad_output = torch.ones_like(result, memory_format=grad_format)
    grad_x, grad_weight, _ = torch.autograd.grad(result, (x, weight, bias), grad_output)
    last = case.layout != "contiguous" and case.name != "channels_last_op"
    expected = torch.channels_last if last else torch.contiguous_format
    assert all(tensor.is_contiguous(memory_format=expected) for tensor in (result, grad_x, grad_weight))


@pytest.mark.parametrize("precision", [None, "exact"])
@pytest.mark.parametrize("layout", ["channels_last_weight", "converted"])
def test_the_weights_gradient_of_one_channel_follows_the_inputs_strides(layout, precision):
    """The weight makes the result channels_last; PyTorch then checks the input again, which is already dense."""
    case = Case("one_channel_in", "", c_in=1, k=(4, 4), s=(2, 2), p=(1, 1), layout=layout)
    operands = leaves(case, torch.float32)
    result = ours(*operands, **case.arguments, precision=precision)
    assert result.is_contiguous(memory_format=torch.channels_last)
    _, grad_weight, _ = torch.autograd.grad(result, operands, torch.ones_like(result))
    expected = torch.channels_last if layout == "converted" else torch.contiguous_format
    assert grad_weight.stride() == torch.empty(1, 6, 4, 4).to(memory_format=expected).stride()


@pytest.mark.parametrize("precision", [None, "exact"])
def test_without_cudnn_everything_is_contiguous(precision):
    """PyTorch's results are contiguous too; a decision made before the switch is not reused after it."""
    case = named("channels_last")
    for enabled in (True, False, True):
        operands = leaves(case, torch.float32)
        with cudnn(enabled):
            result = ours(*operands, **case.arguments, precision=precision)
            grads = torch.autograd.grad(result, operands[:2], torch.ones_like(result))
        for tensor in (result, *grads):
            assert tensor.is_contiguous(memory_format=torch.channels_last if enabled else torch.contiguous_format)
    assert RAN == ["forward", "grad_input", "grad_weight"] * 3


def test_the_class_is_resolved_in_forward():
    x, weight, _ = leaves(named("k4s2p1"), torch.float32)
    with use_precision("aten"):
        result = ours(x, weight, None, 2, 1)
    with use_precision("tf32"):
        result.sum().backward()
    assert CODES == [1] * 3


@each_case("k4s2p1", "channels_last")
@pytest.mark.parametrize("ours_are", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2), ()])
def test_each_direction_goes_to_the_faster_one(monkeypatch, ours_are, case):
    def best_plan(problem, direction):
        return planner.BestPlan(30.0, 31.0 if direction in ours_are else 29.0, 0)

    monkeypatch.setattr(planner, "best_plan", best_plan)
    everything = ["forward", "grad_input", "grad_weight"]
    operands = [*leaves(case, torch.float32)[:2], None]
    mine = gradients(ours, case, operands)
    assert [everything[one] for one in ours_are] == RAN
    is_mixed = ours_are and len({1, 2} & {*ours_are}) < 2
    assert ([[1 not in ours_are, 2 not in ours_are, False]] if is_mixed else []) == MASKS
    torch.testing.assert_close(mine, gradients(F.conv_transpose2d, case, operands))
    RAN.clear()
    gradients(ours, case, operands, precision="exact")
    assert everything == RAN
    RAN.clear()
    result = ours(*operands, **case.arguments)
    with tf32(0 in ours_are):  # directions that PyTorch computes follow its switches
        result.sum().backward()
    assert [everything[one] for one in ours_are] == RAN


@each_case("k4s2p1", "channels_last")
@pytest.mark.parametrize("asked", [(0, 1), (0, 1, 2), (0,), (1, 2), (2,)])
def test_gradients_left_to_pytorch_are_one_call(monkeypatch, asked, case):
    best_plan = lambda problem, direction: planner.BestPlan(30.0, 20.0 if direction else 240.0, 0)  # noqa: E731
    monkeypatch.setattr(planner, "best_plan", best_plan)
    operands = leaves(case, torch.float32)
    results = [f(*operands, **case.arguments) for f in (ours, F.conv_transpose2d)]
    grad_output = torch.randint_like(results[0], -2, 3)  # the bias's gradients add these up in two orders, exactly
    found, theirs = (torch.autograd.grad(y, [operands[i] for i in asked], grad_output) for y in results)
    torch.testing.assert_close(found, theirs)
    expected = [0 in asked, 1 in asked, False]
    assert ([expected] if any(expected) else []) == MASKS
    assert ["forward", *(["grad_bias"] if 2 in asked else [])] == RAN


def test_transforms_get_pytorchs_operator():
    x, weight, bias = named("k4s2p1").tensors(torch.float64)
    for transform in (
        lambda call: torch.func.grad(lambda w: call(x, w, bias, 2, 1).square().sum())(weight),
        lambda call: torch.func.vmap(lambda one: call(one, weight, bias, 2, 1))(x),
        lambda call: torch.func.jvp(lambda w: call(x, w, bias, 2, 1), (weight,), (weight,))[1],
        lambda call: torch.func.vjp(lambda w: call(x, w, bias, 2, 1), weight)[1](torch.ones(2, 6, 10, 12).double())[0],
        lambda call: torch.func.hessian(lambda b: call(x, weight, b, 2, 1).square().sum())(bias),
    ):
        torch.testing.assert_close(transform(ours), transform(F.conv_transpose2d))
    assert RAN == []


# ---- a backward computes only the requested gradients, in the class of its forward pass, in any context


@pytest.mark.parametrize("leaf", [True, False])
@pytest.mark.parametrize("asked", [which for n in (1, 2, 3) for which in itertools.combinations(range(3), n)], ids=str)
@pytest.mark.parametrize("create_graph", [False, True])
def test_a_backward_computes_only_the_requested_gradients(asked, leaf, create_graph):
    """All three require gradients, and `autograd.grad` or `backward(inputs=...)` wants some of them."""
    roots = leaves(named("k4s2p1"))
    operands = roots if leaf else [tensor * 2 for tensor in roots]
    wanted = [operands[which] for which in asked]
    result = ours(*operands, 2, 1, precision="exact")
    RAN.clear()
    found = torch.autograd.grad(result.square().sum(), wanted, create_graph=create_graph)
    assert [NAMES[which] for which in asked] == RAN
    expected = torch.autograd.grad(F.conv_transpose2d(*operands, 2, 1).square().sum(), wanted, retain_graph=True)
    torch.testing.assert_close(found, expected)
    result = ours(*operands, 2, 1, precision="exact")
    RAN.clear()
    result.sum().backward(inputs=[roots[which] for which in asked], create_graph=create_graph)
    assert [NAMES[which] for which in asked] == RAN
    for which, root in enumerate(roots):
        assert (root.grad is not None) == (which in asked)
        root.grad = None


def test_a_second_backward_computes_only_the_requested_gradients():
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


def test_gradients_that_lead_to_a_requested_one_are_computed():
    x, weight, _ = leaves(named("k4s2p1"))

    def gradients_of_weight(call):
        behind = call(x * weight.sum(), weight, None, 2, 1)
        twice = call(weight, weight.transpose(0, 1), None, 2, 1)
        return [torch.autograd.grad(result.square().sum(), weight)[0] for result in (behind, twice)]

    found = gradients_of_weight(lambda *a: ours(*a, precision="exact"))
    torch.testing.assert_close(found, gradients_of_weight(F.conv_transpose2d))
    assert RAN == ["forward"] * 2 + ["grad_input", "grad_weight"] * 2


def test_a_backward_inside_of_a_backward_has_its_own_request():
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
def test_pytorchs_operator_computes_only_the_requested_gradient(monkeypatch, which):
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

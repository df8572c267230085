"""Gradients of every order, on the CPU: the whole way from the functional through autograd to the ops and back."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from cases import Case, each_case, named
from cpu_kernels import CODES, MASKS, RAN, cpu_is_gpu
from gradients import assert_within_budget, gradients, leaves
from served import cudnn, tf32
from torch.autograd import gradcheck, gradgradcheck

from convt_ext import conv_transpose2d as ours
from convt_ext import ops, planner, use_precision

pytestmark = pytest.mark.usefixtures("cpu_is_gpu")
__all__ = ["cpu_is_gpu"]


@each_case()
@pytest.mark.parametrize("precision", [None, "exact"])
def test_gradients(case, precision):
    operands = leaves(case)
    mine = gradients(ours, case, operands, precision=precision)
    expected_ops = ["forward", "grad_input", "grad_weight"] + ["grad_bias"] * case.bias
    assert expected_ops == RAN
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
    names = ["grad_input", "grad_weight", "grad_bias"]
    assert ["forward"] + [name for name, needed in zip(names, requires, strict=True) if needed] == RAN


def test_no_grad_and_detached_operands_record_nothing():
    x, weight, bias = leaves(named("k4s2p1"))
    with torch.no_grad():
        assert not ours(x, weight, bias, 2, 1, precision="exact").requires_grad
    with torch.inference_mode():
        assert ours(x, weight, bias, 2, 1, precision="exact").is_inference()
    assert ours(x, weight, bias, 2, 1, precision="exact").grad_fn is not None


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

    for mine, theirs in zip(third(lambda *a: ours(*a, precision="exact")), third(F.conv_transpose2d), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


def test_double_backward_runs_our_ops():
    x, weight, bias = leaves(named("k4s2p1"))
    grads = torch.autograd.grad(ours(x, weight, bias, 2, 1).sum(), (x, weight, bias), create_graph=True)
    RAN.clear()
    sum(grad.square().sum() for grad in grads).backward()
    assert sorted(set(RAN)) == ["grad_input", "grad_weight"]  # the gradient of the sum is constant


def test_saves_the_operands_and_nothing_else():
    x, weight, bias = leaves(named("k4s2p1"))
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor):
        ours(x, weight, bias, 2, 1, precision="exact")
    assert [tensor.data_ptr() for tensor in saved] == [x.data_ptr(), weight.data_ptr()]


def test_operands_changed_in_place_are_noticed():
    x, weight, bias = leaves(named("k4s2p1"))
    result = ours(x, weight, bias, 2, 1, precision="exact")
    with torch.no_grad():
        weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


@each_case("channels_last", "channels_last_input", "channels_last_weight", "k4s2p1", "channels_last_op",
           "channel_slice")  # fmt: skip
@pytest.mark.parametrize("grad_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_memory_formats_follow_input_and_weight(case, grad_format):
    x, weight, bias = leaves(case, torch.float32)
    result = ours(x, weight, bias, **case.arguments, precision="exact")
    grad_output = torch.ones_like(result, memory_format=grad_format)
    grad_x, grad_weight, _ = torch.autograd.grad(result, (x, weight, bias), grad_output)
    last = case.layout != "contiguous" and case.name != "channels_last_op"
    for tensor in (result, grad_x, grad_weight):
        expected = torch.channels_last if last else torch.contiguous_format
        assert tensor.is_contiguous(memory_format=expected)


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
@pytest.mark.parametrize(("slower", "name"), [(1, "grad_input"), (2, "grad_weight")])
def test_each_gradient_is_left_to_pytorch_by_its_own_estimate(monkeypatch, slower, name, case):
    def best_plan(problem, direction):
        return planner.BestPlan(300.0, 200.0 if direction == slower else 400.0, 0)

    monkeypatch.setattr(planner, "best_plan", best_plan)
    everything = ["forward", "grad_input", "grad_weight", "grad_bias"]
    operands = leaves(case, torch.float32)
    mine = gradients(ours, case, operands)
    assert [op for op in everything if op != name] == RAN
    for one, theirs in zip(mine, gradients(F.conv_transpose2d, case, operands), strict=True):
        torch.testing.assert_close(one, theirs)
    RAN.clear()
    gradients(ours, case, operands, precision="exact")
    assert everything == RAN
    RAN.clear()
    result = ours(*operands, **case.arguments)
    with tf32(True):  # directions that PyTorch computes follow its switches
        result.sum().backward()
    assert [op for op in everything if op != name] == RAN


@pytest.mark.parametrize("ours_are", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2), ()])
def test_each_direction_goes_to_the_faster_one(monkeypatch, ours_are):
    def best_plan(problem, direction):
        return planner.BestPlan(30.0, 31.0 if direction in ours_are else 29.0, 0)

    monkeypatch.setattr(planner, "best_plan", best_plan)
    x, weight, _ = leaves(named("k4s2p1"), torch.float32)
    result = ours(x, weight, None, 2, 1)
    grads = torch.autograd.grad(result.square().sum(), (x, weight))
    assert [("forward", "grad_input", "grad_weight")[one] for one in ours_are] == RAN
    assert (
        [[1 not in ours_are, 2 not in ours_are, False]] if ours_are and len({1, 2} & {*ours_are}) < 2 else []
    ) == MASKS
    expected = F.conv_transpose2d(x, weight, None, 2, 1)
    torch.testing.assert_close(grads, torch.autograd.grad(expected.square().sum(), (x, weight)))


@each_case("k4s2p1", "channels_last")
@pytest.mark.parametrize("asked", [(0, 1), (0, 1, 2), (0,), (1, 2), (2,)])
def test_gradients_left_to_pytorch_are_one_call(monkeypatch, asked, case):
    monkeypatch.setattr(
        planner, "best_plan", lambda problem, direction: planner.BestPlan(30.0, 20.0 if direction else 240.0, 0)
    )
    operands = leaves(case, torch.float32)
    results = [f(*operands, **case.arguments) for f in (ours, F.conv_transpose2d)]
    grad_output = torch.randint_like(results[0], -2, 3)  # the bias's gradients add these up in two orders, exactly
    found, theirs = (torch.autograd.grad(y, [operands[i] for i in asked], grad_output) for y in results)
    for one, other in zip(found, theirs, strict=True):
        torch.testing.assert_close(one, other)
    expected = [0 in asked, 1 in asked, False]
    assert ([expected] if any(expected) else []) == MASKS
    assert ["forward", *(["grad_bias"] if 2 in asked else [])] == RAN


def test_transforms_get_pytorchs_operator():
    case = named("k4s2p1")
    x, weight, bias = case.tensors(torch.float64)
    for transform in (
        lambda call: torch.func.grad(lambda w: call(x, w, bias, 2, 1).square().sum())(weight),
        lambda call: torch.func.vmap(lambda one: call(one, weight, bias, 2, 1))(x),
        lambda call: torch.func.jvp(lambda w: call(x, w, bias, 2, 1), (weight,), (weight,))[1],
        lambda call: torch.func.vjp(lambda w: call(x, w, bias, 2, 1), weight)[1](torch.ones(2, 6, 10, 12).double())[0],
        lambda call: torch.func.hessian(lambda b: call(x, weight, b, 2, 1).square().sum())(bias),
    ):
        torch.testing.assert_close(transform(ours), transform(F.conv_transpose2d))
    assert RAN == []


def test_forward_mode():
    x, weight, bias = named("k4s2p1").tensors(torch.float64)
    from torch.autograd import forward_ad

    with forward_ad.dual_level():
        dual = ours(forward_ad.make_dual(x, x), weight, bias, 2, 1)
        tangent = forward_ad.unpack_dual(dual).tangent
    torch.testing.assert_close(tangent, F.conv_transpose2d(x, weight, None, 2, 1))


def test_checkpoint_and_hooks():
    from torch.utils.checkpoint import checkpoint

    case = named("k4s2p1")
    operands = leaves(case)
    call = lambda *tensors: ours(*tensors, 2, 1, precision="exact").square().sum()  # noqa: E731
    plain = torch.autograd.grad(call(*operands), operands)
    again = torch.autograd.grad(checkpoint(call, *operands, use_reentrant=False), operands)
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))


RAW = ((2, 2), (1, 1), (0, 0), 1, (1, 1), 0, False)


def raw_operands():
    x, weight, bias = leaves(named("k4s2p1"))
    return x, weight, bias, torch.randn(2, 6, 10, 12, dtype=torch.float64, requires_grad=True)


def test_raw_ops_have_gradients():
    x, weight, bias, grad_output = raw_operands()
    for op, operands in (
        (ops.forward, (x, weight, bias)),
        (ops.grad_input, (grad_output, weight)),
        (ops.grad_weight, (grad_output, x)),
    ):
        assert gradcheck(lambda *tensors, op=op: op(*tensors, *RAW), operands, fast_mode=True)
        assert gradgradcheck(lambda *tensors, op=op: op(*tensors, *RAW), operands, fast_mode=True)
    assert gradcheck(ops.grad_bias, grad_output, fast_mode=True)
    assert gradgradcheck(ops.grad_bias, grad_output, fast_mode=True)


def test_raw_ops_refuse_what_they_would_do_wrong():
    from torch.autograd import forward_ad

    x, weight, bias, grad_output = raw_operands()
    with torch.no_grad(), forward_ad.dual_level(), pytest.raises(NotImplementedError, match="conv_transpose2d"):
        ops.forward(forward_ad.make_dual(x, x), weight, bias, *RAW)
    with torch.no_grad(), forward_ad.dual_level(), pytest.raises(NotImplementedError, match="conv_transpose2d"):
        ops.grad_weight(grad_output, forward_ad.make_dual(x, x), *RAW)
    with pytest.raises(RuntimeError, match="setup_context"):
        torch.func.grad(lambda w: ops.forward(x.detach(), w, None, *RAW).sum())(weight.detach())
    with pytest.raises(NotImplementedError, match="conv_transpose2d"):
        torch.func.jvp(lambda w: ops.forward(x.detach(), w, None, *RAW), (weight.detach(),), (weight.detach(),))


@pytest.mark.parametrize("name", ["forward", "grad_input", "grad_weight"])
def test_raw_ops_in_a_dual_level_refuse_what_is_dual_and_nothing_else(name):
    from torch.autograd import forward_ad

    x, weight, bias, grad_output = (tensor.detach() for tensor in raw_operands())
    operands = {"forward": (x, weight, bias), "grad_input": (grad_output, weight), "grad_weight": (grad_output, x)}[
        name
    ]
    op = getattr(torch.ops.convt_ext, name).default
    expected = op(*operands, *RAW)
    with forward_ad.dual_level():
        if name == "forward":  # the other ops raise in a dual level
            assert torch.equal(op(*operands, *RAW), expected)
        for which, tensor in enumerate(operands):
            duals = list(operands)
            duals[which] = forward_ad.make_dual(tensor, torch.randn_like(tensor))
            with pytest.raises(NotImplementedError, match=f"convt_ext::{name} has no forward-mode derivative"):
                op(*duals, *RAW)
        every = [forward_ad.make_dual(tensor, torch.randn_like(tensor)) for tensor in operands]
        with pytest.raises(NotImplementedError, match="has no forward-mode derivative"):
            op(*every, *RAW)


def test_raw_ops_under_vmap():
    x, weight, bias = named("k4s2p1").tensors(torch.float64)
    images = x.unsqueeze(1)
    batched = torch.func.vmap(lambda one: ops.forward(one, weight, bias, *RAW))(images)
    torch.testing.assert_close(batched, F.conv_transpose2d(x, weight, bias, 2, 1).unsqueeze(1))

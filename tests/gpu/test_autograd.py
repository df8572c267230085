"""Gradients through `conv_transpose2d` on the GPU: values, formats, higher orders, and who computes them."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from cases import each_case, named
from gradients import assert_within_budget, gradients, leaves
from raw_ops import assert_same_bits
from served import SeenOps, cudnn, on_kernels, switch, tf32
from torch.autograd import forward_ad, gradcheck, gradgradcheck

from convt_ext import conv_transpose2d as ours
from convt_ext import use_precision
from convt_ext.dispatch import ops, routing

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
OURS = {f"convt_ext.{name}.default" for name in ("forward", "grad_input", "grad_weight", "grad_bias")}


@pytest.fixture(autouse=True)
def exact_pytorch():
    """PyTorch's gradients beside ours: without TF32, and the same on every run."""
    with tf32(False), switch(torch.backends.cudnn, "deterministic", True):
        yield


@each_case()
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gradients(case, dtype):
    operands = leaves(case, dtype, "cuda")
    found = gradients(ours, case, operands, precision="exact")
    assert_within_budget(found, case, operands)
    again = gradients(ours, case, operands, precision="exact")
    for one, other in zip(found, again, strict=True):
        assert_same_bits(one, other)


@each_case("k4s2p1", "kb75", "k3s2p1op1", "depthwise", "many_channels_in")
@pytest.mark.parametrize("precision", ["aten", "tf32x3", "tf32", None])
def test_gradients_of_other_classes(case, precision):
    operands = leaves(case, device="cuda", dtype=torch.float32)
    found = gradients(ours, case, operands, **on_kernels(precision))
    reference = gradients(F.conv_transpose2d, case, leaves(case))
    for one, right in zip(found, reference, strict=True):
        bound = 5e-4 if precision == "tf32" else 5e-6
        assert (one.cpu().double() - right).norm() <= bound * right.norm()


@each_case()
def test_shapes_and_formats_are_pytorchs(case):
    operands = leaves(case, torch.float32, "cuda")
    found = gradients(ours, case, operands, precision="exact")
    for one, theirs in zip(found, gradients(F.conv_transpose2d, case, operands), strict=True):
        assert one.dtype is theirs.dtype
        assert one.shape == theirs.shape
        assert one.stride() == theirs.stride(), (one.shape, one.stride(), theirs.stride())


@pytest.mark.parametrize("requires", list(itertools.product([False, True], repeat=3)), ids=str)
@pytest.mark.parametrize("unbatched", [False, True])
def test_only_the_requested_gradients(requires, unbatched):
    x, weight, bias = leaves(named("k4s2p1"), torch.float32, "cuda", requires)
    with SeenOps() as seen:
        result = ours(x[0] if unbatched else x, weight, bias, 2, 1, precision="exact")
        assert result.requires_grad == any(requires)
        if any(requires):
            result.sum().backward()
    assert [tensor.grad is not None for tensor in (x, weight, bias)] == list(requires)
    names = [f"convt_ext.{name}.default" for name in ("grad_input", "grad_weight", "grad_bias")]
    expected = {"convt_ext.forward.default", *(name for name, needed in zip(names, requires, strict=True) if needed)}
    assert OURS & set(seen.names) == expected


@pytest.mark.parametrize("kind", ["expanded", "channels_last", "step", "offset"])
def test_gradients_of_the_result_in_any_layout(kind):
    case = named("k4s2p1")
    operands = leaves(case, torch.float32, "cuda")
    result = ours(*operands, **case.arguments, precision="exact")
    dense = torch.randn_like(result)
    if kind == "expanded":
        given, dense = torch.ones((), device="cuda").expand_as(result), torch.ones_like(result)
    elif kind == "channels_last":
        given = dense.contiguous(memory_format=torch.channels_last)
    elif kind == "step":
        given = torch.full((*dense.shape[:3], 2 * dense.shape[3]), float("nan"), device="cuda")[..., ::2].copy_(dense)
    else:
        flat = torch.full((dense.numel() + 1,), float("nan"), device="cuda")
        given = flat[1:].view(dense.shape).copy_(dense)
    found = torch.autograd.grad(result, operands, given, retain_graph=True)
    expected = torch.autograd.grad(result, operands, dense)
    for one, right in zip(found[:2], expected[:2], strict=True):
        assert_same_bits(one, right)
        assert one.is_contiguous()
    torch.testing.assert_close(found[2], expected[2])  # added in the order of memory


@each_case("k4s2p1", "kb75", "k3s2p1op1", "gcd_2", "depthwise", "channels_last", "output_padding_over_stride",
           "no_bias", "kernel_over_input")  # fmt: skip
def test_gradcheck_twice(case):
    operands = [tensor for tensor in leaves(case, torch.float64, "cuda") if tensor is not None]
    call = lambda *tensors: ours(*tensors, **case.arguments, precision="exact")  # noqa: E731
    assert gradcheck(call, operands, fast_mode=True, check_batched_grad=True)
    assert gradgradcheck(call, operands, fast_mode=True, check_batched_grad=True)
    unasked = lambda *tensors: ours(*tensors, **case.arguments)  # noqa: E731
    assert gradcheck(unasked, operands, fast_mode=True, check_forward_ad=True)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_only_what_is_asked_of_the_backward(which):
    """It runs in a thread of the engine, which knows what was asked for. A call that nobody watches is recorded by a
    node of PyTorch's, whose backward enters the dispatcher with a mask and no more."""
    operands = leaves(named("k4s2p1"), torch.float32, "cuda")
    with SeenOps() as seen:
        result = ours(*operands, 2, 1, precision="exact")
        torch.autograd.grad(result.sum(), operands[which])
    seen.names.remove("convt_ext.forward.default")
    assert set(seen.names) & OURS == {f"convt_ext.grad_{('input', 'weight', 'bias')[which]}.default"}


@each_case("k4s2p1", "kb75", "gcd_2", "depthwise", "channels_last")
def test_double_backward_in_float32(case):
    """A gradient penalty, as in WGAN-GP, beside PyTorch's float64."""

    def penalty(call, operands):
        x, weight, bias = operands
        (grad,) = torch.autograd.grad(call(x, weight, bias, **case.arguments).square().sum(), x, create_graph=True)
        return torch.autograd.grad((grad.norm() - 1).square(), operands)

    with SeenOps() as seen:
        found = penalty(lambda *a, **n: ours(*a, **n, precision="exact"), leaves(case, torch.float32, "cuda"))
    assert not [name for name in seen.names if "convolution" in name]
    reference = penalty(F.conv_transpose2d, leaves(case))
    for one, right in zip(found, reference, strict=True):
        assert (one.cpu().double() - right).norm() <= 1e-5 * right.norm()


def test_each_gradient_is_left_to_pytorch_by_its_own_estimate(monkeypatch):
    from convt_ext.dispatch import planner

    monkeypatch.setattr(
        planner, "best_plan", lambda problem, direction: planner.BestPlan(300.0, 200.0 if direction == 2 else 400.0, 0)
    )
    routing.forget()
    try:
        case = named("k4s2p1")
        operands = leaves(case, torch.float32, "cuda")
        with SeenOps() as seen:
            found = gradients(ours, case, operands)
        assert OURS & set(seen.names) == OURS - {"convt_ext.grad_weight.default"}
        assert_within_budget(found, case, operands)
    finally:
        routing.forget()


def test_real_estimates_never_stop_a_gradient():
    """Whatever is estimated, each gradient of a realistic layer comes, and is right."""
    x = torch.randn(16, 128, 32, 32, device="cuda", requires_grad=True)
    weight = torch.randn(128, 64, 4, 4, device="cuda", requires_grad=True)
    found = torch.autograd.grad(ours(x, weight, stride=2, padding=1).square().sum(), (x, weight))
    right = torch.autograd.grad(F.conv_transpose2d(x, weight, stride=2, padding=1).square().sum(), (x, weight))
    for one, other in zip(found, right, strict=True):
        assert (one - other).norm() <= 1e-5 * other.norm()


def test_the_class_is_resolved_in_forward():
    x, weight, _ = leaves(named("many_channels_in"), torch.float32, "cuda")
    expected = torch.autograd.grad(ours(x, weight, None, 2, precision="aten").sum(), (x, weight))
    with use_precision("aten"):
        result = ours(x, weight, None, 2)
    with tf32(True), use_precision("tf32"):
        found = torch.autograd.grad(result.sum(), (x, weight))
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_without_cudnn_the_gradients_are_contiguous():
    case = named("channels_last")
    with cudnn(False):
        operands = leaves(case, torch.float32, "cuda")
        assert all(grad.is_contiguous() for grad in gradients(ours, case, operands, precision="exact"))


def test_transforms_and_forward_mode():
    x, weight, bias = named("k4s2p1").tensors(torch.float64, device="cuda")
    for transform in (
        lambda call: torch.func.grad(lambda w: call(x, w, bias, 2, 1).square().sum())(weight),
        lambda call: torch.func.vmap(lambda one: call(one, weight, bias, 2, 1))(x),
        lambda call: torch.func.vmap(lambda b: call(x, weight, b, 2, 1))(torch.stack([bias, -bias])),
        lambda call: torch.func.jvp(lambda w: call(x, w, bias, 2, 1), (weight,), (weight,))[1],
        lambda call: torch.func.jacrev(lambda b: call(x, weight, b, 2, 1).sum((0, 2, 3)))(bias),
    ):
        torch.testing.assert_close(transform(ours), transform(F.conv_transpose2d))
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(ours(forward_ad.make_dual(x, x), weight, bias, 2, 1)).tangent
    torch.testing.assert_close(tangent, F.conv_transpose2d(x, weight, None, 2, 1))


def test_per_sample_gradients():
    x, weight, bias = named("k4s2p1").tensors(torch.float64, device="cuda")
    loss = lambda call: lambda w, one: call(one, w, bias, 2, 1).square().sum()  # noqa: E731
    per_sample = lambda call: torch.func.vmap(torch.func.grad(loss(call)), (None, 0))(weight, x)  # noqa: E731
    torch.testing.assert_close(per_sample(ours), per_sample(F.conv_transpose2d))


def test_raw_ops_have_gradients():
    arguments = ((2, 2), (1, 1), (0, 0), 1, (1, 1), 0, False)
    x, weight, bias = leaves(named("k4s2p1"), torch.float64, "cuda")
    grad_output = torch.randn(2, 6, 10, 12, dtype=torch.float64, device="cuda", requires_grad=True)
    for op, operands in (
        (ops.forward, (x, weight, bias)),
        (ops.grad_input, (grad_output, weight)),
        (ops.grad_weight, (grad_output, x)),
    ):
        assert gradcheck(lambda *tensors, op=op: op(*tensors, *arguments), operands, fast_mode=True)
        assert gradgradcheck(lambda *tensors, op=op: op(*tensors, *arguments), operands, fast_mode=True)
    assert gradcheck(ops.grad_bias, grad_output, fast_mode=True)
    with torch.no_grad(), forward_ad.dual_level(), pytest.raises(NotImplementedError, match="conv_transpose2d"):
        ops.forward(forward_ad.make_dual(x, x), weight, bias, *arguments)


def test_lazy_negation_is_seen():
    """A tensor may carry its sign as a bit; its memory then holds the other sign."""
    x, weight, _ = named("k4s2p1").tensors(device="cuda")
    negative = torch._neg_view(x)
    assert torch.equal(
        ours(negative, weight, None, 2, 1, precision="exact"), ours(-x, weight, None, 2, 1, precision="exact")
    )


def test_no_tensor_changes_and_peak_memory_is_bounded():
    x = torch.randn(8, 64, 32, 32, device="cuda", requires_grad=True)
    weight = torch.randn(64, 64, 4, 4, device="cuda", requires_grad=True)
    result = ours(x, weight, stride=2, padding=1, precision="exact")
    grad_output = torch.randn_like(result)
    before = [(tensor.detach().clone(), tensor._version) for tensor in (x, weight, grad_output)]
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    start = torch.cuda.memory_stats()["requested_bytes.all.current"]
    grads = torch.autograd.grad(result, (x, weight), grad_output)
    used = torch.cuda.memory_stats()["requested_bytes.all.peak"] - start
    assert used <= sum(grad.numel() * 4 for grad in grads) + 256 * 2**20
    for tensor, (copy, version) in zip((x, weight, grad_output), before, strict=True):
        assert torch.equal(tensor, copy)
        assert tensor._version == version


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_saves_the_operands_and_nothing_else(dtype):
    x, weight, bias = leaves(named("k4s2p1"), dtype, "cuda")
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor):
        ours(x, weight, bias, 2, 1, precision="exact")
    assert [tensor.data_ptr() for tensor in saved] == [x.data_ptr(), weight.data_ptr()]

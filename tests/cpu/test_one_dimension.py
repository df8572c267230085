"""`conv_transpose1d`: PyTorch's values, strides, errors and gradients. On the CPU. test_modules.py has its modules."""

from __future__ import annotations

import copy
import inspect
import pickle

import numpy
import pytest
import torch
import torch.nn.functional as F
from cpu.results import outcomes
from cpu_kernels import RAN
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.overrides import TorchFunctionMode

import convt_ext
from convt_ext import ConvTranspose1d, flags
from convt_ext import conv_transpose1d as ours
from convt_ext.dispatch import geometry

CASES = {
    "plain": {},
    "k16s8p4": {"stride": 8, "padding": 4},
    "output_padding": {"stride": 3, "padding": 1, "output_padding": 2},
    "groups": {"stride": 2, "groups": 2},
    "dilation": {"dilation": 3, "padding": 2},
    "tuples": {"stride": (2,), "padding": [1], "output_padding": (1,), "dilation": torch.Size([1])},
    "scalars": {"stride": torch.tensor(2), "padding": numpy.int64(1), "dilation": (torch.tensor(1),)},
}
each_case = pytest.mark.parametrize("arguments", CASES.values(), ids=CASES)


def operands(groups=1, dtype=torch.float32, kernel=16):
    torch.manual_seed(0)
    return tuple(torch.randn(size, dtype=dtype) for size in ((2, 4, 9), (4, 6 // groups, kernel), (6,)))


def of(arguments, dtype=torch.float32):
    return operands(arguments.get("groups", 1), dtype)


def transposed(tensor, *order):
    """Returns an equal tensor with other strides."""
    inverse = [order.index(axis) for axis in range(len(order))]
    return tensor.permute(order).contiguous().permute(inverse)


@each_case
def test_values_and_strides(server, arguments):
    x, weight, bias = of(arguments)
    inputs = x, x[0], transposed(x, 0, 2, 1), x[..., 2:], x[0, :, ::2], x[:, :, :1], x[:1]
    for one in inputs:
        for other in (weight, transposed(weight, 2, 1, 0), transposed(weight, 0, 2, 1)):
            found, expected = ours(one, other, bias, **arguments), F.conv_transpose1d(one, other, bias, **arguments)
            assert torch.equal(found, expected)
            if server == "pytorch":
                assert found.stride() == expected.stride()
    assert len(RAN) == (len(inputs) * 3 if server == "ours" else 0)


def test_the_memory_format_is_that_of_height_1(cpu_is_gpu):
    """PyTorch makes the input contiguous, so only a transposed weight selects channels_last."""
    x, weight, _ = operands()
    for dtype, last in ((torch.float32, True), (torch.float64, False)):
        one, other = transposed(x, 0, 2, 1).to(dtype), transposed(weight, 0, 2, 1).to(dtype)
        assert ours(one, weight.to(dtype)).stride()[1:] == (24, 1)
        assert (ours(one, other).stride()[1] == 1) is last
        assert ours(one, other).unsqueeze(2).is_contiguous(memory_format=geometry.memory_format(last))


def test_signature():
    of_1d, of_2d = (inspect.signature(one) for one in (ours, convt_ext.conv_transpose2d))
    assert str(of_1d).replace("conv_transpose2d", "") == str(of_2d)


BAD = {
    "input_1d": lambda x, w: ((x[0, 0], w), {}),
    "input_4d": lambda x, w: ((x[None], w), {}),
    "weight_2d": lambda x, w: ((x, w[0]), {}),
    "weight_4d": lambda x, w: ((x, w[None]), {}),
    "both_2d": lambda x, w: ((x[None], w[..., None]), {}),
    "channels": lambda x, w: ((x[:, :3], w), {}),
    "channels_unbatched": lambda x, w: ((x[0, :3], w), {}),
    "bias_length": lambda x, w: ((x, w, torch.ones(5)), {}),
    "bias_list": lambda x, w: ((x, w, [0.0] * 6), {}),
    "length_0": lambda x, w: ((x[..., :0], w), {}),
    "output_negative": lambda x, w: ((x[..., :1], w[..., :1]), {"padding": 1}),
    "weight_float64": lambda x, w: ((x, w.double()), {}),
    "input_integer": lambda x, w: ((x.int(), w), {}),
    "weight_none": lambda x, w: ((x, None), {}),
    "input_list": lambda x, w: (([1.0], w), {}),
    "groups_3": lambda x, w: ((x, w), {"groups": 3}),
    "groups_5": lambda x, w: ((x, w), {"groups": 5}),
    "groups_0": lambda x, w: ((x, w), {"groups": 0}),
    "groups_tuple": lambda x, w: ((x, w), {"groups": (1,)}),
    "output_padding_too_large": lambda x, w: ((x, w), {"stride": 2, "output_padding": 2}),
    **{
        f"{name}_{number}": lambda x, w, name=name, value=value: ((x, w), {name: value})
        for name in ("stride", "padding", "output_padding", "dilation")
        for number, value in enumerate((-1, 0, (2, 2), [1, 1, 1], (), 2.0, True, None, "2", (2.0,), (None,), 2**63))
    },
}


@pytest.mark.parametrize("row", BAD)
def test_errors_are_pytorchs(server, row):
    x, weight, _ = operands()
    tensors, named = BAD[row](x, weight)
    expected, found, by_enable = outcomes(ours, tensors, named)
    if isinstance(expected, torch.Tensor):
        assert torch.equal(found, expected)
        assert torch.equal(by_enable, expected)
    else:
        assert found == by_enable == expected
        assert row not in ("input_1d", "input_4d") or "conv_transpose1d" in found[1]


def test_errors_of_our_keywords(cpu_is_gpu):
    x, weight, _ = operands()
    for keywords, kind, words in (
        ({"precision": "fast"}, ValueError, "precision must be one of"),
        ({"precision": "half"}, ValueError, "is for float16 and bfloat16"),
        ({"backend": "ours"}, ValueError, "backend must be one of"),
        ({"residual": 1}, TypeError, "residual must be a tensor"),
    ):
        with pytest.raises(kind, match=words):
            ours(x, weight, **keywords)
    with pytest.raises(RuntimeError, match=r"precision='exact' asks for a kernel .*transform"):
        torch.func.vmap(lambda one: ours(one, weight, precision="exact"))(x)


def test_empty_batches(server):
    x, weight, _ = operands()
    found, expected = ours(x[:0], weight, stride=2), F.conv_transpose1d(x[:0], weight, stride=2)
    assert (found.shape, found.stride()) == (expected.shape, expected.stride())


def test_residual_and_activation(server):
    x, weight, bias = operands()
    expected = F.conv_transpose1d(x, weight, bias, 2)
    for residual in (torch.randn(2, 6, 32), torch.randn(32), torch.ones(6, 1)):
        for activation, function in (("relu", torch.relu), (nn.Tanh(), torch.tanh), (None, lambda value: value)):
            found = ours(x, weight, bias, 2, residual=residual, activation=activation)
            torch.testing.assert_close(found, function(expected + residual))


@each_case
def test_gradients(server, arguments):
    for needed in ((True, True, True), (True, False, False), (False, True, False), (False, False, True)):
        leaves = [tensor.requires_grad_(on) for tensor, on in zip(of(arguments), needed, strict=True)]
        wanted = [tensor for tensor in leaves if tensor.requires_grad]
        for unbatched in (False, True):
            results = []
            for call in (ours, F.conv_transpose1d):
                result = call(leaves[0][0] if unbatched else leaves[0], *leaves[1:], **arguments)
                results.append(torch.autograd.grad(result.square().sum(), wanted))
            torch.testing.assert_close(*results)
            assert [one.stride() for one in results[0]] == [one.stride() for one in results[1]]
    if server == "ours":
        assert {"grad_input", "grad_weight", "grad_bias"} <= set(RAN)


def test_gradcheck_and_gradgradcheck(server):
    x, weight, bias = (one.double().requires_grad_() for one in operands(2, kernel=3))
    for one in (x[:1, :, :3], x[0, :, :3]):
        one = one.detach().requires_grad_()
        for check in (gradcheck, gradgradcheck):
            call = lambda *leaves: ours(*leaves, 2, 1, 1, 2)  # noqa: E731
            assert check(call, (one, weight, bias), fast_mode=True, check_batched_grad=True)


def test_transforms(server):
    x, weight, bias = operands()
    found = torch.func.vmap(lambda one: ours(one, weight, bias, 2))(x)
    torch.testing.assert_close(found, F.conv_transpose1d(x, weight, bias, 2))
    for transform in (torch.func.grad, torch.func.jacrev, torch.func.jacfwd):
        found, expected = (
            transform(lambda one, call=call: call(x, one, bias, 2).square().sum())(weight)
            for call in (ours, F.conv_transpose1d)
        )
        torch.testing.assert_close(found, expected)


def test_autocast(server):
    x, weight, bias = (one.requires_grad_() for one in operands())
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = ours(x, weight, bias, 2), F.conv_transpose1d(x, weight, bias, 2)
    assert found.dtype is expected.dtype is torch.bfloat16
    torch.testing.assert_close(found, expected)
    grads = [torch.autograd.grad(one.float().square().sum(), (x, weight, bias)) for one in (found, expected)]
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile(server, backend):
    torch._dynamo.reset()
    model = nn.Sequential(ConvTranspose1d(4, 6, 4, 2, 1), nn.ReLU(), ConvTranspose1d(6, 3, 16, 8, 4))
    compiled = torch.compile(copy.deepcopy(model), backend=backend, fullgraph=True)
    x = transposed(operands()[0], 0, 2, 1)
    RAN.clear()
    results = [one(x) for one in (compiled, model)]
    torch.testing.assert_close(*results)
    assert results[0].stride() == results[1].stride()
    assert RAN.count("forward") == (4 if server == "ours" else 0)
    for result in results:
        result.square().sum().backward()
    gradients = [[parameter.grad for parameter in one.parameters()] for one in (compiled, model)]
    torch.testing.assert_close(*gradients)
    with torch.no_grad():
        torch.testing.assert_close((compiled(x), compiled(x[0])), (model(x), model(x[0])))


def test_compiled_functions_with_symbolic_lengths(cpu_is_gpu):
    x, weight, bias = operands()
    call = torch.compile(lambda *args: ours(*args, stride=(2,)), backend="aot_eager", fullgraph=True, dynamic=True)
    for length in (9, 7, 5):
        torch.testing.assert_close(call(x[..., :length], weight, bias), ours(x[..., :length], weight, bias, 2))
    with flags(precision="exact"):
        torch.testing.assert_close(call(x, weight, bias), ours(x, weight, bias, 2))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("precision", [None, "exact"])
def test_export(cpu_is_gpu, precision, strict):
    layer, x = ConvTranspose1d(4, 6, 4, 2, 1, precision=precision).eval(), operands()[0]
    program = torch.export.export(layer, (x,), strict=strict)
    torch.testing.assert_close(program.module()(x), layer(x))
    if precision == "exact":
        assert "convt_ext.forward" in program.graph_module.code


class Subclass(nn.ConvTranspose1d):
    def extra_repr(self):
        return "mine"


class Changed(nn.ConvTranspose1d):
    def forward(self, input, output_size=None):
        return super().forward(input, output_size) + 1


def test_convert_and_revert(cpu_is_gpu):
    model = nn.Sequential(nn.ConvTranspose1d(4, 6, 3), nn.BatchNorm1d(6), nn.ReLU(), Subclass(6, 6, 3)).eval()
    x = operands()[0]
    expected = model(x)
    for fuse in (False, True):
        RAN.clear()
        converted = convt_ext.convert(copy.deepcopy(model), fuse=fuse)
        torch.testing.assert_close(converted(x), expected)
        assert RAN == ["forward"] * 2
        assert isinstance(converted[3], Subclass)
        assert isinstance(converted[3], ConvTranspose1d)
        assert type(pickle.loads(pickle.dumps(converted))[3]) is type(converted[3])
        with torch.no_grad():
            torch.testing.assert_close(convt_ext.freeze(converted)(x), expected)
            torch.testing.assert_close(convt_ext.unfreeze(converted)(x), expected)
        assert [type(one) for one in convt_ext.revert(converted)] == [type(one) for one in model]
    with pytest.warns(UserWarning, match="left 1 module"):
        assert type(convt_ext.convert(Changed(4, 6, 3))) is Changed
    traced = torch.fx.symbolic_trace(convt_ext.convert(copy.deepcopy(model)))
    torch.testing.assert_close(convt_ext.convert(traced, fuse=True)(x), expected)


def test_enable(cpu_is_gpu):
    builtin, (x, weight, bias) = torch.conv_transpose1d, operands()
    with convt_ext.enabled():
        assert torch.equal(F.conv_transpose1d(x, weight, bias, 2), builtin(x, weight, bias, 2))
        assert torch.conv_transpose1d(input=x[0], weight=weight).shape == (6, 24)
        nn.ConvTranspose1d(4, 6, 3)(x)
        assert RAN == ["forward"] * 3
        assert pickle.loads(pickle.dumps(F.conv_transpose1d)) is F.conv_transpose1d
        compiled = torch.compile(lambda *args: F.conv_transpose1d(*args, 2), backend="aot_eager", fullgraph=True)
        assert torch.equal(compiled(x, weight, bias), builtin(x, weight, bias, 2))
        assert RAN == ["forward"] * 4
    assert F.conv_transpose1d is torch.conv_transpose1d is builtin


def test_a_tools_function_is_called(cpu_is_gpu, monkeypatch):
    builtin, calls = torch.conv_transpose1d, []
    monkeypatch.setattr(F, "conv_transpose1d", lambda *args: calls.append(args) or builtin(*args))
    x, weight, bias = operands()
    ours(x, weight, bias, 2)
    assert (len(calls), RAN) == (1, [])
    ours(x, weight, bias, 2, precision="exact")
    assert (len(calls), RAN) == (1, ["forward"])


def test_pytorchs_operator_runs_where_it_is_faster(cpu_is_gpu, monkeypatch):
    """It receives the call's own operands, so that it saves no views of them."""
    best = convt_ext.dispatch.planner.BestPlan(30.0, 1.0, 0)
    monkeypatch.setattr(convt_ext.dispatch.planner, "best_plan", lambda *arguments, **named: best)
    x, weight, bias = (one.requires_grad_() for one in operands())
    found = ours(x, weight, bias, 2)
    assert found.grad_fn.name() == F.conv_transpose1d(x, weight, bias, 2).grad_fn.name()
    assert RAN == []


def test_report_and_explain():
    x, weight, _ = operands()
    (forward, *_) = convt_ext.report(convt_ext.convert(nn.ConvTranspose1d(4, 6, 3)), x).lines
    assert forward.call.startswith("conv_transpose1d 2x4x9 * 4x6x3")
    found = convt_ext.explain(x, weight, stride=2, precision="exact", activation="relu")
    assert (found.served_by, found.dims) == ("convt_ext", 1)
    assert str(found).startswith("conv_transpose1d")
    assert "in one pass" in found.epilogue
    assert convt_ext.explain(x, weight, stride=(2, 2)).served_by == "torch"


def test_a_mode_sees_one_call_of_pytorchs_function():
    seen = []

    class Watch(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    with Watch():
        ours(*operands(), 2)
    assert seen.count(F.conv_transpose1d) == 1
    assert torch.Tensor.unsqueeze not in seen


def test_calls_of_both_dimensions_do_not_share_decisions(cpu_is_gpu):
    """A one-dimensional batch has the size of an unbatched image."""
    x, weight, _ = operands()
    for _ in range(2):
        assert ours(x, weight, stride=2).shape == (2, 6, 32)
        assert convt_ext.conv_transpose2d(x, weight[:2, :, None], stride=2).shape == (6, 7, 32)

"""torch.compile and torch.export on the CPU, with the ops computed by PyTorch: graphs, strides, switches."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from cases import each_case, named
from cpu_kernels import RAN, cpu_is_gpu
from served import allow_tf32, tf32
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

import convt_ext
from convt_ext import conv_transpose2d as ours
from convt_ext import ops, routing
from convt_ext import precision as precisions

pytestmark = pytest.mark.usefixtures("cpu_is_gpu")
__all__ = ["cpu_is_gpu"]

PRECISIONS = [None, "exact"]


def step(call, x, weight, bias, arguments, precision):
    """Returns result and gradients; a compiler may rearrange the operations before and after the layer."""
    result = call(x * 2, weight, bias, **arguments, **({"precision": precision} if call is ours else {}))
    return result.relu() + 1


def with_gradients(function, operands):
    leaves = [tensor if tensor is None else tensor.detach().clone().requires_grad_() for tensor in operands]
    result = function(*leaves)
    wanted = [tensor for tensor in leaves if tensor is not None]
    return [result, *torch.autograd.grad(result.square().sum(), wanted)]


def assert_all_close(found, expected):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


@each_case("k4s2p1", "k3s2p1op1", "kb75", "gcd_2", "input_1x1", "no_bias", "channels_last_weight",
           "channel_slice")  # fmt: skip
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_forward_and_backward_in_one_graph(case, precision, dynamic):
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    operands = case.tensors()
    compiled = torch.compile(
        lambda *tensors: step(ours, *tensors, case.arguments, precision),
        backend=counter, fullgraph=True, dynamic=dynamic,
    )  # fmt: skip
    found = with_gradients(compiled, operands)
    assert "forward" in RAN
    assert {"grad_input", "grad_weight"} <= set(RAN)
    assert counter.frame_count == 1
    eager = with_gradients(lambda *tensors: step(ours, *tensors, case.arguments, precision), operands)
    assert_all_close(found, eager)
    for one, other in zip(found, eager, strict=True):
        assert one.stride() == other.stride()


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_a_new_batch_size_needs_no_new_graph(precision, layout):
    counter = CompileCounterWithBackend("aot_eager")
    model = convt_ext.ConvTranspose2d(4, 6, 4, stride=2, padding=1, precision=precision)
    compiled = torch.compile(model, backend=counter, fullgraph=True, dynamic=True)
    for batch in (2, 3, 5, 16):
        x = torch.randn(batch, 4, 5, 6).to(memory_format=layout)
        torch.testing.assert_close(compiled(x), model(x))
        compiled(x).sum().backward()
    for height in (7, 9):
        compiled(torch.randn(2, 4, height, 6).to(memory_format=layout)).sum().backward()
    assert counter.frame_count == 1


@each_case("k4s2p1", "channels_last", "channels_last_weight", "kb75", "output_padding_over_stride", "input_1x1")
@pytest.mark.parametrize("precision", PRECISIONS)
def test_inductor(case, precision):
    compiled = torch.compile(lambda *tensors: step(ours, *tensors, case.arguments, precision), fullgraph=True)
    found = with_gradients(compiled, case.tensors())
    assert_all_close(
        found, with_gradients(lambda *t: step(F.conv_transpose2d, *t, case.arguments, None), case.tensors())
    )
    assert {"forward", "grad_input", "grad_weight"} <= set(RAN)


def test_switches_are_read_at_run_time(monkeypatch):
    monkeypatch.setattr(precisions, "has_estimates", lambda served, _: served in precisions.EXACT_CLASSES)
    x, weight, bias = named("k4s2p1").tensors()
    call = torch.compile(lambda *tensors: ours(*tensors, 2, 1), backend="aot_eager", fullgraph=True)
    with tf32(False):
        call(x, weight, bias)
    assert RAN == ["forward"]
    with tf32(True):
        torch.testing.assert_close(call(x, weight, bias), F.conv_transpose2d(x, weight, bias, 2, 1))
    assert RAN == ["forward"]
    with tf32(False):
        call(x, weight, bias)
    assert RAN == ["forward", "forward"]


def test_exports_contain_pytorchs_operator_if_it_uses_tensor_cores():
    call = lambda *tensors: ours(*tensors, 2, 1)  # noqa: E731
    with allow_tf32(True):
        graph = torch.export.export(_Wrapped(call), named("k4s2p1").tensors()).graph
    assert "convt_ext" not in str(graph)


class _Wrapped(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, *tensors):
        return self.call(*tensors)


def test_a_compiled_program_keeps_its_precision_under_another_context(monkeypatch):
    monkeypatch.setattr(precisions, "has_estimates", lambda served, _: served in precisions.EXACT_CLASSES)
    x, weight, bias = (tensor.requires_grad_() for tensor in named("k4s2p1").tensors())
    result = torch.compile(lambda *tensors: ours(*tensors, 2, 1), backend="aot_eager", fullgraph=True)(x, weight, bias)
    with convt_ext.use_precision("aten"), tf32(True):
        result.sum().backward()
    assert RAN == ["forward"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype):
    x, weight, bias = (tensor.requires_grad_() for tensor in named("k4s2p1").tensors())

    def call(x, weight, bias):
        with torch.autocast("cpu", dtype=dtype):
            return ours(x, weight, bias, 2, 1, precision="exact")

    result = torch.compile(call, backend="aot_eager", fullgraph=True)(x, weight, bias)
    assert result.dtype is dtype
    result.sum().backward()
    assert x.grad.dtype is weight.grad.dtype is bias.grad.dtype is torch.float32
    assert set(RAN) == {"forward", "grad_input", "grad_weight", "grad_bias"}


def test_backward_under_autocast_keeps_the_dtype():
    x, weight, bias = (tensor.requires_grad_() for tensor in named("k4s2p1").tensors())
    result = torch.compile(lambda *tensors: ours(*tensors, 2, 1), backend="aot_eager", fullgraph=True)(x, weight, bias)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result.sum().backward()
    assert weight.grad.dtype is torch.float32
    assert "grad_weight" in RAN


def test_transforms_inside_of_a_compiled_function():
    x, weight, bias = named("k4s2p1").tensors(torch.float64)

    def gradient(call):
        return torch.func.grad(lambda w: call(x, w, bias, 2, 1).square().sum())(weight)

    torch.testing.assert_close(
        torch.compile(lambda: gradient(ours), backend="aot_eager", fullgraph=True)(), gradient(F.conv_transpose2d)
    )
    assert RAN == []


def test_illegal_arguments_are_pytorchs_while_tracing():
    x, weight, _ = named("k4s2p1").tensors()
    with pytest.raises(Exception, match="to have 4 channels"):
        torch.compile(lambda: ours(x[:, :3], weight, stride=2), backend="aot_eager", fullgraph=True)()


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_export_bakes_the_class_in(strict, precision):
    layer = convt_ext.ConvTranspose2d(4, 6, 4, stride=2, padding=1, precision=precision)
    x = torch.randn(2, 4, 5, 6)
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(layer, (x,), dynamic_shapes=({0: batch},), strict=strict)
    assert "convt_ext.forward.default" in str(program.graph)
    RAN.clear()
    with tf32(True):
        for size in (2, 7):
            other = torch.randn(size, 4, 5, 6)
            torch.testing.assert_close(
                program.module()(other), F.conv_transpose2d(other, layer.weight, layer.bias, 2, 1)
            )
    assert RAN == ["forward"] * 2


def test_an_exported_program_trains():
    layer = convt_ext.ConvTranspose2d(4, 6, 4, stride=2, padding=1, precision="exact")
    x = torch.randn(2, 4, 5, 6)
    program = torch.export.export(layer, (x,))
    module = program.module()
    module(x).square().sum().backward()
    layer(x).square().sum().backward()
    torch.testing.assert_close(module.weight.grad, layer.weight.grad)


OPERANDS = {
    "forward": lambda x, weight, bias, g: (x, weight, bias),
    "grad_input": lambda x, weight, bias, g: (g, weight),
    "grad_weight": lambda x, weight, bias, g: (g, x),
}


@pytest.mark.parametrize("name", OPERANDS)
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("grads", [False, True])
@each_case("k4s2p1", "kb75", "gcd_2", "channels_last", "no_bias")
def test_opcheck(name, case, channels_last, grads):
    x, weight, bias = case.tensors()
    operands = OPERANDS[name](x, weight, bias, torch.randn(case.output_size))
    operands = [tensor if tensor is None else tensor.requires_grad_(grads) for tensor in operands]
    lists = (case.s, case.p, case.op, case.g, case.d)
    torch.library.opcheck(getattr(ops, name), (*operands, *lists, 0, channels_last))


@pytest.mark.parametrize("grads", [False, True])
def test_opcheck_of_the_bias(grads):
    torch.library.opcheck(ops.grad_bias, (torch.randn(2, 3, 4, 5, requires_grad=grads),))


def test_unsupported_calls_are_rejected_while_tracing(monkeypatch):
    monkeypatch.setattr(convt_ext._extension, "unsupported_reason", lambda index: "install another wheel")
    x, weight, bias = named("k4s2p1").tensors()
    call = torch.compile(lambda *tensors: ours(*tensors, 2, 1, precision="exact"), backend="aot_eager", fullgraph=True)
    with pytest.raises(Exception, match="install another wheel"):
        call(x, weight, bias)
    assert routing.DEVICE_TYPE == "cpu"

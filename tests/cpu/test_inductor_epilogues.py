"""Inductor programs on the CPU: pointwise operations after an op of convt_ext become its steps."""

from __future__ import annotations

import functools
import math
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from cases import named
from cpu_kernels import cpu_is_gpu
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch._inductor import config

import convt_ext
from convt_ext import conv_transpose2d as ours
from convt_ext.compile import fusion, mode, traced_epilogues
from convt_ext.epilogue import (
    ADD,
    CLAMP,
    DIVIDE,
    GELU,
    GELU_TANH,
    HARDSWISH,
    HAS_TENSOR,
    LEAKY_RELU,
    MISH,
    MULTIPLY,
    SIGMOID,
    SILU,
    SOFTPLUS,
    SUBTRACT,
    TANH,
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("cpu_is_gpu")
__all__ = ["cpu_is_gpu"]

WITH_TENSOR = HAS_TENSOR
OPS = (traced_epilogues.forward_then, traced_epilogues.forward_then_by_name)
CHANNELS, SIZE = 6, (2, 6, 10, 12)  # the shape of the results of k4s2p1


@pytest.fixture(autouse=True)
def always_fused(monkeypatch):
    """Also if another alternative is faster, which test_compile_choice.py tests."""
    monkeypatch.setattr(mode, "MODE", mode.FUSED)


@pytest.fixture
def graphs(monkeypatch):
    """The graphs that the pass has left, in order."""
    seen, fuse = [], fusion.fuse

    def record(graph):
        fuse(graph)
        seen.append(graph)

    monkeypatch.setattr(fusion, "fuse", record)
    torch._dynamo.reset()
    with config.patch(force_disable_caches=True):  # the passes do not run again for a cached graph
        yield seen


def fused(graph):
    return [node for node in graph.nodes if node.target in OPS]


def operations(graph):
    """Returns the operations of the only op with steps; none if there is no such op."""
    nodes = fused(graph)
    assert len(nodes) <= 1
    return nodes[0].args[-3] if nodes else []


def drawn(*size):
    return torch.rand(size, generator=torch.Generator().manual_seed(len(size))) + 0.5


CHANNEL, RESULT, PLANE = drawn(CHANNELS, 1, 1), drawn(*SIZE), drawn(*SIZE[2:])
NARROW = RESULT.half()
STATISTICS = [drawn(CHANNELS) * factor for factor in (1, 2, 3, 4)]  # mean, variance, weight and bias


def batch_norm(y, training=False):
    return F.batch_norm(y, *STATISTICS, training, 0.1, 1e-3)


FUSED = {
    "relu": (torch.relu, [CLAMP]),
    "F.relu": (F.relu, [CLAMP]),
    "F.relu inplace": (lambda y: F.relu(y, inplace=True), [CLAMP]),
    "relu_": (lambda y: y.relu_(), [CLAMP]),
    "y.relu": (lambda y: y.relu(), [CLAMP]),
    "relu6": (F.relu6, [CLAMP]),
    "clamp": (lambda y: torch.clamp(y, -0.1, max=0.2), [CLAMP]),
    "y.clamp": (lambda y: y.clamp(min=0.1), [CLAMP]),
    "clamp_min": (lambda y: y.clamp_min(0.1), [CLAMP]),
    "clamp_max_": (lambda y: y.clamp_max_(0.1), [CLAMP]),
    "hardtanh": (lambda y: F.hardtanh(y, -0.3, 0.2), [CLAMP]),
    "leaky_relu": (lambda y: F.leaky_relu(y, 0.2), [LEAKY_RELU]),
    "leaky_relu inplace": (lambda y: F.leaky_relu(y, inplace=True), [LEAKY_RELU]),
    "prelu": (lambda y: F.prelu(y, CHANNEL.view(-1)), [LEAKY_RELU + WITH_TENSOR]),
    "prelu of one": (lambda y: F.prelu(y, CHANNEL.view(-1)[:1]), [LEAKY_RELU + WITH_TENSOR]),
    "silu": (F.silu, [SILU]),
    "silu inplace": (lambda y: F.silu(y, inplace=True), [SILU]),
    "gelu": (F.gelu, [GELU]),
    "gelu tanh": (lambda y: F.gelu(y, approximate="tanh"), [GELU_TANH]),
    "tanh": (torch.tanh, [TANH]),
    "tanh_": (lambda y: y.tanh_(), [TANH]),
    "F.tanh": (F.tanh, [TANH]),
    "sigmoid": (torch.sigmoid, [SIGMOID]),
    "y.sigmoid": (lambda y: y.sigmoid(), [SIGMOID]),
    "hardswish": (F.hardswish, [HARDSWISH]),
    "mish": (F.mish, [MISH]),
    "softplus": (lambda y: F.softplus(y, beta=2, threshold=10), [SOFTPLUS]),
    "nn": (nn.Sequential(nn.SiLU(), nn.Hardtanh(), nn.PReLU(CHANNELS), nn.Identity(), nn.Softplus()),
           [SILU, CLAMP, LEAKY_RELU + WITH_TENSOR, SOFTPLUS]),
    "+ number": (lambda y: y + 0.5, [ADD]),
    "number +": (lambda y: 2 + y, [ADD]),
    "- number": (lambda y: y - 0.5, [SUBTRACT]),
    "number -": (lambda y: 1 - y, [MULTIPLY, ADD]),
    "* number": (lambda y: y * 3, [MULTIPLY]),
    "/ number": (lambda y: y / 3, [DIVIDE]),
    "negated": (lambda y: -y, [MULTIPLY]),
    "+= number": (lambda y: y.add_(0.5), [ADD]),
    "+ channel": (lambda y: y + CHANNEL, [ADD + WITH_TENSOR]),
    "- channel": (lambda y: y - CHANNEL, [SUBTRACT + WITH_TENSOR]),
    "channel -": (lambda y: CHANNEL - y, [MULTIPLY, ADD + WITH_TENSOR]),
    "* plane": (lambda y: PLANE * y, [MULTIPLY + WITH_TENSOR]),
    "/ result": (lambda y: torch.div(y, RESULT), [DIVIDE + WITH_TENSOR]),
    "y.add residual": (lambda y: y.add(RESULT), [ADD + WITH_TENSOR]),
    "y.mul_ residual": (lambda y: y.mul_(RESULT), [MULTIPLY + WITH_TENSOR]),
    "add with alpha": (lambda y: torch.add(y, CHANNEL, alpha=2), [ADD + WITH_TENSOR]),
    "sub number with alpha": (lambda y: torch.sub(y, 3, alpha=2), [SUBTRACT]),
    "rsub": (lambda y: torch.rsub(y, 3), [MULTIPLY, ADD]),
    "operand by name": (lambda y: torch.mul(y, other=RESULT), [MULTIPLY + WITH_TENSOR]),
    "residual behind the op": (lambda y: y + RESULT.sin(), [ADD + WITH_TENSOR]),
    "chain": (lambda y: torch.tanh(F.mish(y) + 0.5).clamp(-0.1, 0.3) * 2, [MISH, ADD, TANH, CLAMP, MULTIPLY]),
    "until what is unknown": (lambda y: torch.erf(torch.relu(y)).neg(), [CLAMP]),
    "until two uses": (lambda y: (lambda z: (z * 2, z + 1))(y.relu()), [CLAMP]),
}  # fmt: skip


@pytest.mark.parametrize("precision", [None, "exact"])
@pytest.mark.parametrize("name", FUSED)
def test_fused(graphs, name, precision):
    after, expected_operations = FUSED[name]
    operands = named("k4s2p1").tensors()
    with torch.no_grad():
        call = torch.compile(lambda *t: after(ours(*t, 2, 1, precision=precision)), fullgraph=True)
        found, expected = call(*operands), after(F.conv_transpose2d(*operands, 2, 1))
    assert [operations(graph) for graph in graphs] == [expected_operations]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


NORM = [MULTIPLY + WITH_TENSOR, ADD + WITH_TENSOR]
NORMS = {
    "batch_norm": (batch_norm, NORM),
    "nn.BatchNorm2d": (nn.Sequential(nn.BatchNorm2d(CHANNELS), nn.ReLU()).eval(), [*NORM, CLAMP]),
    "until another": (lambda y: batch_norm(batch_norm(y).relu()), [*NORM, CLAMP, *NORM]),
}


@pytest.mark.parametrize(("groups", "has_bias"), [(1, True), (1, False), (2, True)])
@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("precision", [None, "exact"])
def test_a_norm_is_two_steps(graphs, name, groups, has_bias, precision):
    after, expected_operations = NORMS[name]
    arguments = 2, 1, 0, groups
    operands = drawn(2, 4, 5, 6), drawn(4, CHANNELS // groups, 4, 4), drawn(CHANNELS) if has_bias else None
    with torch.no_grad():
        call = torch.compile(lambda *t: after(ours(*t, *arguments, precision=precision)), fullgraph=True)
        found, expected = call(*operands), after(F.conv_transpose2d(*operands, *arguments))
    assert [operations(graph) for graph in graphs] == [expected_operations]
    assert not any(node.target is F.batch_norm for graph in graphs for node in graph.nodes)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def saved(y):
    return y, y.relu()


def changed_in_between(y):
    scale = CHANNEL.clone()
    doubled = scale * 2
    scale.add_(1)
    return y * doubled, scale


LEFT = {
    "unknown": torch.erf,
    "the result twice": lambda y: y * y,
    "saved": saved,
    "training batch_norm": lambda y: batch_norm(y, training=True),
    "pooling": lambda y: F.max_pool2d(y, 2),
    "enlarged": lambda y: y + torch.ones(3, 1, 1, 1, 1),
    "promoted by a dtype": lambda y: y + RESULT.double(),
    "another dtype": lambda y: y + NARROW,
    "cast": lambda y: y.double().relu(),
    "number / y": lambda y: 2 / y,
    "floor": lambda y: torch.div(y, 0.5, rounding_mode="floor"),
    "clamp by tensors": lambda y: torch.clamp(y, CHANNEL),
    "complex": lambda y: y * 2j,
    "into another": lambda y: RESULT.clone().sub_(y),
    "rsub with alpha": lambda y: torch.rsub(y, 1.5, alpha=2),
    "changed in between": changed_in_between,
    "power": lambda y: y**2,
}


@pytest.mark.parametrize("name", LEFT)
def test_left_alone(graphs, name):
    after, operands = LEFT[name], named("k4s2p1").tensors()
    with torch.no_grad():
        found = torch.compile(lambda *t: after(ours(*t, 2, 1)), fullgraph=True)(*operands)
        expected = after(F.conv_transpose2d(*operands, 2, 1))
    assert [operations(graph) for graph in graphs] == [[]]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_residual_that_records_gradients_is_not_fused(graphs):
    operands, residual = named("k4s2p1").tensors(), RESULT.clone().requires_grad_()
    found = torch.compile(lambda r, *t: ours(*t, 2, 1).relu() + r, fullgraph=True)(residual, *operands)
    assert [operations(graph) for graph in graphs] == [[CLAMP]]
    assert torch.equal(*torch.autograd.grad(found.sum(), residual), torch.ones(SIZE))


def test_recording_that_ends_inside_the_program_is_no_obstacle(graphs):
    operands = [tensor.requires_grad_() for tensor in named("k4s2p1").tensors()]

    def call(*tensors):
        with torch.no_grad():
            result = ours(*tensors, 2, 1).relu()
        return result * tensors[0].mean()

    found = torch.compile(call, fullgraph=True)(*operands)
    expected = F.conv_transpose2d(*operands, 2, 1).detach().relu() * operands[0].mean()
    assert [operations(graph) for graph in graphs] == [[CLAMP]]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_formats_are_those_of_pytorchs(layout):
    x, weight, bias = named("k4s2p1").tensors()
    x = x.contiguous(memory_format=layout)
    with torch.no_grad():
        found = torch.compile(lambda *t: ours(*t, 2, 1).relu() * RESULT, fullgraph=True)(x, weight, bias)
        expected = F.conv_transpose2d(x, weight, bias, 2, 1).relu() * RESULT
    assert found.stride() == expected.stride()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_a_dynamic_batch_is_one_program(graphs, layout):
    x, weight, bias = named("k4s2p1").tensors()
    counter = CompileCounterWithBackend("inductor")
    call = lambda x, weight, bias, other: torch.tanh(ours(x, weight, bias, 2, 1) + other)  # noqa: E731
    program = torch.compile(call, backend=counter, fullgraph=True, dynamic=True)
    with torch.no_grad():
        for factor in (1, 3, 5):
            several = x.repeat(factor, 1, 1, 1).contiguous(memory_format=layout)
            other = F.conv_transpose2d(several, weight, None, 2, 1).cos()
            found = program(several, weight, bias, other)
            expected = torch.tanh(F.conv_transpose2d(several, weight, bias, 2, 1) + other)
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert counter.frame_count == 1
    assert [operations(graph) for graph in graphs] == [[ADD + WITH_TENSOR, TANH]]


def test_under_autocast(graphs):
    operands = named("k4s2p1").tensors()
    norm = nn.BatchNorm2d(CHANNELS).eval()
    generator = torch.Generator().manual_seed(0)
    norm.running_mean.uniform_(generator=generator), norm.running_var.uniform_(0.5, 2, generator=generator)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = torch.compile(lambda *t: F.gelu(norm(ours(*t, 2, 1))), fullgraph=True)(*operands)
        expected = F.gelu(norm(F.conv_transpose2d(*operands, 2, 1)))
    assert found.dtype is expected.dtype is torch.bfloat16
    assert [operations(graph) for graph in graphs] == [[*NORM, GELU]]
    exact = F.gelu(norm(F.conv_transpose2d(*(one.bfloat16().float() for one in operands), 2, 1)))
    # The norm of all errors: the largest single error is a matter of luck. PyTorch rounds to bfloat16 after the layer
    # and after the BatchNorm. On the CPU the steps round after the layer, the product and the sum, with rounded
    # operands: about twice as many roundings. The ratio of 12 seeds is 1.04 to 1.30.
    assert (found - exact).norm() <= 1.5 * (expected - exact).norm()


def test_a_network_in_channels_last_copies_no_residual(graphs):
    torch.manual_seed(0)
    first, layer = nn.Conv2d(32, 96, 3, padding=1), convt_ext.ConvTranspose2d(96, 96, 1)
    x = torch.randn(2, 32, 8, 8)

    def call(x):
        y = first(x)
        return layer(y) + y.sin()

    with torch.no_grad():
        found, codes = torch._inductor.utils.run_and_get_code(torch.compile(call, fullgraph=True), x)
        torch.testing.assert_close(found, call(x), rtol=1e-4, atol=1e-4)
    assert [operations(graph) for graph in graphs] == [[ADD + WITH_TENSOR]]
    body = codes[0][codes[0].index("def call(") :]
    assert body.count("cpp_fused") <= 3  # x and a weight turn to channels_last, and the sine


def test_passes_that_the_user_has_set_run_first():
    order = []
    before = lambda graph: order.append(len(fused(graph)))  # noqa: E731
    operands = named("k4s2p1").tensors()
    with torch.no_grad(), config.patch(pre_grad_custom_pass=before):
        torch.compile(lambda *t: ours(*t, 2, 1).relu(), fullgraph=True)(*operands)
        fusion.install()
        present = config.pre_grad_custom_pass
        assert isinstance(present, fusion.Fusion)
        assert present.before == (before,)
    assert order == [0]


def test_cache_keys_contain_the_sources_of_the_pass():
    assert fusion.Fusion(()).uuid() == fusion.Fusion(()).uuid() is not None
    assert fusion.Fusion((lambda graph: None,)).uuid() is None


def test_programs_that_run_without_python_have_no_op_made_of_it(graphs):
    operands = named("k4s2p1").tensors()
    with torch.no_grad(), torch._inductor.virtualized.V.set_aot_compilation(True):
        graph = torch.fx.symbolic_trace(lambda x, w: torch.ops.convt_ext.forward(x, w).relu()).graph
        before = str(graph)
        fusion.fuse(graph)
    assert str(graph) == before
    del operands


@pytest.mark.parametrize(("value", "is_off"), [("", False), ("auto", False), ("bare", True)])
def test_one_variable_switches_it_off(value, is_off):
    program = (
        "from convt_ext.compile import fusion; fusion.install(); print(fusion.config.pre_grad_custom_pass is None)"
    )
    environment = {**os.environ, "CONVT_EXT_COMPILE": value}
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300, check=True
    )
    assert run.stdout.split() == [str(is_off)]


ACTIVATIONS = {
    "relu": F.relu,
    "relu in place": lambda y: F.relu(y, inplace=True),
    "method": lambda y: y.relu(),
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "leaky relu": lambda y: F.leaky_relu(y, 0.2),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}


def gradients_of(function, operands, second=False):
    """Returns the gradients of all operands; with `second`, the gradients of these gradients."""
    leaves = [one.detach().clone().requires_grad_() for one in operands]
    result = function(*leaves)
    found = torch.autograd.grad(result.square().sum(), leaves, create_graph=second)
    return [result, *(torch.autograd.grad(sum(one.sum() for one in found), leaves) if second else found)]


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_fused_in_training(graphs, name, with_bias):
    operands = named("k4s2p1").tensors()[: 2 + with_bias]

    def program(call, x, weight, bias=None):
        return ACTIVATIONS[name](call(x, weight, bias, 2, 1))

    compiled = torch.compile(functools.partial(program, ours), fullgraph=True)
    found = gradients_of(compiled, operands)
    assert len(fused(graphs[0])) == 1
    expected = gradients_of(functools.partial(program, F.conv_transpose2d), operands)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert [one.stride() for one in found] == [one.stride() for one in expected]


@pytest.mark.parametrize(
    "after",
    [
        F.gelu, F.silu, lambda y: y * 0.5, lambda y: F.relu(y * 0.5), lambda y: y.clamp(0.0, 1.0),
        lambda y: F.leaky_relu(y, -0.2), lambda y: F.relu(y) + y,
    ],
    ids=["gelu", "silu", "factor", "relu of a product", "clamp", "negative slope", "two readers"],
)  # fmt: skip
def test_in_training_nothing_else_is_fused(graphs, after):
    x, weight, _ = named("k4s2p1").tensors()
    compiled = torch.compile(lambda x, weight: after(ours(x, weight, None, 2, 1)), fullgraph=True)
    found = gradients_of(compiled, (x, weight))
    assert [fused(graph) for graph in graphs] == [[]]
    expected = gradients_of(lambda x, weight: after(F.conv_transpose2d(x, weight, None, 2, 1)), (x, weight))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("steps", [([TANH], [0.0, 0.0]), ([CLAMP], [0.0, math.inf]), ([LEAKY_RELU], [0.2, 0.0])])
def test_the_op_has_gradients_of_second_order(steps):
    by_torch = {TANH: torch.tanh, CLAMP: F.relu, LEAKY_RELU: lambda y: F.leaky_relu(y, 0.2)}[steps[0][0]]
    numbers = [2, 2, 1, 1, 0, 0, 1, 1, 1]
    operands = [one.double() for one in named("k4s2p1").tensors()]
    found = gradients_of(
        lambda *tensors: traced_epilogues.forward_then(*tensors, numbers, None, *steps, []), operands, second=True
    )
    expected = gradients_of(lambda *tensors: by_torch(F.conv_transpose2d(*tensors, 2, 1)), operands, second=True)
    torch.testing.assert_close(found, expected)


def test_the_ops_refuse_gradients_that_do_not_follow_from_the_result():
    x, weight, _ = named("k4s2p1").tensors()
    with pytest.raises(RuntimeError, match="conv_transpose2d"):
        traced_epilogues.forward_then(
            x.requires_grad_(), weight, None, [2, 2, 1, 1, 0, 0, 1, 1, 1], None, [GELU], [0.0, 0.0], []
        ).sum().backward()

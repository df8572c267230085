"""Inductor's programs on the CPU: pointwise operations after an op of convt_ext become its steps.

Most programs run as the pass leaves them. Inductor compiles those of `INDUCTORS`, which is slow.
"""

from __future__ import annotations

import functools
import math

import pytest
import torch
import torch.nn.functional as F
from cases import named
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch._inductor import config

import convt_ext
from convt_ext import conv_transpose2d as ours
from convt_ext.compile import fusion, mode, traced_epilogues
from convt_ext.epilogue import steps as epilogue

pytestmark = pytest.mark.usefixtures("cpu_is_gpu")

NAMES = {value: name for name, value in vars(epilogue).items() if name.isupper() and type(value) is int}
OPS = (traced_epilogues.forward_then, traced_epilogues.forward_then_by_name)
CHANNELS, SIZE = 6, (2, 6, 10, 12)  # the shape of the results of k4s2p1
NUMBERS = [2, 2, 1, 1, 0, 0, 1, 1, 1]  # the arguments of k4s2p1 for the traced op


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
    """Returns the names of the operations of the only op with steps, with a + where there is an operand."""
    nodes = fused(graph)
    assert len(nodes) <= 1
    found = [divmod(operation, epilogue.HAS_TENSOR) for operation in (nodes[0].args[-3] if nodes else [])]
    return " ".join(NAMES[operation] + "+" * has_tensor for has_tensor, operation in found)


def drawn(*size):
    return torch.rand(size, generator=torch.Generator().manual_seed(len(size))) + 0.5


CHANNEL, RESULT, PLANE = drawn(CHANNELS, 1, 1), drawn(*SIZE), drawn(*SIZE[2:])
NARROW = RESULT.half()
STATISTICS = [drawn(CHANNELS) * factor for factor in (1, 2, 3, 4)]  # mean, variance, weight and bias


def batch_norm(y, training=False):
    return F.batch_norm(y, *STATISTICS, training, 0.1, 1e-3)


MODULES = nn.Sequential(nn.SiLU(), nn.Hardtanh(), nn.PReLU(CHANNELS), nn.Identity(), nn.Softplus())


def changed_in_between(y):
    scale = CHANNEL.clone()
    doubled = scale * 2
    scale.add_(1)
    return y * doubled, scale


# Operations, and the expressions of a result y that become these steps.
FUSED = {
    "CLAMP": (
        "torch.relu(y)", "F.relu(y)", "F.relu(y, inplace=True)", "y.relu_()", "y.relu()", "F.relu6(y)",
        "torch.clamp(y, -0.1, max=0.2)", "y.clamp(min=0.1)", "y.clamp_min(0.1)", "y.clamp_max_(0.1)",
        "F.hardtanh(y, -0.3, 0.2)", "torch.erf(torch.relu(y)).neg()", "(lambda z: (z * 2, z + 1))(y.relu())",
    ),
    "LEAKY_RELU": ("F.leaky_relu(y, 0.2)", "F.leaky_relu(y, inplace=True)"),
    "LEAKY_RELU+": ("F.prelu(y, CHANNEL.view(-1))", "F.prelu(y, CHANNEL.view(-1)[:1])"),
    "SILU": ("F.silu(y)", "F.silu(y, inplace=True)"),
    "GELU": ("F.gelu(y)",),
    "GELU_TANH": ("F.gelu(y, approximate='tanh')",),
    "TANH": ("torch.tanh(y)", "y.tanh_()", "F.tanh(y)"),
    "SIGMOID": ("torch.sigmoid(y)", "y.sigmoid()"),
    "HARDSWISH": ("F.hardswish(y)",),
    "MISH": ("F.mish(y)",),
    "SOFTPLUS": ("F.softplus(y, beta=2, threshold=10)",),
    "SILU CLAMP LEAKY_RELU+ SOFTPLUS": ("MODULES(y)",),
    "ADD": ("y + 0.5", "2 + y", "y.add_(0.5)"),
    "SUBTRACT": ("y - 0.5", "torch.sub(y, 3, alpha=2)"),
    "MULTIPLY ADD": ("1 - y", "torch.rsub(y, 3)"),
    "MULTIPLY": ("y * 3", "-y"),
    "DIVIDE": ("y / 3",),
    "ADD+": ("y + CHANNEL", "y.add(RESULT)", "torch.add(y, CHANNEL, alpha=2)", "y + RESULT.sin()"),
    "SUBTRACT+": ("y - CHANNEL",),
    "MULTIPLY ADD+": ("CHANNEL - y",),
    "MULTIPLY+": ("PLANE * y", "y.mul_(RESULT)", "torch.mul(y, other=RESULT)"),
    "DIVIDE+": ("torch.div(y, RESULT)",),
    "MISH ADD TANH CLAMP MULTIPLY": ("torch.tanh(F.mish(y) + 0.5).clamp(-0.1, 0.3) * 2",),
    "": (
        "torch.erf(y)", "y * y", "(y, y.relu())", "batch_norm(y, training=True)", "F.max_pool2d(y, 2)",
        "y + torch.ones(3, 1, 1, 1, 1)", "y + RESULT.double()", "y + NARROW", "y.double().relu()", "2 / y",
        "torch.div(y, 0.5, rounding_mode='floor')", "torch.clamp(y, CHANNEL)", "y * 2j", "RESULT.clone().sub_(y)",
        "torch.rsub(y, 1.5, alpha=2)", "changed_in_between(y)", "y**2",
    ),
}  # fmt: skip
CALLS = [
    (expected, expression, precision)
    for expected, expressions in FUSED.items()
    for expression in expressions
    for precision in (None, "exact")[: 2 if expected else 1]
]
INDUCTORS = ("torch.tanh(y)", "F.gelu(y)", "MODULES(y)", "torch.mul(y, other=RESULT)")


def rewriting(graph_module, _):
    """A compiler that runs a program as the pass has left it."""
    fusion.fuse(graph_module.graph)
    graph_module.graph.lint()
    graph_module.recompile()
    return graph_module.forward


def check(graphs, after, expected_operations, operands, arguments=(2, 1), backend=rewriting, **keywords):
    """The compiled call has these steps, and the result of PyTorch's functions."""
    with torch.no_grad():
        call = torch.compile(lambda *t: after(ours(*t, *arguments, **keywords)), backend=backend, fullgraph=True)
        found, expected = call(*operands), after(F.conv_transpose2d(*operands, *arguments))
    assert [operations(graph) for graph in graphs] == [expected_operations]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("expected", "expression", "precision"), CALLS)
def test_fused(graphs, expected, expression, precision):
    after, operands = eval(f"lambda y: {expression}"), named("k4s2p1").tensors()
    backend = "inductor" if expression in INDUCTORS and precision is None else rewriting
    check(graphs, after, expected, operands, backend=backend, precision=precision)


NORMS = {
    "batch_norm": (batch_norm, "MULTIPLY+ ADD+"),
    "nn.BatchNorm2d": (nn.Sequential(nn.BatchNorm2d(CHANNELS), nn.ReLU()).eval(), "MULTIPLY+ ADD+ CLAMP"),
    "until another": (lambda y: batch_norm(batch_norm(y).relu()), "MULTIPLY+ ADD+ CLAMP MULTIPLY+ ADD+"),
}


@pytest.mark.parametrize(("groups", "has_bias"), [(1, True), (1, False), (2, True)])
@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("precision", [None, "exact"])
def test_a_norm_is_two_steps(graphs, name, groups, has_bias, precision):
    operands = drawn(2, 4, 5, 6), drawn(4, CHANNELS // groups, 4, 4), drawn(CHANNELS) if has_bias else None
    check(graphs, *NORMS[name], operands, (2, 1, 0, groups), precision=precision)
    assert not any(node.target is F.batch_norm for graph in graphs for node in graph.nodes)


def test_a_residual_that_records_gradients_is_not_fused(graphs):
    operands, residual = named("k4s2p1").tensors(), RESULT.clone().requires_grad_()
    found = torch.compile(lambda r, *t: ours(*t, 2, 1).relu() + r, fullgraph=True)(residual, *operands)
    assert [operations(graph) for graph in graphs] == ["CLAMP"]
    assert torch.equal(*torch.autograd.grad(found.sum(), residual), torch.ones(SIZE))


def test_recording_that_ends_inside_the_program_is_no_obstacle(graphs):
    operands = [tensor.requires_grad_() for tensor in named("k4s2p1").tensors()]

    def call(function, *tensors):
        with torch.no_grad():
            result = function(*tensors, 2, 1).relu()
        return result * tensors[0].mean()

    found = torch.compile(functools.partial(call, ours), fullgraph=True)(*operands)
    assert [operations(graph) for graph in graphs] == ["CLAMP"]
    torch.testing.assert_close(found, call(F.conv_transpose2d, *operands), rtol=1e-4, atol=1e-4)


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
    assert [operations(graph) for graph in graphs] == ["ADD+ TANH"]


def test_under_autocast(graphs):
    operands = named("k4s2p1").tensors()
    norm = nn.BatchNorm2d(CHANNELS).eval()
    generator = torch.Generator().manual_seed(0)
    norm.running_mean.uniform_(generator=generator), norm.running_var.uniform_(0.5, 2, generator=generator)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = torch.compile(lambda *t: F.gelu(norm(ours(*t, 2, 1))), fullgraph=True)(*operands)
        expected = F.gelu(norm(F.conv_transpose2d(*operands, 2, 1)))
    assert found.dtype is expected.dtype is torch.bfloat16
    assert [operations(graph) for graph in graphs] == ["MULTIPLY+ ADD+ GELU"]
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
    assert [operations(graph) for graph in graphs] == ["ADD+"]
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


def test_programs_that_run_without_python_have_no_op_made_of_it():
    with torch._inductor.virtualized.V.set_aot_compilation(True):
        graph = torch.fx.symbolic_trace(lambda x, w: torch.ops.convt_ext.forward(x, w).relu()).graph
        before = str(graph)
        fusion.fuse(graph)
    assert str(graph) == before


@pytest.mark.parametrize(("name", "is_off"), [(mode.AUTO, False), (mode.BARE, True)])
def test_bare_programs_have_no_pass(monkeypatch, name, is_off):
    monkeypatch.setattr(mode, "MODE", name)
    with config.patch(pre_grad_custom_pass=None):
        fusion.install()
        assert (config.pre_grad_custom_pass is None) == is_off


ACTIVATIONS = ("F.relu(y)", "F.relu(y, inplace=True)", "y.relu()", "F.relu6(y)", "F.hardtanh(y)",
               "F.leaky_relu(y, 0.2)", "torch.tanh(y)", "torch.sigmoid(y)")  # fmt: skip
OTHERS = ("F.gelu(y)", "F.silu(y)", "y * 0.5", "F.relu(y * 0.5)", "y.clamp(0.0, 1.0)", "F.leaky_relu(y, -0.2)",
          "F.relu(y) + y")  # fmt: skip


def gradients_of(function, operands, second=False):
    """Returns the gradients of all operands; with `second`, the gradients of these gradients."""
    leaves = [one.detach().clone().requires_grad_() for one in operands]
    result = function(*leaves)
    found = torch.autograd.grad(result.square().sum(), leaves, create_graph=second)
    return [result, *(torch.autograd.grad(sum(one.sum() for one in found), leaves) if second else found)]


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("expression", [*ACTIVATIONS, *OTHERS])
def test_in_training_activations_alone_are_fused(graphs, expression, with_bias):
    after, operands = eval(f"lambda y: {expression}"), named("k4s2p1").tensors()[: 2 + with_bias]

    def program(call, x, weight, bias=None):
        return after(call(x, weight, bias, 2, 1))

    backend = "inductor" if with_bias and expression in INDUCTORS else rewriting
    compiled = torch.compile(functools.partial(program, ours), backend=backend, fullgraph=True)
    found = gradients_of(compiled, operands)
    assert [len(fused(graph)) for graph in graphs] == [int(expression in ACTIVATIONS)]
    expected = gradients_of(functools.partial(program, F.conv_transpose2d), operands)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert [one.stride() for one in found] == [one.stride() for one in expected]


@pytest.mark.parametrize(
    ("name", "numbers", "by_torch"),
    [
        ("TANH", [0.0, 0.0], torch.tanh), ("CLAMP", [0.0, math.inf], F.relu),
        ("LEAKY_RELU", [0.2, 0.0], lambda y: F.leaky_relu(y, 0.2)),
    ],
)  # fmt: skip
def test_the_op_has_gradients_of_second_order(name, numbers, by_torch):
    operands = [one.double() for one in named("k4s2p1").tensors()]
    steps = [getattr(epilogue, name)], numbers, []
    found = gradients_of(
        lambda *tensors: traced_epilogues.forward_then(*tensors, NUMBERS, None, *steps), operands, second=True
    )
    expected = gradients_of(lambda *tensors: by_torch(F.conv_transpose2d(*tensors, 2, 1)), operands, second=True)
    torch.testing.assert_close(found, expected)


def test_the_ops_refuse_gradients_that_do_not_follow_from_the_result():
    x, weight, _ = named("k4s2p1").tensors()
    steps = [epilogue.GELU], [0.0, 0.0], []
    with pytest.raises(RuntimeError, match="conv_transpose2d"):
        traced_epilogues.forward_then(x.requires_grad_(), weight, None, NUMBERS, None, *steps).sum().backward()

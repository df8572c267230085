"""Inductor's code for programs with convt_ext's ops: no copies, no lost fusion, stable formats. On the CPU."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from cases import each_case, named
from cpu_kernels import RAN
from functorch.compile import make_boxed_func
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.testing import CompileCounterWithBackend
from torch._functorch import config as functorch_config
from torch._functorch import partitioners
from torch._inductor import config, lowering
from torch._inductor.utils import run_and_get_code

import convt_ext
from convt_ext import ConvTranspose2d
from convt_ext import conv_transpose2d as ours
from convt_ext.compile import inductor, mode, traced_ops
from convt_ext.dispatch import ops

pytestmark = pytest.mark.usefixtures("cpu_is_gpu")


def code_of(run):
    """Returns the result of a partly compiled function, and the lines of calls in its forward and backward code."""
    torch._dynamo.reset()
    result, codes = run_and_get_code(run)
    lines = "".join(code[code.index("def call(") : code.index("runner =")] for code in codes).splitlines()
    return result, [line.strip() for line in lines]


def calls(lines, function):
    return [line for line in lines if f"= convt_ext_{function}(" in line]


def num_passes(lines):
    """Counts Inductor's kernels and calls of operators."""
    return sum(bool(re.match(r"cpp_fused|.*= (extern_kernels\.|torch\.ops\.|convt_ext_)", line)) for line in lines)


def network(layer):
    """Convolutions around a convt_ext layer, with enough channels for Inductor to choose channels_last."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(32, 96, 3, padding=1), nn.ReLU(), layer(96, 96, 4, 2, 1), nn.ReLU(), nn.Conv2d(96, 32, 3, padding=1)
    )  # fmt: skip


@pytest.mark.parametrize("channels_last", [False, True])
def test_three_dimensions_keep_their_format_in_a_network_that_is_turned(monkeypatch, channels_last):
    """Inductor changes only four-dimensional tensors to channels_last."""
    monkeypatch.setattr(mode, "MODE", mode.BARE)
    torch.manual_seed(0)
    first, second, last = nn.Conv2d(4, 8, 3), convt_ext.ConvTranspose3d(8, 6, 4, 2, 1), nn.Conv3d(6, 4, 3)
    format = torch.channels_last_3d if channels_last else torch.contiguous_format

    def model(x):
        volume = torch.stack([first(x), x.new_ones(2, 8, 6, 7)], 2).contiguous(memory_format=format)
        return last(second(volume).relu())

    x = torch.randn(2, 4, 8, 9)
    found, lines = code_of(lambda: torch.compile(model, fullgraph=True)(x))
    expected = model(x)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    (call,) = calls(lines, "run_forward")
    assert f", {channels_last})" in call
    gradients = [torch.autograd.grad(one.square().sum(), second.weight)[0] for one in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("after", "is_fused"),
    [
        (torch.erf, True),
        (lambda result: torch.cat([result, result], 1), True),
        (lambda result: result, False),
        (lambda result: (result, result.relu()), False),
        (lambda result: F.conv2d(result, torch.ones(1, 6, 1, 1)), False),
    ],
    ids=["erf", "cat", "nothing", "saved", "convolution"],
)
def test_a_bias_is_fused_with_what_comes_next_or_left_to_the_op(after, is_fused):
    x, weight, bias = named("k4s2p1").tensors()
    with torch.no_grad():
        program = torch.compile(lambda *tensors: after(ours(*tensors, 2, 1)), fullgraph=True)
        found, lines = code_of(lambda: program(x, weight, bias))
        torch.testing.assert_close(found, after(F.conv_transpose2d(x, weight, bias, 2, 1)))
    (call,) = calls(lines, "run_forward")
    assert (", None, [" in call) == is_fused


@pytest.mark.parametrize("trains", [False, True])
def test_a_network_that_is_turned_to_channels_last_has_no_more_passes_than_pytorchs(monkeypatch, trains):
    monkeypatch.setattr(mode, "MODE", mode.FUSED)
    passes, results = [], []
    for layer in (convt_ext.ConvTranspose2d, nn.ConvTranspose2d):
        model = network(layer)
        x = torch.randn(2, 32, 8, 8, generator=torch.Generator().manual_seed(0)).requires_grad_(trains)
        program = torch.compile(model, fullgraph=True)

        def step(x=x, model=model, program=program):
            with torch.set_grad_enabled(trains):
                result = program(x)
                return [result, *(torch.autograd.grad(result.sum(), [x, *model.parameters()]) if trains else ())]

        found, lines = code_of(step)
        passes.append(num_passes(lines))
        results.append(found)
        if layer is convt_ext.ConvTranspose2d:
            (call,) = calls(lines, "run_forward_then")
            assert call.endswith(", True, [4], [0.0, inf], [])")
            if trains:
                (call,) = calls(lines, "run_backward")
                assert call.endswith(", [True, True], [True, True])")
    assert passes[0] <= passes[1]
    assert [one.stride() for one in results[0]] == [one.stride() for one in results[1]]
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-3)


@each_case("channels_last", "kb75", "channel_slice")
def test_a_dynamic_batch_is_one_program(case):
    counter = CompileCounterWithBackend("inductor")
    call, by_torch = (
        lambda x, *others, f=f: f(x.sin(), *others, **case.arguments).relu() for f in (ours, F.conv_transpose2d)
    )
    program = torch.compile(call, backend=counter, fullgraph=True, dynamic=True)
    x, weight, bias = case.tensors()
    for factor in (1, 3, 5):
        several = x.repeat(factor, 1, 1, 1)
        if case.layout == "channels_last":
            several = several.to(memory_format=torch.channels_last)
        check(program, by_torch, several, weight, bias)
    assert counter.frame_count == 1


def test_operands_have_no_gaps():
    """Inductor pads tensors where that is fast for its own kernels; convt_ext's op would have to copy them."""
    x, weight = torch.randn(2, 4, 33, 65), torch.randn(4, 6, 3, 3)
    with config.patch(disable_padding_cpu=False), torch.no_grad():
        program = torch.compile(lambda x, weight: ours(x.sin(), weight).neg(), fullgraph=True)
        found, lines = code_of(lambda: program(x, weight))
    torch.testing.assert_close(found, -F.conv_transpose2d(x.sin(), weight), rtol=1e-4, atol=1e-4)
    assert "empty_strided_cpu((2, 4, 33, 65), (8580, 2145, 65, 1), torch.float32)" in "".join(lines)


def check(call, expected_call, *operands, strides=True):
    """Compares results, strides and gradients of all operands."""
    leaves = [None if one is None else one.detach().requires_grad_(one.is_floating_point()) for one in operands]
    wanted = [one for one in leaves if one is not None and one.requires_grad]
    found, expected = call(*leaves), expected_call(*leaves)
    assert found.stride() == expected.stride() or not strides
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)
    grads = [torch.autograd.grad(result.square().sum(), wanted) for result in (found, expected)]
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-2)


def compiled_gradients(layout):
    """Checks result and gradients of a compiled program against PyTorch; returns the convt_ext ops that ran."""
    x, *others = named("k4s2p1").tensors()
    torch._dynamo.reset()
    RAN.clear()
    program = torch.compile(lambda *t: ours(t[0].sin(), *t[1:], 2, 1).relu(), fullgraph=True)
    check(
        program,
        lambda *t: F.conv_transpose2d(t[0].sin(), *t[1:], 2, 1).relu(),
        x.contiguous(memory_format=layout),
        *others,
    )
    return set(RAN)


each_layout = pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)


@pytest.fixture
def unknown_release(monkeypatch):
    """Restores the knowledge about this release afterwards, and uses no cached programs."""
    monkeypatch.setattr(mode, "_failure", None)
    with config.patch(force_disable_caches=True):
        yield


def test_a_release_of_torch_that_is_not_supported_has_pytorchs_operator(monkeypatch, unknown_release):
    monkeypatch.setattr(inductor, "teach", lambda: getattr(lowering, "no_such_name"))  # noqa: B009
    with pytest.warns(RuntimeWarning, match="does not support this release of torch's compiler.*no_such_name"):
        assert compiled_gradients(torch.channels_last) == set()
    assert "no_such_name" in mode.words()
    assert "no_such_name" in str(convt_ext.explain(*named("k4s2p1").tensors(), 2, 1, precision="exact"))


@pytest.mark.parametrize(("name", "layout"), [("_named", torch.contiguous_format), ("_constrain", torch.channels_last)])
def test_the_first_graph_of_a_release_that_has_changed_is_right_too(monkeypatch, unknown_release, layout, name):
    monkeypatch.setattr(inductor, name, lambda *_: getattr(lowering, "no_such_name"))  # noqa: B009
    inductor.teach.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match="no_such_name"):
            assert "grad_weight" in compiled_gradients(layout)
        assert compiled_gradients(layout) == set()
    finally:
        monkeypatch.undo()
        inductor.teach.cache_clear()


@each_layout
def test_one_channel_with_an_ambiguous_format(layout):
    """Its strides match two formats; the program has the strides of the fake result."""
    x, weight = (torch.randn(size).to(memory_format=layout) for size in ((2, 1, 5, 6), (1, 6, 3, 3)))
    call = lambda x, weight: ours(x.sin(), weight).relu()  # noqa: E731
    check(torch.compile(call, fullgraph=True), call, x, weight, strides=False)


@each_layout
def test_a_data_dependent_batch(layout):
    x, weight, _ = named("k4s2p1").tensors()
    x, mask = torch.cat([x, x + 1]).to(memory_format=layout), torch.tensor([True, False, True, True])
    call = lambda x, mask, weight: ours(x[mask].sin(), weight, None, 2).relu()  # noqa: E731
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        check(torch.compile(call, fullgraph=True), call, x, mask, weight)


def num_recomputed(layer, budget, **named) -> int:
    """Counts the convolutions that the backward of three layers recomputes under a memory budget."""
    graphs = []

    def keep(graph, _):
        graphs.append(graph)
        return make_boxed_func(graph)

    layers = [layer(8, 8, 4, 2, 1, **named) for _ in range(3)]
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2], nn.Tanh())
    backend = aot_autograd(
        fw_compiler=lambda graph, _: make_boxed_func(graph),
        bw_compiler=keep,
        partition_fn=partitioners.min_cut_rematerialization_partition,
    )
    torch._dynamo.reset()
    with functorch_config.patch(activation_memory_budget=budget, enable_autograd_cache=False):
        program = torch.compile(model, backend=backend, fullgraph=True)
        program(torch.randn(2, 8, 16, 16, requires_grad=True)).sum().backward()
    (graph,) = graphs
    forwards = (torch.ops.aten.convolution.default, traced_ops.forward, ops.forward)
    return sum(node.target in forwards for node in graph.graph.nodes)


@pytest.mark.parametrize("precision", [None, "exact"])
@pytest.mark.parametrize("budget", [0.2, 0.5, 0.8])
def test_no_more_is_recomputed_than_of_pytorchs_operator(budget, precision):
    theirs = num_recomputed(nn.ConvTranspose2d, budget)
    assert num_recomputed(ConvTranspose2d, budget, precision=precision) <= theirs < 3


def test_a_partitioner_without_the_list_is_left_alone(monkeypatch):
    monkeypatch.delattr(partitioners, "get_default_op_list")
    inductor._teach_partitioner()
    monkeypatch.setattr(partitioners, "get_default_op_list", lambda: (), raising=False)
    inductor._teach_partitioner()
    assert partitioners.get_default_op_list() == ()

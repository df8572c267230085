"""torch.compile and torch.export on the GPU: one graph, right gradients, real strides.

AOTInductor only where it works with PyTorch's own module, and there is a C++ compiler: elsewhere its test skips, and
nothing is shown of it.
"""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
import textwrap

import pytest
import torch
import torch.nn.functional as F
from cases import each_case, named
from gradients import leaves
from served import allow_tf32, on_kernels, tf32
from torch._dynamo.testing import CompileCounterWithBackend

from convt_ext import ConvTranspose2d, ConvTranspose3d, conv_transpose3d, explain
from convt_ext import conv_transpose2d as ours
from convt_ext.compile import mode as compile_mode
from convt_ext.compile import traced_ops
from convt_ext.dispatch import ops
from convt_ext.dispatch.geometry import memory_format

# Functions and modules by the number of dimensions.
OURS = {2: ours, 3: conv_transpose3d}
MODULES = {2: ConvTranspose2d, 3: ConvTranspose3d}
each_dims = pytest.mark.parametrize("dims", [2, 3])


def random_input(batch, dims):
    return torch.randn(batch, 8, *(5, 6, 7)[:dims], device="cuda")


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    with allow_tf32(False):
        yield
    torch._dynamo.reset()


def step(operands, case, precision):
    x, weight, bias = operands
    return OURS[len(case.k)](x * 2, weight, bias, **case.arguments, precision=precision).relu() + 1


def with_gradients(function, case, dtype=torch.float32):
    operands = leaves(case, dtype, "cuda")
    result = function(operands)
    wanted = [tensor for tensor in operands if tensor is not None]
    return [result, *torch.autograd.grad(result.square().sum(), wanted)]


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert one.stride() == other.stride()
        assert (one - other).norm() <= 1e-5 * other.norm() + 1e-6


@each_case("k4s2p1", "kb75", "channels_last_weight", "channel_slice", "no_bias", "volume", "volume_last", "volume_k2s2")
@pytest.mark.parametrize("precision", [None, "exact"])
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_forward_and_backward_in_one_graph(case, precision, dynamic):
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(
        lambda operands: step(operands, case, precision), backend=counter, fullgraph=True, dynamic=dynamic
    )
    found = with_gradients(compiled, case)
    assert counter.frame_count == 1
    (graph,) = counter.graphs
    op = "convt_ext.conv_transpose2d.default" if precision is None else "convt_ext.forward.default"
    assert op in {str(node.target) for node in graph.graph.nodes}
    assert_same(found, with_gradients(lambda operands: step(operands, case, "exact"), case))


@each_case("k4s2p1", "channels_last", "input_1x1", "volume", "volume_last", "volume_k2s2")
@pytest.mark.parametrize("precision", [None, "exact"])
@pytest.mark.parametrize("alternative", [compile_mode.AUTO, compile_mode.BARE])
def test_inductor(monkeypatch, case, precision, alternative):
    monkeypatch.setattr(compile_mode, "MODE", alternative)
    compiled = torch.compile(lambda operands: step(operands, case, precision), fullgraph=True)
    assert_same(with_gradients(compiled, case), with_gradients(lambda operands: step(operands, case, "exact"), case))


@pytest.mark.parametrize("on", [False, True], ids=["ieee", "tf32"])
@pytest.mark.parametrize("channels_last", [False, True])
@each_dims
def test_inductor_dynamic_batch(channels_last, on, dims):
    counter = CompileCounterWithBackend("inductor")
    layout = memory_format(channels_last, dims)
    model = MODULES[dims](8, 6, 4, stride=2, padding=1, device="cuda")
    compiled = torch.compile(model, backend=counter, fullgraph=True, dynamic=True)
    with allow_tf32(on):
        for size in (2, 3, 7):
            x = random_input(size, dims).to(memory_format=layout)
            result = compiled(x)
            assert result.is_contiguous(memory_format=layout)
            torch.testing.assert_close(result, model(x), **({"rtol": 1e-2, "atol": 1e-2} if on else {}))
            result.sum().backward()
    assert counter.frame_count == 1


def test_switches_are_read_at_run_time(monkeypatch):
    """One program with our op for both settings, which gives the bits that an eager call gives under each."""
    monkeypatch.setattr(compile_mode, "MODE", compile_mode.BARE)
    torch.manual_seed(0)
    operands = [torch.randn(size, device="cuda") for size in ((2, 32, 64, 64), (32, 64, 4, 4), (64,))]
    counter = CompileCounterWithBackend("inductor")
    call = torch.compile(lambda *tensors: ours(*tensors, 2, 1), backend=counter, fullgraph=True)
    with tf32(False):
        first = call(*operands)
        assert torch.equal(first, ours(*operands, 2, 1, precision="exact"))
    with tf32(True):
        second = call(*operands)
        if torch.cuda.get_device_capability() == (9, 0):
            assert explain(*operands, 2, 1).plan["plan"]["served_precision"] == "tf32"
            assert torch.equal(second, ours(*operands, 2, 1, **on_kernels("tf32")))
            assert not torch.equal(second, first)
        else:  # PyTorch's operator serves, which need not have the same bits twice
            torch.testing.assert_close(second, first, rtol=1e-2, atol=1e-2)
    with tf32(False):
        assert torch.equal(call(*operands), first)
    assert counter.frame_count == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast(dtype):
    def call(operands):
        with torch.autocast("cuda", dtype=dtype):
            return ours(*operands, 2, 1, precision="exact")

    operands = leaves(named("k4s2p1"), torch.float32, "cuda")
    result = torch.compile(call, fullgraph=True)(operands)
    assert result.dtype is dtype
    assert torch.equal(result, call(operands))
    result.sum().backward()
    assert all(tensor.grad.dtype is torch.float32 for tensor in operands)


@pytest.mark.parametrize("precision", [None, "exact"])
@each_dims
def test_reduce_overhead(precision, dims):
    """CUDA graphs around our ops."""
    model = MODULES[dims](8, 6, 4, stride=2, padding=1, device="cuda", precision=precision)
    compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True)
    for _ in range(4):
        x = random_input(2, dims)
        torch.compiler.cudagraph_mark_step_begin()
        result = compiled(x)
        torch.testing.assert_close(result, model(x))
        result.sum().backward()
        mine = model.weight.grad.clone()
        model.zero_grad()  # the bias's gradient too: the next step writes over it
        model(x).sum().backward()
        torch.testing.assert_close(mine, model.weight.grad)
        model.zero_grad()


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("precision", [None, "exact"])
def test_a_cuda_graph_of_an_eager_call_of_three_dimensions(precision, channels_last):
    case = named("volume_last" if channels_last else "volume")
    x, weight, bias = case.tensors(device="cuda")
    call = lambda: conv_transpose3d(x, weight, bias, **case.arguments, precision=precision)  # noqa: E731
    with torch.cuda.stream(torch.cuda.Stream()):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    for _ in range(3):
        x.normal_()
        graph.replay()
        expected = call()
        assert result.stride() == expected.stride()
        if precision == "exact":
            assert torch.equal(result, expected)
        torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("precision", [None, "exact"])
@each_dims
def test_export(precision, dims):
    model = MODULES[dims](8, 6, 4, stride=2, padding=1, device="cuda", precision=precision)
    x = random_input(2, dims)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("batch", min=2, max=64)},))
    # A program cannot choose, and PyTorch's operator may be the faster one in three dimensions.
    is_ours = dims == 2 or precision == "exact"
    assert ("convt_ext.forward.default" in str(program.graph)) == is_ours
    for size in (2, 5):
        x = random_input(size, dims)
        exactly = {"rtol": 0, "atol": 0} if is_ours else {}
        torch.testing.assert_close(program.module()(x), model(x), **exactly)


@pytest.mark.parametrize("precision", [None, "exact", "tf32"])
def test_export_in_channels_last(precision):
    model = ConvTranspose2d(8, 6, 4, stride=2, padding=1, device="cuda", **on_kernels(precision))
    model.to(memory_format=torch.channels_last)
    x = torch.randn(2, 8, 5, 6, device="cuda").contiguous(memory_format=torch.channels_last)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("batch", min=2, max=64)},))
    assert "convt_ext.forward.default" in str(program.graph)
    for size in (2, 5):
        x = torch.randn(size, 8, 5, 6, device="cuda").contiguous(memory_format=torch.channels_last)
        result, expected = program.module()(x), model(x)
        assert torch.equal(result, expected)
        assert result.stride() == expected.stride() == F.conv_transpose2d(x, model.weight, model.bias, 2, 1).stride()
        assert result.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize(
    ("backend", "dtype"),
    [("aot_eager", torch.float16), ("aot_eager", torch.bfloat16), ("inductor", torch.bfloat16)], ids=str,
)  # fmt: skip
def test_default_under_autocast(backend, dtype, layout):
    """PyTorch's values, whoever computes, and the dtypes and strides that its operator has when compiled."""
    case = dataclasses.replace(named("k4s2p1"), layout=layout)

    def run(function):
        operands = leaves(case, torch.float32, "cuda")
        with torch.autocast("cuda", dtype=dtype):
            result = function(*operands, 2, 1)
        return result, *torch.autograd.grad(result.float().square().sum(), operands)

    found = run(torch.compile(lambda *arguments: ours(*arguments), backend=backend, fullgraph=True))
    assert found[0].dtype is dtype
    compiled = torch.compile(lambda *arguments: F.conv_transpose2d(*arguments), backend=backend, fullgraph=True)
    for mine, theirs, eager in zip(found, run(compiled), run(F.conv_transpose2d), strict=True):
        assert mine.dtype is theirs.dtype is eager.dtype
        assert mine.stride() == theirs.stride()
        assert (mine.double() - eager.double()).norm() <= 4 * torch.finfo(dtype).eps * eager.double().norm()


@pytest.mark.slow(seconds=90)
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_aot_inductor(tmp_path):
    """In processes of their own: where a release of PyTorch cannot load what it compiled, it ends the process.

    Skips where that happens to `torch.nn.ConvTranspose2d`: then it is not known whether ours would work.
    """
    running, failures = {}, {}
    for kind in ("torch.nn", "convt_ext"):
        script = textwrap.dedent(f"""
            import convt_ext, torch
            named = {{"precision": "exact"}} if "{kind}" == "convt_ext" else {{}}
            model = {kind}.ConvTranspose2d(8, 6, 4, stride=2, padding=1, device="cuda", **named).eval()
            x = torch.randn(2, 8, 5, 6, device="cuda")
            with torch.no_grad():
                program = torch.export.export(model, (x,))
                path = torch._inductor.aoti_compile_and_package(program, package_path="{tmp_path / kind}.pt2")
                loaded = torch._inductor.aoti_load_package(path)
                torch.testing.assert_close(loaded(x), model(x))
        """)
        command = [sys.executable, "-c", script]
        running[kind] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    for kind, process in running.items():
        _, errors = process.communicate()
        if process.returncode != 0:
            failures[kind] = errors
    if "torch.nn" in failures:
        pytest.skip("AOTInductor does not work here with PyTorch's own module either")
    assert failures == {}


OPERANDS = {
    "forward": lambda x, weight, bias, g: (x, weight, bias),
    "grad_input": lambda x, weight, bias, g: (g, weight),
    "grad_weight": lambda x, weight, bias, g: (g, x),
}


@pytest.mark.parametrize("name", OPERANDS)
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("grads", [False, True])
@each_case("k4s2p1", "kb75", "no_bias", "volume")
def test_opcheck(name, case, channels_last, grads):
    x, weight, bias = case.tensors(device="cuda")
    operands = OPERANDS[name](x, weight, bias, torch.randn(case.output_size, device="cuda"))
    operands = [tensor if tensor is None else tensor.requires_grad_(grads) for tensor in operands]
    lists = (case.s, case.p, case.op, case.g, case.d)
    torch.library.opcheck(getattr(ops, name), (*operands, *lists, 0, channels_last))


@pytest.mark.parametrize("grads", [False, True])
@each_case("k4s2p1", "kb75", "no_bias", "volume", "volume_last")
def test_opcheck_of_what_decides_when_it_runs(case, grads):
    x, weight, bias = (one if one is None else one.requires_grad_(grads) for one in case.tensors(device="cuda"))
    grad_output = torch.randn(case.output_size, device="cuda", requires_grad=grads)
    numbers = [*case.s, *case.p, *case.op, case.g, *case.d, traced_ops.version()]
    torch.library.opcheck(traced_ops.forward, (x, weight, bias, numbers, None))
    for wanted in ([True, True], [True, False], [False, True]):
        torch.library.opcheck(traced_ops.backward, (grad_output, x, weight, numbers, None, wanted))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
def test_opcheck_of_the_bias(dtype):
    torch.library.opcheck(ops.grad_bias, (torch.randn(2, 3, 4, 5, device="cuda", dtype=dtype, requires_grad=True),))

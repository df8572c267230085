"""torch.compile and torch.export on the CPU, with the ops computed by PyTorch: graphs, strides, switches."""

from __future__ import annotations

import itertools
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from cases import each_case, named
from cpu.results import with_gradients
from cpu_kernels import CODES, MASKS, RAN
from pretend_gpu import A100
from served import allow_tf32, tf32
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

import convt_ext
from convt_ext import conv_transpose2d as ours
from convt_ext.compile import traced_ops
from convt_ext.dispatch import geometry, ops, planner, routing
from convt_ext.dispatch import precision as precisions

pytestmark = pytest.mark.usefixtures("cpu_is_gpu")

PRECISIONS = [None, "exact"]

# The functions by the number of dimensions.
OURS = {2: ours, 3: convt_ext.conv_transpose3d}
THEIRS = {2: F.conv_transpose2d, 3: F.conv_transpose3d}


def step(call, x, weight, bias, arguments, precision):
    """Returns result and gradients; a compiler may rearrange the operations before and after the layer."""
    keywords = {"precision": precision} if call in OURS.values() else {}
    result = call(x * 2, weight, bias, **arguments, **keywords)
    return result.relu() + 1


assert_all_close = partial(torch.testing.assert_close, rtol=1e-4, atol=1e-3)
compiled = partial(torch.compile, backend="aot_eager", fullgraph=True)


STATIC = ("k4s2p1", "k3s2p1op1", "kb75", "gcd_2", "input_1x1", "no_bias", "channels_last_weight", "channel_slice",
          "volume", "volume_last", "volume_k2s2")  # fmt: skip
DYNAMIC = ("kb75", "channels_last_weight", "volume_last")


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    ("name", "dynamic"), [*((name, False) for name in STATIC), *((name, True) for name in DYNAMIC)]
)
def test_forward_and_backward_in_one_graph(name, precision, dynamic):
    case = named(name)
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    operands = case.tensors()
    call = lambda *tensors: step(OURS[len(case.k)], *tensors, case.arguments, precision)  # noqa: E731
    found = with_gradients(compiled(call, backend=counter, dynamic=dynamic), operands)
    assert {"forward", "grad_input", "grad_weight"} <= set(RAN)
    assert counter.frame_count == 1
    op = "conv_transpose2d" if precision is None else "forward"
    assert f"convt_ext.{op}.default" in {str(node.target) for node in counter.graphs[0].graph.nodes}
    eager = with_gradients(call, operands)
    assert_all_close(found, eager)
    assert [one.stride() for one in found] == [one.stride() for one in eager]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dims", [2, 3])
def test_a_new_batch_size_needs_no_new_graph(precision, channels_last, dims):
    counter = CompileCounterWithBackend("aot_eager")
    layout = geometry.memory_format(channels_last, dims)
    module = convt_ext.ConvTranspose2d if dims == 2 else convt_ext.ConvTranspose3d
    model = module(4, 6, 4, stride=2, padding=1, precision=precision)
    program = compiled(model, backend=counter, dynamic=True)
    lengths = (5, 6, 7)[:dims]
    for batch in (2, 3, 5, 16):
        x = torch.randn(batch, 4, *lengths).to(memory_format=layout)
        torch.testing.assert_close(program(x), model(x))
        program(x).sum().backward()
    for height in (7, 9):
        program(torch.randn(2, 4, height, *lengths[1:]).to(memory_format=layout)).sum().backward()
    assert counter.frame_count == 1


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        *[("channels_last_weight", None), ("kb75", None), ("output_padding_over_stride", None), ("volume_last", None)],
        *[("k4s2p1", "exact"), ("volume_last", "exact")],
    ],
)
def test_inductor(name, precision, monkeypatch):
    case = named(name)
    dims = len(case.k)
    if dims == 3:  # the original runs if its time is unknown
        monkeypatch.setattr(planner, "best_plan", lambda *_, **__: planner.BestPlan(1.0, 2.0, 0))
    program = torch.compile(lambda *tensors: step(OURS[dims], *tensors, case.arguments, precision), fullgraph=True)
    theirs = lambda *tensors: step(THEIRS[dims], *tensors, case.arguments, None)  # noqa: E731
    found, expected = (with_gradients(call, case.tensors()) for call in (program, theirs))
    assert_all_close(found, expected)
    if dims == 3:
        assert [one.stride() for one in found] == [one.stride() for one in expected]
    assert {"forward", "grad_input", "grad_weight"} <= set(RAN)


def test_switches_are_read_at_run_time(monkeypatch):
    monkeypatch.setattr(precisions, "has_estimates", lambda served, _: served in precisions.EXACT_CLASSES)
    x, weight, bias = named("k4s2p1").tensors()
    call = compiled(lambda *tensors: ours(*tensors, 2, 1))
    for on, num_ours in ((False, 1), (True, 1), (False, 2)):
        with tf32(on):
            torch.testing.assert_close(call(x, weight, bias), F.conv_transpose2d(x, weight, bias, 2, 1))
        assert ["forward"] * num_ours == RAN


def test_exports_contain_pytorchs_operator_if_it_uses_tensor_cores():
    class Up(nn.Module):
        def forward(self, *tensors):
            return ours(*tensors, 2, 1)

    with allow_tf32(True):
        graph = torch.export.export(Up(), named("k4s2p1").tensors()).graph
    assert "convt_ext" not in str(graph)


def test_a_compiled_program_keeps_its_precision_under_another_context(monkeypatch):
    monkeypatch.setattr(precisions, "has_estimates", lambda served, _: served in precisions.EXACT_CLASSES)
    x, weight, bias = (tensor.requires_grad_() for tensor in named("k4s2p1").tensors())
    result = compiled(lambda *tensors: ours(*tensors, 2, 1))(x, weight, bias)
    with convt_ext.use_precision("aten"), tf32(True):
        result.sum().backward()
    assert RAN == ["forward"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype):
    x, weight, bias = (tensor.requires_grad_() for tensor in named("k4s2p1").tensors())

    def call(x, weight, bias):
        with torch.autocast("cpu", dtype=dtype):
            return ours(x, weight, bias, 2, 1, precision="exact")

    result = compiled(call)(x, weight, bias)
    assert result.dtype is dtype
    result.sum().backward()
    assert x.grad.dtype is weight.grad.dtype is bias.grad.dtype is torch.float32
    assert set(RAN) == {"forward", "grad_input", "grad_weight", "grad_bias"}


def test_transforms_inside_of_a_compiled_function():
    x, weight, bias = named("k4s2p1").tensors(torch.float64)

    def gradient(call):
        return torch.func.grad(lambda w: call(x, w, bias, 2, 1).square().sum())(weight)

    torch.testing.assert_close(compiled(lambda: gradient(ours))(), gradient(F.conv_transpose2d))
    assert RAN == []


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("dims", [2, 3])
def test_export_bakes_the_class_in_and_the_program_trains(strict, precision, dims):
    module = convt_ext.ConvTranspose2d if dims == 2 else convt_ext.ConvTranspose3d
    layer = module(4, 6, 4, stride=2, padding=1, precision=precision)
    batch = torch.export.Dim("batch", min=2, max=64)
    lengths = (5, 6, 7)[:dims]
    program = torch.export.export(layer, (torch.randn(2, 4, *lengths),), dynamic_shapes=({0: batch},), strict=strict)
    # A program cannot choose, and PyTorch's operator may be the faster one in three dimensions.
    is_ours = dims == 2 or precision is not None
    assert ("convt_ext.forward.default" in str(program.graph)) == is_ours
    module = program.module()
    RAN.clear()
    with tf32(True):
        for size in (2, 7):
            x = torch.randn(size, 4, *lengths)
            found, expected = module(x), THEIRS[dims](x, layer.weight, layer.bias, 2, 1)
            torch.testing.assert_close(found, expected)
            (grad,) = torch.autograd.grad(found.square().sum(), module.weight)
            assert_all_close(grad, *torch.autograd.grad(expected.square().sum(), layer.weight))
    expected = ["forward", "grad_weight"] * 2 if is_ours else []
    assert expected == RAN


@pytest.mark.parametrize("grads", [False, True])
@each_case("kb75", "no_bias", "volume_last")
def test_opcheck(case, grads):
    x, weight, bias = (tensor if tensor is None else tensor.requires_grad_(grads) for tensor in case.tensors())
    grad_output = torch.randn(case.output_size, requires_grad=grads)
    operands = {"forward": (x, weight, bias), "grad_input": (grad_output, weight), "grad_weight": (grad_output, x)}
    for name, last in itertools.product(operands, (False, True)):
        torch.library.opcheck(getattr(ops, name), (*operands[name], case.s, case.p, case.op, case.g, case.d, 0, last))
    torch.library.opcheck(ops.grad_bias, (grad_output,))
    # The ops that decide when they run.
    numbers = [*case.s, *case.p, *case.op, case.g, *case.d, traced_ops.version()]
    assert traced_ops.arguments_of(numbers) == (case.s, case.p, case.op, case.g, case.d)
    for last in (None, True) if not grads else (None,):  # in a format that was named nothing is recorded
        torch.library.opcheck(traced_ops.forward, (x, weight, bias, numbers, last))
    for wanted in ([True, True], [True, False], [False, True]):
        torch.library.opcheck(traced_ops.backward, (grad_output, x, weight, numbers, None, wanted))


def test_illegal_arguments_and_unsupported_calls_are_rejected_while_tracing(monkeypatch):
    x, weight, _ = named("k4s2p1").tensors()
    with pytest.raises(Exception, match="to have 4 channels"):
        compiled(lambda: ours(x[:, :3], weight, stride=2))()
    monkeypatch.setattr(convt_ext.environment._extension, "unsupported_reason", lambda index: "install another wheel")
    with pytest.raises(Exception, match="install another wheel"):
        compiled(lambda *tensors: ours(*tensors, 2, 1, precision="exact"))(*named("k4s2p1").tensors())
    assert routing.DEVICE_TYPE == "cpu"


# ---- calls without a precision: which implementation runs, and with how many calls

NUMBERS = [2, 2, 1, 1, 0, 0, 1, 1, 1]  # stride 2, padding 1


def test_tensor_core_kernels_run_if_pytorch_uses_tensor_cores():
    operands = named("k4s2p1").tensors()
    call = compiled(lambda *tensors: ours(*tensors, 2, 1))
    with allow_tf32(True):
        with_gradients(call, operands)
        assert RAN == ["forward", "grad_input", "grad_weight"]
        assert [precisions.CODES["tf32"]] * 3 == CODES
        call(*(tensor.bfloat16() for tensor in operands))
    assert CODES[3:] == [precisions.CODES["bf16"]]


def test_a_gpu_without_kernels_on_tensor_cores_gets_pytorchs_operator(monkeypatch):
    monkeypatch.setattr(planner, "device_numbers", lambda index: A100)
    operands = named("k4s2p1").tensors()
    counter = CompileCounterWithBackend("aot_eager")
    call = compiled(lambda *tensors: ours(*tensors, 2, 1), backend=counter)
    with allow_tf32(True):
        with_gradients(call, operands)
    assert RAN == []
    assert "convt_ext" not in str(counter.graphs[0].graph)
    with allow_tf32(False):
        torch._dynamo.reset()
        with_gradients(call, operands)
    assert RAN == ["forward", "grad_input", "grad_weight"]


def test_memory_format_does_not_change_after_tracing():
    """The code around a result is compiled for its strides."""
    x, weight, _ = named("channels_last").tensors()
    grad_output = torch.randn(F.conv_transpose2d(x, weight, None, 2, 1).shape)
    for last in (False, True):
        results = [traced_ops.forward(x, weight, None, NUMBERS, last)]
        results += traced_ops.backward(grad_output, x, weight, NUMBERS, [last, not last], [True, True])
        for result, its_last in zip(results, (last, last, not last), strict=True):
            assert result.is_contiguous(memory_format=geometry.memory_format(its_last))


def count_calls(monkeypatch, owner, name):
    """Records the arguments of each call of a function."""
    calls, real = [], getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *arguments: calls.append(arguments) or real(*arguments))
    return calls


@pytest.mark.parametrize("needed", [(True, True), (True, False), (False, True)], ids=str)
@pytest.mark.parametrize("by_torch", [False, True])
def test_a_backward_is_one_call_of_what_is_needed(monkeypatch, needed, by_torch):
    of_ours = count_calls(monkeypatch, ops, "run_gradients")
    best = planner.BestPlan(2.0, 1.0, 0) if by_torch else planner.BestPlan(1.0, 2.0, 0)
    monkeypatch.setattr(planner, "best_plan", lambda *_: best)
    x, weight, bias = named("k4s2p1").tensors()
    x, weight = x.requires_grad_(needed[0]), weight.requires_grad_(needed[1])
    result = compiled(lambda *t: ours(*t, 2, 1))(x, weight, bias)
    wanted = [one for one in (x, weight) if one.requires_grad]
    found = torch.autograd.grad(result.square().sum(), wanted)
    assert [call[-1] & 3 for call in of_ours] == [needed[0] + 2 * needed[1]]
    assert ([[*needed, False]] if by_torch else []) == MASKS
    assert (RAN == []) == by_torch
    theirs = F.conv_transpose2d(x, weight, bias, 2, 1)
    torch.testing.assert_close(found, torch.autograd.grad(theirs.square().sum(), wanted), rtol=1e-4, atol=1e-3)


def test_a_program_that_runs_enters_the_dispatcher_once_for_each_op(monkeypatch):
    """In a small network a call costs more on the host than on the GPU."""
    operands = named("k4s2p1").tensors()
    call = compiled(lambda *t: ours(*t, 2, 1))

    def run():
        with_gradients(call, operands)
        with torch.no_grad():
            call(*operands)

    run()
    again = [count_calls(monkeypatch, traced_ops.Traced, name) for name in ("forward", "gradients")]
    run()
    assert again == [[], []]


@pytest.mark.parametrize("which", [(0,), (1,), (0, 1), (0, 1, 2)], ids=str)
def test_derivatives_of_every_order_of_what_decides_when_it_runs(which):
    operands = [tensor.requires_grad_() for tensor in named("k4s2p1").tensors(torch.float64)]
    wanted = [operands[one] for one in which]

    def derivatives(call):
        first = torch.autograd.grad(call(*operands).pow(3).sum(), wanted, create_graph=True)
        second = torch.autograd.grad(sum(one.square().sum() for one in first), operands, create_graph=True)
        return *first, *second, *torch.autograd.grad(sum(one.square().sum() for one in second), operands)

    found = derivatives(lambda *tensors: traced_ops.forward(*tensors, NUMBERS, None))
    torch.testing.assert_close(found, derivatives(lambda *tensors: F.conv_transpose2d(*tensors, 2, 1)))

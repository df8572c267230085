"""Edge cases of torch.compile and torch.export: contexts inside a program, data-dependent sizes, unusual arguments."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cases import named
from cpu.results import with_gradients
from cpu_kernels import CODES, RAN
from served import cudnn, tf32
from torch import nn
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

import convt_ext
from convt_ext import conv_transpose2d as ours
from convt_ext import use_precision
from convt_ext.compile import traced_ops, tracing
from convt_ext.dispatch import ops, routing

pytestmark = pytest.mark.usefixtures("cpu_is_gpu")


compiled = partial(torch.compile, backend="aot_eager", fullgraph=True)


def in_context(x, weight):
    with use_precision("exact"):
        return ours(x, weight, stride=2)


@use_precision("exact")
def decorated(x, weight):
    return ours(x, weight, stride=2)


@pytest.mark.parametrize("function", [in_context, decorated])
def test_a_context_inside_of_a_compiled_function(function):
    """From the second call on, the program's guards check the context, also in another thread."""
    x, weight, _ = named("k4s2p1").tensors()
    expected = F.conv_transpose2d(x, weight, stride=2)
    first, second = compiled(function), compiled(lambda *tensors: function(*tensors) + 1)

    def run():
        for _ in range(2):
            torch.testing.assert_close(first(x, weight), expected)
            torch.testing.assert_close(second(x, weight), expected + 1)

    with tf32(True):
        run()
        for _ in range(2):
            with ThreadPoolExecutor(1) as thread:
                thread.submit(run).result()
        with use_precision("aten"):
            run()
    assert RAN == ["forward"] * 16
    assert set(CODES) == {0}
    assert convt_ext.dispatch.scopes.now().requested is None


class Masked(nn.Module):
    def forward(self, x, mask, weight, precision=None):
        return ours(x[mask], weight, None, 2, precision=precision)


class Cropped(nn.Module):
    def forward(self, x, height, weight, precision=None):
        height = height.item()
        torch._check(height >= 2)
        torch._check(height <= 4)
        return ours(x[:, :, :height], weight, None, 2, precision=precision)


DATA_DEPENDENT = [(Masked(), torch.tensor([True, False, True])), (Cropped(), torch.tensor(3))]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("precision", [None, "exact"])
@pytest.mark.parametrize(("module", "chosen"), DATA_DEPENDENT, ids=["batch", "height"])
def test_data_dependent_sizes(module, chosen, precision, layout):
    operands = torch.randn(3, 4, 5, 6).to(memory_format=layout), torch.randn(4, 6, 3, 3)
    expected = with_gradients(lambda x, weight: module(x, chosen, weight, precision), operands)
    RAN.clear()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        found = with_gradients(lambda x, weight: compiled(module)(x, chosen, weight, precision), operands)
    assert RAN == ["forward", "grad_input", "grad_weight"]
    assert found[0].stride() == expected[0].stride()
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(("module", "chosen"), DATA_DEPENDENT, ids=["batch", "height"])
def test_export_of_data_dependent_sizes(module, chosen, strict):
    x, weight = torch.randn(3, 4, 5, 6), torch.randn(4, 6, 3, 3)
    program = torch.export.export(module, (x, chosen, weight, "exact"), strict=strict)
    assert "convt_ext.forward.default" in str(program.graph)
    found = program.module()(x, chosen, weight, "exact")
    torch.testing.assert_close(found, module(x, chosen, weight), rtol=1e-5, atol=1e-5)


class Up(nn.Module):
    def forward(self, x, weight):
        return ours(x, weight, None, 2)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("enabled", [False, True])
def test_export_assumes_that_cudnn_is_enabled(enabled, strict):
    """torch.export disables cuDNN while it traces, so the switch does not describe the program then."""
    x, weight, _ = named("channels_last").tensors()
    with cudnn(enabled), tf32(False):
        program = torch.export.export(Up(), (x, weight), strict=strict)
    (node,) = (node for node in program.graph.nodes if node.target is ops.forward)
    code, channels_last = node.args[8:]
    assert (code, channels_last) == (0, True)
    assert program.module()(x, weight).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("layout", ["contiguous", "converted"])
def test_the_weights_gradient_of_one_channel_has_the_format_of_eager_calls(layout):
    """If the weight makes the result channels_last, that gradient follows the input's strides."""
    x, weight = torch.randn(2, 1, 5, 6), torch.randn(1, 6, 3, 3).to(memory_format=torch.channels_last)
    if layout == "converted":
        x = x.to(memory_format=torch.channels_last)
    x, weight = x.requires_grad_(), weight.requires_grad_()
    results = [call(x, weight) for call in (Up(), compiled(Up()))]
    grad_output = torch.randn_like(results[0])
    eager, traced = (torch.autograd.grad(result, (x, weight), grad_output) for result in results)
    assert RAN == ["forward"] * 2 + ["grad_input", "grad_weight"] * 2
    assert results[0].stride() == results[1].stride()
    for one, other in zip(traced, eager, strict=True):
        assert one.stride() == other.stride()
        torch.testing.assert_close(one, other)


def test_autocast_around_a_program_lowers_nothing_a_second_time():
    """Autocast was applied while tracing: an operand that is still float32 is computed in float32's class."""
    x, weight, _ = named("k4s2p1").tensors()
    x, weight = x.requires_grad_(), weight.requires_grad_()
    result = compiled(Up())(x, weight)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        grads = torch.autograd.grad(result.sum(), (x, weight))
        traced_ops.forward(x.detach(), weight.detach(), None, [2, 2, 0, 0, 0, 0, 1, 1, 1], None)
    assert CODES == [0] * 4
    assert grads[0].dtype is grads[1].dtype is torch.float32


@pytest.mark.parametrize(
    "arguments",
    [{"groups": np.int64(1)}, {"stride": np.int64(2)}, {"padding": (1, np.int64(1))}, {"dilation": torch.tensor(1)}],
    ids=str,
)
def test_run_time_arguments_are_rejected_with_an_explicit_precision(arguments):
    """Eager calls read them; a tracer replaces them by tensors."""
    x, weight, _ = named("k4s2p1").tensors()
    ours(x, weight, **arguments, precision="exact")
    assert RAN == ["forward"]
    with pytest.raises(Exception, match=r"pass plain ints, such as int\(stride\)"):
        compiled(lambda *tensors: ours(*tensors, **arguments, precision="exact"))(x, weight)
    compiled(lambda *tensors: ours(*tensors, **arguments), backend="eager")(x, weight)
    assert RAN == ["forward"]


@pytest.mark.parametrize("precision", [None, "exact"])
def test_function_modes_are_pytorchs_while_tracing(precision):
    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    x, weight, _ = named("k4s2p1").tensors()
    call = lambda *tensors: ours(*tensors, stride=2, precision=precision)  # noqa: E731
    with Mode():
        compiled(call)(x, weight)
    assert RAN == []
    with torch.device("cpu"):  # also a mode, which does not affect this operator
        compiled(call)(x, weight)
    assert RAN == ["forward"]


@pytest.mark.parametrize("precision", [None, "exact"])
def test_an_unbatched_input(precision):
    x, weight, bias = named("k4s2p1").tensors()
    found = compiled(lambda *tensors: ours(*tensors, 2, 1, precision=precision))(x[0], weight, bias)
    assert RAN == ["forward"]
    torch.testing.assert_close(found, F.conv_transpose2d(x[0], weight, bias, 2, 1))


def traced_route(x, weight, bias, **changes):
    """Returns the decision of tracing.py without a tracer."""
    arguments = {"stride": 2, "padding": 1, "output_padding": 0, "groups": 1, "dilation": 1, "requested": "exact"}
    return tracing._route(x, weight, bias, is_frozen=False, dims=2, **(arguments | changes))


def test_calls_that_are_pytorchs_while_tracing():
    class Subclass(torch.Tensor):
        pass

    operands = named("k4s2p1").tensors()
    assert traced_route(*operands)[0] is ops.forward
    for name in ("stride", "padding", "output_padding", "dilation", "groups"):
        assert traced_route(*operands, **{name: 1.5}) is routing.ARGUMENTS
    for which, tensor in enumerate(operands):
        before, after = operands[:which], operands[which + 1 :]
        assert traced_route(*before, tensor.as_subclass(Subclass), *after) is routing.NOT_PLAIN
        assert which == 2 or traced_route(*before, tensor.to("meta"), *after) is routing.NOT_CUDA
    with forward_ad.dual_level():
        assert traced_route(*operands) is routing.FORWARD_AD


def test_autocast_is_named_where_it_is_the_reason():
    x, weight, _ = named("k4s2p1").tensors()

    def call(x, weight):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return ours(x, weight, precision="tf32")

    for function in (call, compiled(call)):
        with pytest.raises(Exception, match=r"autocast casts the input to bfloat16: make the call inside of .*False"):
            function(x, weight)
    with pytest.raises(ValueError, match="the input is bfloat16: leave precision=None"):
        ours(x.bfloat16(), weight.bfloat16(), precision="tf32")

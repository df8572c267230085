"""Results and behaviour on the GPU: every case in every dtype, exactly, and everything around a call."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cases import each_case, named
from served import on_kernels, served_by, switch, tf32
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from convt_ext import conv_transpose2d as ours
from convt_ext.dispatch import ops
from convt_ext.environment import _extension

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def exact(case, dtype):
    """The right result: integers small enough for float64 to be exact, rounded once to the dtype."""
    return F.conv_transpose2d(*case.tensors(torch.float64, integers=True), **case.arguments).to(dtype)


def tensors(name="k4s2p1", dtype=torch.float32):
    return named(name).tensors(dtype, device="cuda")


@each_case()
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_ieee_is_exact_on_integers(case, dtype):
    operands = case.tensors(dtype, device="cuda", integers=True)
    result = ours(*operands, **case.arguments, precision="exact")
    assert result.dtype is dtype
    assert result.is_cuda
    torch.testing.assert_close(result.cpu(), exact(case, dtype), rtol=0, atol=0)


@each_case()
@pytest.mark.parametrize("precision", ["aten", "tf32x3", "tf32"])
def test_other_words_are_exact_on_integers(case, precision):
    operands = case.tensors(device="cuda", integers=True)
    result = ours(*operands, **case.arguments, **on_kernels(precision))
    torch.testing.assert_close(result.cpu(), exact(case, torch.float32), rtol=0, atol=0)


@each_case()
def test_every_case_runs_ours_in_inference(case):
    operands = case.tensors(device="cuda")
    assert served_by(ours, *operands, **case.arguments, precision="exact") == "convt_ext"
    if case.name == "many_channels_in":  # a long sum for few outputs, of which PyTorch's has the shorter estimate
        return
    with tf32(False):
        assert served_by(ours, *operands, **case.arguments) == "convt_ext"


@each_case("k4s2p1", "kb75", "channels_last", "no_bias", "gcd_2")
def test_unbatched(case):
    x, weight, bias = case.tensors(device="cuda")
    batched = ours(x, weight, bias, **case.arguments, precision="exact")
    for n in range(case.n):
        assert torch.equal(ours(x[n], weight, bias, **case.arguments, precision="exact"), batched[n])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_empty_batch_and_empty_result(dtype):
    x, weight, bias = tensors(dtype=dtype)
    assert ours(x[:0], weight, bias, 2, 1, precision="exact").shape == (0, 6, 10, 12)
    assert ours(x[:0], weight, bias, 2, 1).shape == (0, 6, 10, 12)
    nothing = ours(x[:, :, :1], weight, bias, 1, (2, 0), precision="exact")
    assert nothing.shape == (2, 6, 0, 9)


@pytest.mark.parametrize("layout", ["channels_last", "channel_slice", "expanded", "transposed", "step", "offset"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_layout_does_not_change_a_bit(layout, dtype):
    plain = named("odd_sizes")
    x, weight, bias = dataclasses.replace(plain, layout=layout).tensors(dtype, device="cuda")
    result = ours(x, weight, bias, **plain.arguments, precision="exact")
    dense = ours(x.contiguous(), weight.contiguous(), bias, **plain.arguments, precision="exact")
    assert torch.equal(result, dense)


@pytest.mark.parametrize("name", ["patches_direct_one", "patches_direct_one_8", "one_channel_converted"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_channel_out_of_a_weight_in_channels_last(name, dtype):
    """The result counts as channels_last: the stride of its one channel is 1, and means nothing."""
    case = named(name)
    x, weight, bias = case.tensors(dtype, device="cuda", integers=True)
    assert weight.stride(1) == 1
    expected = exact(case, dtype)
    for precision in (None, "exact", *(["tf32", "tf32x3"] if dtype is torch.float32 else [])):
        for on in (False, True):
            with tf32(on):
                result = ours(x, weight, bias, **case.arguments, **on_kernels(precision))
                theirs = F.conv_transpose2d(x, weight, bias, **case.arguments)
            assert result.stride() == theirs.stride(), precision
            torch.testing.assert_close(result.cpu(), expected, rtol=0, atol=0)


def test_bias_of_any_stride():
    x, weight, bias = tensors()
    expected = ours(x, weight, bias, 2, 1, precision="exact")
    wide = torch.full((12,), float("nan"), device="cuda")
    wide[::2] = bias
    assert torch.equal(ours(x, weight, wide[::2], 2, 1, precision="exact"), expected)
    one = torch.ones(1, device="cuda").expand(6)
    assert torch.equal(
        ours(x, weight, one, 2, 1, precision="exact"), ours(x, weight, one.contiguous(), 2, 1, precision="exact")
    )


@pytest.mark.parametrize(
    "stride",
    [2, (2,), (2, 2), [2], [2, 2], torch.Size([2, 2]), torch.tensor(2), np.int64(2), (np.int32(2), torch.tensor(2))],
    ids=lambda value: type(value).__name__,
)
def test_forms_run_ours(stride):
    x, weight, bias = tensors()
    assert served_by(ours, x, weight, bias, stride, 1, precision="exact") == "convt_ext"
    assert torch.equal(
        ours(x, weight, bias, stride, 1, precision="exact"), ours(x, weight, bias, 2, 1, precision="exact")
    )


def test_arguments_by_name():
    x, weight, bias = tensors()
    named_call = ours(input=x, weight=weight, bias=bias, stride=2, padding=1, dilation=1, groups=1, precision="exact")
    assert torch.equal(named_call, ours(x, weight, bias, 2, 1, precision="exact"))


def test_no_tensor_changes():
    operands = tensors()
    before = [(tensor.clone(), tensor._version) for tensor in operands]
    ours(*operands, 2, 1, precision="exact")
    torch.cuda.synchronize()
    for tensor, (copy, version) in zip(operands, before, strict=True):
        assert torch.equal(tensor, copy)
        assert tensor._version == version


def test_result_is_new_memory_and_nothing_else():
    """Peak memory is the result: no workspace."""
    x, weight = torch.randn(2, 16, 64, 64, device="cuda"), torch.randn(16, 16, 4, 4, device="cuda")
    ours(x, weight, stride=2, precision="exact")
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    result = ours(x, weight, stride=2, precision="exact")
    assert torch.cuda.memory_stats()["requested_bytes.all.peak"] - before == result.numel() * 4


def test_other_dtypes_are_pytorchs():
    x, weight, _ = tensors()
    operands = x.to(torch.complex64), weight.to(torch.complex64)
    assert served_by(ours, *operands, precision="exact") == "torch"
    torch.testing.assert_close(ours(*operands), F.conv_transpose2d(*operands))


def test_subclasses_and_modes_are_pytorchs():
    class Marked(torch.Tensor):
        pass

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x, weight, bias = tensors()
    assert type(ours(x.as_subclass(Marked), weight, bias, precision="exact")) is Marked
    seen = []
    with Mode():
        ours(x, weight, bias, precision="exact")
    assert F.conv_transpose2d in seen


def test_default_device_does_not_matter():
    x, weight, bias = tensors()
    with torch.device("cuda"):
        assert served_by(ours, x, weight, bias, precision="exact") == "convt_ext"


def test_disabled(monkeypatch):
    monkeypatch.setattr(_extension, "DISABLED", True)
    assert served_by(ours, *tensors(), precision="exact") == "torch"


@pytest.mark.parametrize("precision", [None, "exact", "aten"])
def test_deterministic_mode(precision):
    x, weight, bias = tensors()
    torch.use_deterministic_algorithms(True, warn_only=False)
    try:
        with tf32(False), switch(torch.backends.cudnn, "deterministic", True):
            first = ours(x, weight, bias, 2, 1, **on_kernels(precision))
    finally:
        torch.use_deterministic_algorithms(False)
    with tf32(False):
        assert torch.equal(first, ours(x, weight, bias, 2, 1, **on_kernels(precision)))


def test_transforms_are_pytorchs():
    x, weight, bias = tensors(dtype=torch.float64)
    batched = torch.func.vmap(lambda one: ours(one, weight, bias, 2, 1))(x)
    torch.testing.assert_close(batched, F.conv_transpose2d(x, weight, bias, 2, 1))
    _, tangent = torch.func.jvp(lambda one: ours(one, weight, None, 2, 1), (x,), (x,))
    torch.testing.assert_close(tangent, F.conv_transpose2d(x, weight, None, 2, 1))


def test_inference_mode_and_parameters():
    x, weight, bias = tensors()
    parameter = torch.nn.Parameter(weight)
    expected = ours(x, weight, bias, precision="exact")
    with torch.inference_mode():
        assert torch.equal(ours(x, parameter, bias, precision="exact"), expected)
    with torch.no_grad():
        assert torch.equal(ours(x, parameter, bias, precision="exact"), expected)
    assert not expected.requires_grad


def test_side_stream():
    x, weight, bias = tensors()
    expected = ours(x, weight, bias, 2, 1, precision="exact")
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        late = x.clone()
        torch.cuda._sleep(10_000_000)
        late.mul_(2).div_(2)
        result = ours(late, weight, bias, 2, 1, precision="exact")
    stream.synchronize()
    assert torch.equal(result, expected)


def test_cuda_graph():
    x, weight, bias = tensors()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        ours(x, weight, bias, 2, 1, precision="exact")
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = ours(x, weight, bias, 2, 1, precision="exact")
    x.mul_(-1)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(result, ours(x, weight, bias, 2, 1, precision="exact"))


@pytest.mark.needs_two_gpus
def test_another_gpu_than_the_current_one():
    operands = [tensor.to("cuda:1") for tensor in tensors()]
    result = ours(*operands, 2, 1, precision="exact")
    assert result.device.index == 1
    assert torch.equal(result.cpu(), ours(*tensors(), 2, 1, precision="exact").cpu())


@each_case("k4s2p1", "kb75", "gcd_2", "depthwise")
def test_flops_are_pytorchs(case):
    counts = []
    for call in (lambda *args, **named: ours(*args, **named, precision="exact"), F.conv_transpose2d):
        with FlopCounterMode(display=False) as counter:
            call(*case.tensors(device="cuda"), **case.arguments)
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0


@each_case()
@pytest.mark.parametrize("channels_last", [False, True])
def test_opcheck(case, channels_last):
    x, weight, bias = case.tensors(device="cuda")
    arguments = (x, weight, bias, case.s, case.p, case.op, case.g, case.d, 0, channels_last)
    torch.library.opcheck(ops.forward, arguments, test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_opcheck_dtypes(dtype):
    x, weight, bias = tensors(dtype=dtype)
    arguments = (x, weight, bias, (2, 2), (1, 1), (0, 0), 1, (1, 1), 0, False)
    torch.library.opcheck(ops.forward, arguments, test_utils=("test_schema", "test_faketensor"))


def test_a_nan_reaches_only_what_the_formula_says():
    case = named("odd_sizes")
    x, weight, bias = case.tensors(device="cuda")
    x[1, 2, 3, 4] = float("nan")
    reached = torch.zeros(x.shape)
    reached[1, 2, 3, 4] = 1
    expected = F.conv_transpose2d(reached, torch.ones(weight.shape), None, **case.arguments) != 0
    for precision in ("exact", "aten"):
        result = ours(x, weight, bias, **case.arguments, **on_kernels(precision))
        assert torch.equal(result.isnan().cpu(), expected)


def test_an_infinite_weight_does_not_meet_padding():
    x, weight = torch.ones(1, 2, 3, 3, device="cuda"), torch.ones(2, 3, 3, 3, device="cuda")
    weight[:, :, 0, 0] = float("inf")
    for precision in ("exact", "aten"):
        result = ours(x, weight, stride=2, **on_kernels(precision))
        assert not result.isnan().any()
        assert result.isinf().sum() == 3 * 9

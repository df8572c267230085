"""Which class serves on the GPU: PyTorch's switches, the keyword, the context; and what `explain` says of it."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.nn.functional as F
from cases import each_case, named
from served import cudnn, on_kernels, served_by, switch, tf32

from convt_ext import conv_transpose2d as ours
from convt_ext import explain, flags, use_precision
from convt_ext.bench.layers import KERNELBENCH, select_layers
from convt_ext.bench.operands import make_operands

CASE = named("k4s2p1")
WIDE = named("many_channels_in")


@pytest.fixture(autouse=True)
def deterministic_cudnn():
    """PyTorch's own result is compared with itself, bit for bit."""
    with switch(torch.backends.cudnn, "deterministic", True):
        yield


def operands(case=WIDE, dtype=torch.float32):
    return case.tensors(dtype, device="cuda")


def call(precision=None, case=WIDE, dtype=torch.float32):
    return ours(*operands(case, dtype), **case.arguments, **on_kernels(precision))


def theirs(case=WIDE, dtype=torch.float32):
    return F.conv_transpose2d(*operands(case, dtype), **case.arguments)


# Relative to the norm: what docs/numerics.md promises, and the same again for PyTorch.
TENSOR_CORES = {torch.float32: 1e-3, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
each_tensor_core_dtype = pytest.mark.parametrize("dtype", TENSOR_CORES, ids=str)


@each_tensor_core_dtype
@each_case()
def test_default_on_tensor_cores_is_ours_or_pytorchs_to_the_bit(case, dtype):
    with tf32(True):
        x, weight, bias = operands(case, dtype)
        found = explain(x, weight, bias, **case.arguments)
        assert served_by(call, case=case, dtype=dtype) == found.served_by
        mine, expected = call(case=case, dtype=dtype), theirs(case, dtype)
    if found.served_by == "torch":
        assert torch.equal(mine, expected)
    else:
        assert mine.stride() == expected.stride()
        assert (mine.double() - expected.double()).norm() <= TENSOR_CORES[dtype] * expected.double().norm()


@each_tensor_core_dtype
def test_default_on_tensor_cores_is_the_faster_one(dtype):
    """cuDNN copies kb71 to another layout and back; 4096 taps on nine pixels do not fill a GPU with our kernels."""
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("Hopper alone has our kernels on tensor cores")
    x, weight = torch.randn(2, 32, 512, 1024, device="cuda", dtype=dtype), torch.randn(32, 32, 3, 3, device="cuda")
    with tf32(True):
        assert served_by(ours, x, weight.to(dtype)) == "convt_ext"
        assert served_by(call, case=named("many_taps"), dtype=dtype) == "torch"


def test_default_without_tf32_is_ieee():
    with tf32(False):
        assert served_by(call, case=CASE) == "convt_ext"
        default = call(case=CASE)
    assert torch.equal(default, call("exact", CASE))


@pytest.mark.parametrize("name", ["kb65", "kb69", "kb75", "kb78", "kb81"])
def test_default_without_tf32_is_the_faster_one(name):
    """cuDNN uses a transform for kb65 and kb69."""
    (layer,) = select_layers(KERNELBENCH, [name])
    made = make_operands(layer, torch.float32, torch.device("cuda"))
    x, weight, bias = made.input, made.weight, made.bias
    server = "torch" if name in ("kb65", "kb69") else "convt_ext"
    with tf32(False):
        assert served_by(ours, x, weight, bias, **layer.arguments) == server
        found = explain(x, weight, bias, **layer.arguments)
        assert found.served_by == server
        assert served_by(ours, x, weight, bias, **layer.arguments, precision="exact") == "convt_ext"
        with use_precision("exact"):
            assert served_by(ours, x, weight, bias, **layer.arguments) == "convt_ext"
        if server == "torch":
            assert "PyTorch about" in found.reason
            expected = F.conv_transpose2d(x, weight, bias, **layer.arguments)
            assert torch.equal(ours(x, weight, bias, **layer.arguments), expected)


def test_default_without_cudnn_is_aten():
    with cudnn(False):
        assert served_by(call, case=CASE) == "convt_ext"
        default = call(case=CASE)
    assert torch.equal(default, call("aten", case=CASE))


def test_default_without_cudnn_where_cublas_may_use_tf32():
    with cudnn(False), switch(torch.backends.cuda.matmul, "fp32_precision", "tf32"):
        assert explain(*operands(), **WIDE.arguments).precision == "tf32"
        assert served_by(call, "aten") == "convt_ext"


def test_default_in_float64_is_ours_whatever_the_switches():
    for on in (False, True):
        with tf32(on):
            assert served_by(call, case=CASE, dtype=torch.float64) == "convt_ext"
    assert torch.equal(call(case=CASE, dtype=torch.float64), call("exact", case=CASE, dtype=torch.float64))


@pytest.mark.parametrize("word", ["exact", "aten", "tf32x3", "tf32"])
def test_explicit_precision_runs_ours(word):
    for on in (False, True):
        with tf32(on):
            assert served_by(call, word) == "convt_ext"
            with flags(**on_kernels(word)):
                assert served_by(call) == "convt_ext"
                assert torch.equal(call(), call(word))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_runs_ours_with_the_same_bits_every_time(dtype):
    assert served_by(call, "half", dtype=dtype) == "convt_ext"
    with flags(**on_kernels("half")):
        assert served_by(call, dtype=dtype) == "convt_ext"
        assert torch.equal(call(dtype=dtype), call("half", dtype=dtype))
    with pytest.raises(ValueError, match="is for float16 and bfloat16"):
        call("half")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_exact_runs_ours_in_every_dtype(dtype):
    assert served_by(call, "exact", dtype=dtype) == "convt_ext"
    with use_precision("exact"):
        assert served_by(call, dtype=dtype) == "convt_ext"
    with use_precision("tf32"):  # speaks of float32 alone
        asked = {torch.float64: "ieee", torch.float16: "f16", torch.bfloat16: "bf16"}[dtype]
        assert explain(*operands(CASE, dtype), **CASE.arguments).precision == asked


def test_keyword_beats_context_and_none_resets():
    with use_precision("aten"):
        assert torch.equal(call("exact"), call("exact"))
        with use_precision(None), tf32(True):
            assert explain(*operands(), **WIDE.arguments).precision == "tf32"
    assert not torch.equal(call("exact"), call("aten"))  # 70 channels: the two orders round differently


def test_classes_are_close_to_float64():
    x, weight, bias = (tensor.double() for tensor in WIDE.tensors())
    exact = F.conv_transpose2d(x, weight, bias, **WIDE.arguments)
    for word, bound in (("exact", 1e-6), ("aten", 1e-6), ("tf32x3", 1e-6), ("tf32", 5e-4)):
        result = call(word).double().cpu()
        assert (result - exact).norm() / exact.norm() < bound


def test_context_belongs_to_its_thread():
    found = []
    with use_precision("exact"), tf32(True):
        thread = threading.Thread(target=lambda: found.append(explain(*operands(), **WIDE.arguments).precision))
        thread.start()
        thread.join()
        found.append(explain(*operands(), **WIDE.arguments).precision)
    assert found == ["tf32", "ieee"]


@pytest.mark.parametrize("word", [None, "exact", "aten", "tf32x3", "tf32"])
@pytest.mark.parametrize("on", [False, True])
def test_explain_tells_the_truth(word, on):
    with tf32(on):
        found = explain(*operands(), **WIDE.arguments, **on_kernels(word))
        assert found.served_by == served_by(call, word)
    assert found.precision == {None: "tf32" if on else "ieee", "exact": "ieee"}.get(word, word)
    assert found.device == torch.cuda.get_device_name()
    plan = found.plan["plan"]
    assert plan["requested_precision"] == found.precision
    for candidate in found.plan["candidates"]:
        assert candidate["kernel"] in found.text(verbose=True)


def test_explain_of_what_pytorch_serves():
    x, weight, bias = operands()
    assert explain(x[:0], weight, bias, **WIDE.arguments).served_by == "torch"
    case = named("many_taps")
    found = explain(*operands(case, torch.float16), **case.arguments)
    assert (found.served_by, found.precision) == ("torch", "f16")
    assert "PyTorch about" in found.reason
    assert found.plan["plan"]["requested_precision"] == "half"

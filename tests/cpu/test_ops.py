"""ops.py and environment/_extension.py: fake kernels, loading, gradients of the raw ops, and errors of the binding for
invalid arguments (convt_ext's functions pass such calls to PyTorch)."""

from __future__ import annotations

import contextlib
import gc
import re
import weakref
from typing import Any

import pytest
import torch
from cases import each_case, named
from cpu_kernels import needs_binary
from gradients import leaves
from plan.problems import H200
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad, gradcheck, gradgradcheck

from convt_ext import build_info
from convt_ext.dispatch import ops
from convt_ext.environment import _driver, _extension


@needs_binary
@each_case()
@pytest.mark.parametrize("channels_last", [False, True])
def test_fake_kernel(case, channels_last):
    with FakeTensorMode():
        x = torch.empty(case.n, case.c_in, case.h, case.w, device="cuda")
        weight = torch.empty(case.c_in, case.c_out // case.g, *case.k, device="cuda")
        bias = torch.empty(case.c_out, device="cuda") if case.bias else None
        result = ops.forward(x, weight, bias, case.s, case.p, case.op, case.g, case.d, 0, channels_last)
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    expected = torch.empty(case.output_size, memory_format=memory_format)
    assert (result.shape, result.stride()) == (expected.shape, expected.stride())
    assert result.device.type == "cuda"


@each_case("k3s2p1op1")
def test_fake_kernel_holds_for_symbolic_sizes(case):
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    real = torch.empty(case.n, case.c_in, case.h, case.w)
    with FakeTensorMode(shape_env=ShapeEnv()) as mode:
        x = mode.from_tensor(real, static_shapes=False)
        weight = torch.empty(case.c_in, case.c_out, *case.k)
        result = ops.fake_forward(x, weight, None, case.s, case.p, case.op, case.g, case.d, 0, True)
    assert isinstance(result.shape[2], torch.SymInt)
    assert tuple(int(size) for size in result.shape) == case.output_size
    assert int(result.stride(1)) == 1


@needs_binary
def test_schema():
    assert str(ops.forward._schema) == (
        "convt_ext::forward(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, "
        "int[] output_padding, int groups, int[] dilation, int precision, bool channels_last) -> Tensor"
    )


def test_build_info():
    info = build_info()
    assert {"version", "cuda", "architectures", "sources"} <= set(info)
    if _extension.load_error is None:
        assert info["architectures"]
        assert all(entry[0].isdigit() for entry in info["architectures"])
    else:
        assert info["reason"] == _extension.load_error
    info["version"] = "changed"
    assert build_info()["version"] != "changed"


@pytest.mark.parametrize(
    ("architecture", "runs_on", "not_on"),
    [
        ("9.0a", [(9, 0)], [(9, 1), (10, 0)]),
        ("8.0", [(8, 6)], [(9, 0)]),
        ("8.6", [], [(8, 0)]),
        ("8.0+PTX", [(9, 0)], []),
        ("9.0+PTX", [], [(8, 9)]),
        ("10.0f", [(10, 3)], [(12, 0)]),
        ("12.0", [(12, 0)], []),
        ("Hopper", [], [(9, 0)]),
    ],
)
def test_architectures(architecture, runs_on, not_on):
    assert all(_extension.runs_on(architecture, one) is True for one in runs_on)
    assert all(_extension.runs_on(architecture, one) is False for one in not_on)


@pytest.mark.parametrize("served", [None, (13, 0), (14, 2)])
def test_a_driver_that_supports_the_binary(monkeypatch, served):
    monkeypatch.setattr(_driver, "cuda_of_driver", lambda: served)
    assert _driver.too_old_reason("13.5") is None


def test_version_of_the_driver(monkeypatch):
    class Library:
        def cuDriverGetVersion(self, version):
            version._obj.value = 13010
            return 0

    monkeypatch.setattr(_driver.ctypes, "CDLL", lambda name: Library())
    assert _driver.cuda_of_driver.__wrapped__() == (13, 1)
    monkeypatch.setattr(_driver.ctypes, "CDLL", lambda name: object())
    assert _driver.cuda_of_driver.__wrapped__() is None


def test_missing_binary_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(_extension, "_LIBRARY", tmp_path / "libconvt_ext.so")
    missing = "convt_ext/libconvt_ext.so is not installed: install a wheel file of convt_ext"
    assert missing in _extension._load()
    _extension._LIBRARY.write_bytes(b"no library")
    reason = _extension._load()
    assert "does not load" in reason
    assert str(_extension._LIBRARY) in reason


def test_a_failure_that_is_handled_keeps_nothing_alive(monkeypatch):
    """A cycle of traceback and frame would keep a benchmark's tensors alive after an out-of-memory error."""

    def no_memory(*_):
        raise RuntimeError("CUDA out of memory. Tried to allocate 1.00 GiB (1073741824 bytes on GPU 0, by convt_ext)")

    def raise_as_torch(words):
        raise torch.OutOfMemoryError(words)

    monkeypatch.setattr(ops, "_raise_as_torch", raise_as_torch)
    run = ops._raising(no_memory)
    held = []

    def benchmark():
        flush = torch.empty(1)
        held.append(weakref.ref(flush))
        with contextlib.suppress(torch.OutOfMemoryError):
            run()

    gc.disable()
    try:
        benchmark()
        assert held[0]() is None
    finally:
        gc.enable()


# ---- arguments of the binding: the limit, and the value


MANY = 2**29


def plan(x=(1, 4, 8, 8), weight=(4, 2, 3, 3), x_stride=(256, 64, 8, 1), direction=0, **changes: Any) -> Any:
    """Calls the op `plan` for a small problem, with changes."""
    lists = {"stride": [1, 1], "padding": [0, 0], "output_padding": [0, 0], "groups": 1, "dilation": [1, 1]} | changes
    w_stride = [weight[1] * weight[2] * weight[3], weight[2] * weight[3], weight[3], 1]
    return torch.ops.convt_ext.plan(
        list(x), list(x_stride), list(weight), w_stride, False, lists["stride"], lists["padding"],
        lists["output_padding"], lists["groups"], lists["dilation"], 0, 0, False, H200, direction, 0,
    )  # fmt: skip


MESSAGES = {
    "channels": ({"x": (1, 2**30, 8, 8), "weight": (2**30, 2, 3, 3)}, "the input's channels must be positive and stay "
                 "below 2^30, got 1073741824"),
    "groups": ({"groups": 3}, "groups must divide the input's channels, got groups 3 and 4 channels"),
    "no groups": ({"groups": 0}, "groups must be positive, got 0"),
    "output channels": ({"weight": (4, 2**30, 3, 3)}, "weight.size(1) times groups, the output's channels, must stay "
                        "below 2^30, got 1073741824 times 1"),
    "output channels of groups": (
        {"x": (1, 2**29, 1, 1), "weight": (2**29, 2, 3, 3), "groups": 2**29},
        "weight.size(1) times groups, the output's channels, must stay below 2^30, got 2 times 536870912",
    ),
    "no output channels": ({"weight": (4, 0, 3, 3)}, "weight.size(1) must be positive, got 0"),
    "batch": ({"x": (2**30, 4, 8, 8)}, "batch must not be negative and stay below 2^30, got 1073741824"),
    "size": ({"x": (1, 4, MANY, 8)}, "the size along H must stay below 2^29, got 536870912"),
    "kernel": ({"weight": (4, 2, 3, MANY)}, "the kernel's size along W must stay below 2^29, got 536870912"),
    "stride": ({"stride": [2**62, 1]}, f"stride along H must stay below 2^29, got {2**62}"),
    "padding": ({"padding": [0, 2**62]}, f"padding along W must stay below 2^29, got {2**62}"),
    "dilation": ({"dilation": [1, 2**62]}, f"dilation along W must stay below 2^29, got {2**62}"),
    "kernel and dilation": ({"dilation": [2**28, 1]}, "dilation * (kernel size - 1) along H must stay below 2^29, got "
                            "268435456 * 2"),
    "output": ({"stride": [2**28, 1]}, "the output's size along H must stay below 2^29, got 1879048195"),
}  # fmt: skip


@needs_binary
@pytest.mark.parametrize("name", MESSAGES)
def test_limits_are_named(name):
    changes, message = MESSAGES[name]
    with pytest.raises(RuntimeError, match=re.escape(message)):
        plan(**changes)


@needs_binary
@pytest.mark.parametrize("direction", [0, 1, 2])
@pytest.mark.parametrize("stride", [2**31, 2**62, 2**63 - 1])
def test_the_stride_of_a_single_image_has_no_effect(direction, stride):
    """A stride that would overflow yields the plans of an ordinary one."""
    assert plan(direction=direction, x_stride=(stride, 64, 8, 1)) == plan(direction=direction)


@needs_binary
@pytest.mark.parametrize("index", [2**31, 2**32, 2**62, -(2**32), -1])
def test_no_gpu_has_such_an_index(index):
    """The index must not be narrowed to that of an existing GPU."""
    with pytest.raises(RuntimeError, match=str(index)):
        torch.ops.convt_ext.device(index)


# ---- gradients of the raw ops


RAW = ((2, 2), (1, 1), (0, 0), 1, (1, 1), 0, False)


def raw_operands(name):
    x, weight, bias = leaves(named("k4s2p1"))
    grad_output = torch.randn(2, 6, 10, 12, dtype=torch.float64, requires_grad=True)
    return {"forward": (x, weight, bias), "grad_input": (grad_output, weight), "grad_weight": (grad_output, x)}[name]


@pytest.mark.usefixtures("cpu_is_gpu")
def test_raw_ops_have_gradients():
    for name in ("forward", "grad_input", "grad_weight"):
        call = lambda *tensors, name=name: getattr(ops, name)(*tensors, *RAW)  # noqa: E731
        assert gradcheck(call, raw_operands(name), fast_mode=True)
        assert gradgradcheck(call, raw_operands(name), fast_mode=True)
    (grad_output, _) = raw_operands("grad_input")
    assert gradcheck(ops.grad_bias, grad_output, fast_mode=True)
    assert gradgradcheck(ops.grad_bias, grad_output, fast_mode=True)


@pytest.mark.usefixtures("cpu_is_gpu")
def test_raw_ops_refuse_transforms():
    x, weight, _ = (tensor.detach() for tensor in raw_operands("forward"))
    with pytest.raises(RuntimeError, match="setup_context"):
        torch.func.grad(lambda w: ops.forward(x, w, None, *RAW).sum())(weight)
    with pytest.raises(NotImplementedError, match="conv_transpose2d"):
        torch.func.jvp(lambda w: ops.forward(x, w, None, *RAW), (weight,), (weight,))


@pytest.mark.usefixtures("cpu_is_gpu")
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", ["forward", "grad_input", "grad_weight"])
def test_raw_ops_in_a_dual_level_refuse_what_is_dual_and_nothing_else(name, grad):
    operands = [tensor.detach() for tensor in raw_operands(name)]
    op = getattr(ops, name)
    expected = op(*operands, *RAW)
    with torch.set_grad_enabled(grad), forward_ad.dual_level():
        if name == "forward":  # the other ops raise in a dual level
            assert torch.equal(op(*operands, *RAW), expected)
        duals = [forward_ad.make_dual(tensor, torch.randn_like(tensor)) for tensor in operands]
        for mixed in (*([*operands[:i], duals[i], *operands[i + 1 :]] for i in range(len(duals))), duals):
            with pytest.raises(NotImplementedError, match=rf"convt_ext::{name} has no forward-mode .*conv_transpose2d"):
                op(*mixed, *RAW)

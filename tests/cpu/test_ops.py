"""ops.py and environment/_extension.py: fake kernel, FLOP count, loading; with the binary where there is one."""

from __future__ import annotations

import contextlib
import gc
import weakref

import pytest
import torch
from cases import each_case
from cpu_kernels import needs_binary
from torch._subclasses.fake_tensor import FakeTensorMode

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

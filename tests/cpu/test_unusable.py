"""Installations with kernels that cannot run: an old driver, no driver, a GPU without code, a ROCm build of torch.

The first call warns and PyTorch's operator runs, in eager and compiled code; an explicit precision raises.
"""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from cases import named
from pretend_gpu import operands
from served import allow_tf32
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import convt_ext
from convt_ext import conv_transpose2d as ours
from convt_ext import explain, functional
from convt_ext.dispatch import ops, planner, routing
from convt_ext.environment import _driver, _extension


def old_driver(monkeypatch):
    monkeypatch.setattr(_driver, "cuda_of_driver", lambda: (12, 4))
    return (
        "uses CUDA 13.0, but the NVIDIA driver supports only CUDA 12.4: update the driver to 580 or newer, or install "
        "a wheel file of convt_ext that was built with CUDA 12"
    )


def raising(error):
    """Returns a function that raises the error."""

    def function(index):
        raise error

    return function


def no_driver(monkeypatch):
    monkeypatch.setattr(_driver, "cuda_of_driver", lambda: None)
    error = RuntimeError("Found no NVIDIA driver on your system.")
    monkeypatch.setattr(torch.cuda, "get_device_capability", raising(error))
    return "PyTorch sees no CUDA GPU"


def unsupported_gpu(monkeypatch):
    monkeypatch.setattr(_extension, "_build_info", lambda: {"cuda": "13.0", "architectures": ["10.0"]})
    return (
        "code for compute capability 10.0 and NVIDIA H200 has 9.0: install a wheel file that lists it, or build one "
        "with TORCH_CUDA_ARCH_LIST=9.0"
    )


def rocm(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.4.43484")
    return "is a build for ROCm, but convt_ext has kernels for NVIDIA GPUs: install a build of torch for CUDA"


def no_binary(monkeypatch):
    monkeypatch.setattr(_extension, "load_error", "the compiled file is not installed: install a wheel file")
    monkeypatch.setattr(_extension, "_build_info", lambda: {"cuda": None, "architectures": []})
    return "install a wheel file"


@pytest.fixture(params=[old_driver, no_driver, unsupported_gpu, rocm, no_binary], ids=lambda one: one.__name__)
def reason(request, monkeypatch):
    """Returns a part of the reason. Only the component of the parameter is missing; the binary's own query fails."""
    insufficient = RuntimeError("cannot read the properties of GPU 0: CUDA driver version is insufficient")

    monkeypatch.setattr(_extension, "load_error", None)
    monkeypatch.setattr(_extension, "_build_info", lambda: {"cuda": "13.0", "architectures": ["9.0a"]})
    monkeypatch.setattr(_driver, "cuda_of_driver", lambda: (13, 1))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "NVIDIA H200")
    monkeypatch.setattr(ops, "device", raising(insufficient))
    monkeypatch.setattr(functional, "_warned", False)
    words = request.param(monkeypatch)
    forget()
    with allow_tf32(False):
        yield words
    forget()


def forget():
    for function in (_extension.capability, _extension.unsupported_reason, planner.device_numbers):
        function.cache_clear()
    routing.forget()
    torch._dynamo.reset()


@pytest.fixture
def fake_gpu(monkeypatch):
    """Makes fake tensors report a GPU."""
    monkeypatch.setattr(routing, "PLAIN", routing.PLAIN | {FakeTensor})
    with FakeTensorMode():
        yield


@pytest.fixture
def cpu_as_gpu(monkeypatch):
    """Makes routing treat CPU tensors as GPU tensors, so that PyTorch's operator can run them."""
    monkeypatch.setattr(routing, "DEVICE_TYPE", "cpu")
    monkeypatch.setattr(routing, "on_gpu", lambda tensor: tensor.device.type == "cpu")


@pytest.mark.parametrize("precision", [None, "exact", "tf32"])
def test_route_returns_the_reason(reason, fake_gpu, precision):
    decision = routing.route(*operands(), 2, 1, 0, 1, 1, precision)
    assert isinstance(decision, routing.Unavailable)
    assert reason in decision.remedy


@pytest.fixture(params=["eager", "compiled"])
def call(request, cpu_as_gpu):
    """Calls the function, eager or compiled."""

    def function(*tensors, precision=None):
        return ours(*tensors, 2, 1, precision=precision)

    return function if request.param == "eager" else torch.compile(function, backend="eager", fullgraph=True)


def test_the_first_call_warns_and_pytorch_computes(reason, call):
    tensors = named("k4s2p1").tensors()
    with pytest.warns(RuntimeWarning, match="convt_ext uses PyTorch's operator") as caught:
        result = call(*tensors)
    assert torch.equal(result, F.conv_transpose2d(*tensors, 2, 1))
    assert [reason in str(one.message) for one in caught if one.category is RuntimeWarning] == [True]
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        torch._dynamo.reset()
        call(*tensors)
        ours(*tensors, 2, 1)


def test_an_epilogue_and_frozen_weights_warn_too(reason, cpu_as_gpu, monkeypatch):
    tensors = named("k4s2p1").tensors()
    with pytest.warns(RuntimeWarning, match="convt_ext uses PyTorch's operator"):
        result = ours(*tensors, 2, 1, activation="relu")
    assert torch.equal(result, F.conv_transpose2d(*tensors, 2, 1).relu())
    monkeypatch.setattr(functional, "_warned", False)
    module, x = convt_ext.ConvTranspose2d(4, 6, 3).eval(), torch.randn(1, 4, 5, 5)
    frozen = convt_ext.freeze(copy.deepcopy(module))
    with torch.no_grad(), pytest.warns(RuntimeWarning, match="convt_ext uses PyTorch's operator"):
        assert torch.equal(frozen(x), module(x))


def test_an_explicit_precision_raises(reason, call):
    with pytest.raises(Exception, match="asks for a kernel of convt_ext") as caught:
        call(*named("k4s2p1").tensors(), precision="exact")
    assert reason in str(caught.value)


def test_explain_reports_it(reason, fake_gpu):
    found = explain(*operands(), stride=2, padding=1)
    assert found.served_by == "torch"
    assert reason in found.reason
    assert found.plan is None
    assert str(found)
    with pytest.raises(RuntimeError, match="asks for a kernel of convt_ext"):
        explain(*operands(), precision="exact")


def test_tune_measures_nothing(reason, cpu_as_gpu):
    with pytest.raises(RuntimeError, match="measured nothing"), pytest.warns(RuntimeWarning, match="uses PyTorch's"):
        convt_ext.tuning.tune(lambda *tensors: ours(*tensors, 2, 1), *named("k4s2p1").tensors())


def test_it_is_not_available(reason, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert not convt_ext.is_available()
    assert reason in _extension.unavailable_reason()


def test_a_cpu_build_of_torch_has_no_capability(monkeypatch):
    error = AssertionError("Torch not compiled with CUDA enabled")
    monkeypatch.setattr(torch.cuda, "get_device_capability", raising(error))
    assert _extension.capability.__wrapped__(0) == (0, 0)

"""Importing the package in the middle of a program, under any mode of PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest
from cpu.python_process import run
from cpu_kernels import needs_binary

TESTS = Path(__file__).resolve().parents[1]

# Imports under a mode, then computes second derivatives, which our own autograd nodes record.
_UNDER_A_MODE = """
import sys
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

seen = []

class FunctionMode(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        seen.append(function)
        return function(*args, **(kwargs or {}))

class DispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        seen.append(function)
        return function(*args, **(kwargs or {}))

with MODE:
    import convt_ext

assert not torch.cuda.is_initialized()
assert seen == [], seen
sys.path.insert(0, TESTS)
import cpu_kernels, pytest
cpu_kernels.pretend(pytest.MonkeyPatch())
x = torch.randn(1, 2, 3, 3, requires_grad=True)
weight = torch.randn(2, 2, 2, 2, requires_grad=True)
result = convt_ext.conv_transpose2d(x, weight, precision="exact").square().sum()
(first,) = torch.autograd.grad(result, x, create_graph=True)
first.square().sum().backward()
assert cpu_kernels.RAN.count("grad_weight") == 2, cpu_kernels.RAN
assert type(x.grad) is torch.Tensor and x.grad.device.type == "cpu"
assert x.grad.isfinite().all() and not x.grad.is_inference()
"""


@needs_binary
@pytest.mark.parametrize(
    "mode",
    [
        "torch.inference_mode()", "torch.no_grad()", "torch.device('cuda')", "torch.device('meta')", "FakeTensorMode()",
        "FunctionMode()", "DispatchMode()", "torch.autograd.forward_ad.dual_level()",
        "torch.autograd.graph.saved_tensors_hooks(seen.append, lambda one: one)",
    ],
)  # fmt: skip
def test_under_a_mode(mode):
    run(_UNDER_A_MODE.replace("MODE:", f"{mode}:").replace("TESTS", repr(str(TESTS))))


@pytest.mark.parametrize("device", ["cuda", "meta"])
def test_under_a_default_device(device):
    run(
        f"import torch; torch.set_default_device({device!r}); import convt_ext; assert not torch.cuda.is_initialized();"
        "x = torch.ones(1, 1, 2, 2, device='cpu'); assert convt_ext.conv_transpose2d(x, x).device.type == 'cpu'"
    )


@pytest.mark.parametrize("transform", ["vmap", "grad"])
def test_inside_of_a_transform(transform):
    run(
        "import torch\ndef function(x):\n  from convt_ext.dispatch import autograd\n"
        f"  assert autograd._stranger is not None\n  return x.sum()\ntorch.func.{transform}(function)(torch.ones(2))"
    )

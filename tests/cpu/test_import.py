"""Importing the package in a program that runs: under any mode of PyTorch, and without a private name of torch."""

from __future__ import annotations

from pathlib import Path

import torch
from cpu.python_process import run_each
from cpu_kernels import needs_binary

from convt_ext.dispatch import ops
from convt_ext.environment import _extension, _torch

TESTS = Path(__file__).resolve().parents[1]

_IMPORTS = """
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
assert "convt_ext" not in sys.modules
"""

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
_MODES = [
    "torch.inference_mode()", "torch.no_grad()", "torch.device('cuda')", "torch.device('meta')", "FakeTensorMode()",
    "FunctionMode()", "DispatchMode()", "torch.autograd.forward_ad.dual_level()",
    "torch.autograd.graph.saved_tensors_hooks(seen.append, lambda one: one)",
]  # fmt: skip


@needs_binary
def test_under_a_mode():
    program = _UNDER_A_MODE.replace("TESTS", repr(str(TESTS)))
    run_each(_IMPORTS, [program.replace("MODE:", f"{mode}:") for mode in _MODES])


def test_under_a_default_device_and_inside_of_a_transform():
    devices = [
        f"import torch; torch.set_default_device({device!r}); import convt_ext; assert not torch.cuda.is_initialized();"
        "x = torch.ones(1, 1, 2, 2, device='cpu'); assert convt_ext.conv_transpose2d(x, x).device.type == 'cpu'"
        for device in ("cuda", "meta")
    ]
    transforms = [
        "import torch\ndef function(x):\n  from convt_ext.dispatch import autograd\n"
        f"  assert autograd._stranger is not None\n  return x.sum()\ntorch.func.{transform}(function)(torch.ones(2))"
        for transform in ("vmap", "grad")
    ]
    run_each(_IMPORTS, [*devices, *transforms])


_WITHOUT_A_NAME = """
import pkgutil, sys
import torch
owner, _, name = PATH.replace(":", ".").rpartition(".")
expected = torch.conv_transpose2d(torch.ones(1, 2, 3, 3), torch.ones(2, 3, 2, 2))
owner = pkgutil.resolve_name(owner)
if name == "_current_level":  # which torch's own functions read
    sys.modules.pop("torch.autograd.forward_ad")
    sys.modules["torch.autograd.forward_ad"] = torch.autograd.forward_ad = type(sys)("forward_ad")
else:
    delattr(owner, name)
import convt_ext
assert torch.equal(convt_ext.conv_transpose2d(torch.ones(1, 2, 3, 3), torch.ones(2, 3, 2, 2)), expected)
module = convt_ext.convert(torch.nn.ConvTranspose2d(2, 3, 2))
assert module.forward(torch.ones(1, 2, 3, 3)).shape == (1, 3, 4, 4)  # to call it, torch reads private names itself
assert not convt_ext.is_available()
from convt_ext.environment.info import collect_info
print(collect_info()["reason"])
"""


def test_a_missing_private_name_of_torch_is_a_reason():
    """PyTorch's operator then runs every call."""
    assert _torch.missing == []
    assert _torch.missing_reason() is None
    imports = "import torch, torch.fx, torch.utils.flop_counter"
    found = run_each(imports, [_WITHOUT_A_NAME.replace("PATH", repr(path)) for path in _torch.required])
    for path, reason in zip(_torch.required, found, strict=True):
        name = path.replace(":", ".")
        assert reason.startswith(f"convt_ext does not support torch {torch.__version__}, which lacks {name}")
        assert "install torch 2.10 to 2.13, or a newer convt_ext" in reason


def test_an_old_torch_is_named_first(monkeypatch):
    monkeypatch.setattr(_torch, "missing", ["torch._C:_any"])
    assert "which lacks torch._C._any" in _extension._load()
    monkeypatch.setattr(torch, "__version__", "2.9.1+cu128")
    assert _extension._load() == "convt_ext needs torch >= 2.10 and found torch 2.9.1+cu128: upgrade torch"


_DISABLED = """
import os
os.environ.update(CONVT_EXT_DISABLE=VALUE, CONVT_EXT_COMPILE="bare")
import torch, convt_ext
from convt_ext.compile import mode
from convt_ext.environment import _extension
torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: 1
_extension.unsupported_reason = lambda index: None
print(_extension.DISABLED, convt_ext.is_available(), mode.MODE)
"""


def test_what_an_import_reads_and_what_it_leaves_alone():
    programs = [
        "import sys, convt_ext; print(sorted({'torch._dynamo', 'torch._inductor', 'sympy'} & set(sys.modules)))",
        "import sys; from convt_ext.dispatch.geometry import surely\n"
        "print(surely(True), surely(False), 'torch.fx.experimental.symbolic_shapes' in sys.modules)",
        *(_DISABLED.replace("VALUE", repr(value)) for value in "10"),
    ]
    compilers, ordinary_sizes, disabled, enabled = (found.strip() for found in run_each("import torch", programs))
    assert compilers == "[]"
    assert ordinary_sizes == "True False False"
    assert disabled == "True False bare"
    assert enabled == f"False {ops.forward is not None} bare"

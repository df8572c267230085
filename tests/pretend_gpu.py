"""Tensors that report a GPU, on a machine without one.

PyTorch's fake tensors have sizes, strides, dtype and a CUDA device but no data, and routing reads
nothing else; the op then runs its fake kernel. With a CPU-only PyTorch they do not support indexing
(use `select` and `narrow`) and autograd. A test imports the fixture with
`from pretend_gpu import pretend_gpu`.
"""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from convt_ext.dispatch import planner, request, routing
from convt_ext.environment import _extension

# GPUs as the planner sees them: with tensor cores that our portable kernels use, and with those that none does.
A100 = (80, 108, 166912, 167936, 1410, 1400)
TURING = (75, 40, 65536, 65536, 1590, 320)


@pytest.fixture
def pretend_gpu(monkeypatch):
    """Inside, `device="cuda"` makes a tensor that routing treats as one on an H200 with a matching binary."""
    monkeypatch.setattr(routing, "PLAIN", routing.PLAIN | {FakeTensor})
    monkeypatch.setattr(_extension, "capability", lambda index: (9, 0))
    monkeypatch.setattr(planner, "device_numbers", lambda index: planner.H200)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: "NVIDIA H200")
    monkeypatch.setattr(_extension, "unsupported_reason", lambda index: None)
    routing.forget()
    with FakeTensorMode() as mode:
        yield mode
    routing.forget()


@pytest.fixture
def a100(pretend_gpu, monkeypatch):
    """Makes meta tensors count as tensors on an A100."""
    monkeypatch.setattr(planner, "device_numbers", lambda index: A100)


def operands(dtype=torch.float32, device="cuda"):
    """Input, weight and bias of a small layer."""
    return (
        torch.ones(2, 4, 5, 6, dtype=dtype, device=device),
        torch.ones(4, 6, 3, 3, dtype=dtype, device=device),
        torch.ones(6, dtype=dtype, device=device),
    )


def decide(
    x, weight, bias=None, stride=2, padding=1, output_padding=0, groups=1, dilation=1, precision=None, backend=None
):
    """Returns the decision of routing for a call."""
    requested = request.encode_request(precision, backend)
    return routing.route(x, weight, bias, stride, padding, output_padding, groups, dilation, requested)

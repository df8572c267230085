"""Tensors that say they are on a GPU, on a machine without one.

PyTorch's fake tensors have sizes, strides, dtype and a CUDA device and no data, which is all that
routing looks at; the op then runs its fake kernel. Beside a CPU-only PyTorch they cannot be indexed
(`select` and `narrow` can do it) and take no part in autograd. A test takes the fixture with
`from pretend_gpu import pretend_gpu`.
"""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from convt_ext import _extension, planner, routing

# An NVIDIA A100 as the planner sees it: a GPU without kernels of ours on tensor cores.
A100 = (80, 108, 166912, 167936, 1410, 1400)


@pytest.fixture
def pretend_gpu(monkeypatch):
    """Inside, `device="cuda"` makes a tensor that routing takes for one on an H200 with a fitting binary."""
    monkeypatch.setattr(routing, "PLAIN", routing.PLAIN | {FakeTensor})
    monkeypatch.setattr(_extension, "capability", lambda index: (9, 0))
    monkeypatch.setattr(planner, "device_numbers", lambda index: planner.H200)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: "NVIDIA H200")
    monkeypatch.setattr(_extension, "unsupported_reason", lambda index: None)
    routing.forget()
    with FakeTensorMode() as mode:
        yield mode
    routing.forget()

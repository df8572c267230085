"""Fixtures of the CPU tests."""

from __future__ import annotations

import pytest
import torch
from cpu_kernels import CODES, MASKS, RAN, cpu_is_gpu
from pretend_gpu import pretend_gpu

import convt_ext
from convt_ext.fusing import chain

__all__ = ["cpu_is_gpu", "pretend_gpu"]


@pytest.fixture(autouse=True)
def nothing_ran():
    """`RAN` lists the ops of one test, whichever test ran before it in the process."""
    RAN.clear()
    CODES.clear()
    MASKS.clear()


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def broken(monkeypatch):
    """Calls of convt_ext raise an error."""

    def fail(*args, **kwargs):
        raise RuntimeError("no such plan")

    monkeypatch.setattr(convt_ext, "conv_transpose2d", fail)


@pytest.fixture
def compiled(monkeypatch):
    """Records the modules to compile and the options, and compiles none."""
    seen = []
    monkeypatch.setattr(torch, "compile", lambda model, **options: seen.append((model, options)) or model)
    return seen


@pytest.fixture
def fused_calls(monkeypatch):
    """Weight and epilogue of each fused call."""
    found = []
    plain = chain.conv_transpose2d_then

    def recording(input, weight, *arguments, epilogue, **named):
        found.append((weight, epilogue))
        return plain(input, weight, *arguments, epilogue=epilogue, **named)

    monkeypatch.setattr(chain, "conv_transpose2d_then", recording)
    return found

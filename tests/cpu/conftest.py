"""Fixtures of the CPU tests."""

from __future__ import annotations

import pytest
import torch
from cpu_kernels import CODES, MASKS, RAN, cpu_is_gpu
from pretend_gpu import a100, pretend_gpu

import convt_ext
from convt_ext.dispatch import planner
from convt_ext.epilogue import chain
from convt_ext.tuning import benchmark, choices

__all__ = ["a100", "cpu_is_gpu", "pretend_gpu"]


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

    for dims in (1, 2, 3):
        monkeypatch.setattr(convt_ext, f"conv_transpose{dims}d", fail)


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
    plain = chain.conv_transpose_then

    def recording(dims, input, weight, *arguments, epilogue, **named):
        found.append((weight, epilogue))
        return plain(dims, input, weight, *arguments, epilogue=epilogue, **named)

    monkeypatch.setattr(chain, "conv_transpose_then", recording)
    return found


@pytest.fixture(params=["pytorch", "ours"])
def server(request):
    """Selects the implementation: PyTorch's operator, or convt_ext's ops."""
    if request.param == "ours":
        request.getfixturevalue("cpu_is_gpu")
    return request.param


@pytest.fixture
def packing(monkeypatch):
    """Makes all plans pack a float32 weight of 4 x 6 x 3 x 3; a test changes the size of the copy."""
    bytes_of = {"packed": 4 * 6 * 9 * 4}
    monkeypatch.setattr(planner, "best_plan", lambda *_, **__: planner.BestPlan(1.0, 0.0, bytes_of["packed"]))
    return bytes_of


@pytest.fixture
def fake_benchmark(monkeypatch, cpu_is_gpu):
    """Makes convt_ext's candidate 1 win every benchmark; returns the list of benchmarked directions."""
    found = []

    def run(problem, direction, run_ours, run_torch, device):
        found.append(direction)
        return choices.Choice(False, 1, 5.0, 50.0, choices.MEASURED)

    monkeypatch.setattr(benchmark, "run", run)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    return found

"""The examples in the tools' own documentation, and where a CPU build of torch comes from."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.mark.parametrize(
    "name", ["architecture", "bench_results", "build_cost", "check_wheel", "gpu_shards", "install_torch", "nvcc"]
)
def test_examples(monkeypatch, name):
    monkeypatch.syspath_prepend(str(TOOLS))
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


def test_a_cpu_build_comes_from_its_index(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    words = importlib.import_module("install_torch").pip_words
    monkeypatch.setenv("TORCH_CPU_INDEX", "file:///index")
    assert words("torch", "cpu") == ["torch", "--index-url", "file:///index"]
    assert words("torch", "any") == words("torch", "cuda") == ["torch"]
    monkeypatch.setenv("TORCH_CPU_INDEX", "")  # as a repository variable that nobody has set
    with pytest.raises(SystemExit, match="TORCH_CPU_INDEX is not set: set it to the address"):
        words("torch", "cpu")
    assert words("torch", "any") == ["torch"]

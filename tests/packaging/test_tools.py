"""The examples in the tools' own documentation."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.mark.parametrize("name", ["architecture", "build_cost", "check_wheel", "install_torch"])
def test_examples(monkeypatch, name):
    monkeypatch.syspath_prepend(str(TOOLS))
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0

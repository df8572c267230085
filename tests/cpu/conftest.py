"""Fixtures of the CPU tests."""

from __future__ import annotations

import pytest
from cpu_kernels import CODES, MASKS, RAN

from convt_ext.fusing import chain


@pytest.fixture(autouse=True)
def nothing_ran():
    """`RAN` lists the ops of one test, whichever test ran before it in the process."""
    RAN.clear()
    CODES.clear()
    MASKS.clear()


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

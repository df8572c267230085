"""Fixtures of the CPU tests."""

from __future__ import annotations

import pytest
from cpu_kernels import CODES, MASKS, RAN


@pytest.fixture(autouse=True)
def nothing_ran():
    """`RAN` lists the ops of one test, whichever test ran before it in the process."""
    RAN.clear()
    CODES.clear()
    MASKS.clear()

from __future__ import annotations

import pytest
from oracle.plugin import oracle
from plan import build

__all__ = ["oracle"]


@pytest.fixture(scope="session")
def emulated():
    return build.load_or_skip("_emulated")

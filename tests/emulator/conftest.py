from __future__ import annotations

import pytest
from plan import build


@pytest.fixture(scope="session")
def emulated():
    return build.load_or_skip("_emulated")

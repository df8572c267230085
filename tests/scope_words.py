"""The word of `use_precision` that is in force, for tests that enter and leave it."""

from __future__ import annotations

import pytest

from convt_ext.precision import requested


def word() -> str | None:
    """What a call without a keyword would get."""
    return requested(None)


@pytest.fixture(autouse=True)
def nothing_stays_in_force():
    assert word() is None
    yield
    assert word() is None

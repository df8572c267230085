"""The active precision of `use_precision`, for tests that enter and exit it."""

from __future__ import annotations

import pytest

from convt_ext.precision import requested


def word() -> str | None:
    """Returns the precision of a call without a keyword."""
    return requested(None)


@pytest.fixture(autouse=True)
def nothing_stays_in_force():
    assert word() is None
    yield
    assert word() is None

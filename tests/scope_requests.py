"""The request of the active `flags`, for tests that enter and exit them."""

from __future__ import annotations

import pytest

from convt_ext.dispatch import scopes


def requested() -> str | None:
    """Returns the request of a call without keywords."""
    return scopes.now().requested


@pytest.fixture(autouse=True)
def nothing_stays_in_force():
    assert requested() is None
    yield
    assert requested() is None

"""Fixtures for the tests of this folder."""

from oracle.plugin import oracle
from plan.profile import one_thread

__all__ = ["one_thread", "oracle"]

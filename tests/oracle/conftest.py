"""The fixture `oracle` for the tests of this folder."""

from oracle.plugin import oracle

__all__ = ["oracle"]

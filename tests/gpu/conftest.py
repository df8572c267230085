"""Fixtures of the GPU tests."""

from oracle.plugin import oracle

__all__ = ["oracle"]

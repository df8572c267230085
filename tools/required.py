"""Ends a program with an error message. Called by the tools that check wheels, releases and reports."""

from __future__ import annotations


def require(condition: object, message: str) -> None:
    """Exits with the message unless the condition is true."""
    if not condition:
        raise SystemExit(f"convt_ext: {message}")

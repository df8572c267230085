"""The documentation inside the code: every example runs, and every public name has what a reader needs."""

from __future__ import annotations

import doctest
import importlib

import pytest

import convt_ext

MODULES = [
    *("_extension", "_optional", "arguments", "convert", "explain", "functional", "modules", "precision"),
    "reference",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    result = doctest.testmod(importlib.import_module(f"convt_ext.{name}"))
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("name", [name for name in convt_ext.__all__ if not name.startswith("__")])
def test_public_names_are_documented(name):
    text = getattr(convt_ext, name).__doc__
    assert text
    if name not in (
        "Explanation",
        "Report",
        "build_info",
        "is_available",
    ):  # plain answers, without an argument to get wrong
        assert "Raises:" in text
    if name not in ("Explanation", "Report"):
        assert "Example:" in text


def test_what_is_public():
    assert set(convt_ext.__all__) == {
        "conv_transpose2d", "ConvTranspose2d", "convert", "use_precision", "tune", "use_tuning", "explain",
        "Explanation", "is_available", "build_info", "enable", "disable", "enabled", "report",
        "Report", "LazyConvTranspose2d", "revert", "__version__",
    }  # fmt: skip

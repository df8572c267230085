"""Docstrings: every example runs, and every public name documents its errors and has an example."""

from __future__ import annotations

import doctest
import importlib

import pytest

import convt_ext

MODULES = [
    *(
        "_extension",
        "_optional",
        "arguments",
        "convert",
        "enabling",
        "explain",
        "freezing",
        "functional",
        "modules",
    ),
    *("reference", "report", "request", "tuning.measuring"),
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    result = doctest.testmod(importlib.import_module(f"convt_ext.{name}"))
    assert result.attempted > 0
    assert result.failed == 0


# Plain answers, without an argument to get wrong.
ANSWERS = {"Explanation", "Report", "build_info", "is_available"}

PUBLIC = [(convt_ext, name) for name in convt_ext.__all__ if not name.startswith("__") and name != "tuning"]
PUBLIC += [(convt_ext.tuning, name) for name in convt_ext.tuning.__all__]


@pytest.mark.parametrize(("module", "name"), PUBLIC, ids=lambda value: getattr(value, "__name__", value))
def test_public_names_are_documented(module, name):
    text = getattr(module, name).__doc__
    assert text
    if name not in ANSWERS:
        assert "Raises:" in text
    if name not in ("Explanation", "Report"):
        assert "Example:" in text


def test_what_is_public():
    assert set(convt_ext.__all__) == {
        "conv_transpose1d", "ConvTranspose1d", "LazyConvTranspose1d",
        "conv_transpose2d", "ConvTranspose2d", "convert", "flags", "use_precision", "tuning", "explain",
        "Explanation", "is_available", "build_info", "enable", "disable", "enabled", "report",
        "Report", "LazyConvTranspose2d", "revert", "freeze",
        "unfreeze", "__version__",
    }  # fmt: skip
    assert set(convt_ext.tuning.__all__) == {"tune", "load", "unload", "replay", "agree", "merge"}

"""Docstrings and documents: their code runs, public names document their errors, and numbers are the code's."""

from __future__ import annotations

import doctest
import importlib
import re
from contextlib import suppress
from pathlib import Path

import pytest

import convt_ext
from convt_ext.compile import costs
from convt_ext.tuning import benchmark
from convt_ext.tuning.choices import ESTIMATED, Choice

MODULES = [
    *("convert", "enabling", "explain", "freezing", "functional", "modules", "report", "bench.timing"),
    *("check.reference", "dispatch.arguments", "dispatch.request", "environment._extension", "environment._optional"),
    "tuning.measuring",
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
        "conv_transpose3d", "ConvTranspose3d", "LazyConvTranspose3d",
        "conv_transpose2d", "ConvTranspose2d", "convert", "flags", "use_precision", "tuning", "explain",
        "Explanation", "is_available", "build_info", "enable", "disable", "enabled", "report",
        "Report", "LazyConvTranspose2d", "revert", "freeze",
        "unfreeze", "__version__",
    }  # fmt: skip
    assert set(convt_ext.tuning.__all__) == {"tune", "load", "unload", "replay", "agree", "merge"}


# ---- the documents

CHECKOUT = Path(__file__).resolve().parents[2]


def text_of(name):
    path = CHECKOUT / name
    if not path.is_file():
        pytest.skip("a source distribution lacks it")
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["README.md", "docs/guide.md"])
def test_its_code_runs(name):
    """One block after the other, as it stands."""
    blocks = re.findall(r"^```python\n(.*?)^```", text_of(name), re.MULTILINE | re.DOTALL)
    assert len(blocks) > 1
    names: dict[str, object] = {}
    try:
        for block in blocks:
            exec(compile(block, name, "exec"), names)
    finally:
        with suppress(RuntimeError):  # settings that a block enabled and did not disable
            convt_ext.disable()


def test_the_guide_states_when_a_shape_is_benchmarked_and_the_margins_of_compiled_programs():
    guide = " ".join(text_of("docs/guide.md").split())
    pattern = r"after about ([\d,]+) calls of 50 µs, ([\d,]+) of 500 µs or ([\d,]+) of 5 ms"
    (stated,) = re.findall(pattern, guide)
    for calls, us in zip(stated, (50.0, 500.0, 5000.0), strict=True):
        expected = benchmark.calls_before(Choice(False, 0, us, us, ESTIMATED))
        assert int(calls.replace(",", "")) == pytest.approx(expected, rel=0.02)
    pattern = r"unless convt_ext is (\d+) % faster by measured times, or (\d+) % by the cost model"
    (stated,) = re.findall(pattern, guide)
    assert [1 + int(percent) / 100 for percent in stated] == [costs.MARGIN_OF_MEASURED, costs.MARGIN]

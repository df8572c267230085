"""The documents: their Python code runs as it stands, one block after the other, and their numbers are the code's."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest

import convt_ext
from convt_ext.compile import costs
from convt_ext.tuning import benchmark
from convt_ext.tuning.choices import ESTIMATED, Choice

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["README.md", "docs/guide.md"])
def test_its_code_runs(name):
    if not (CHECKOUT / name).is_file():
        pytest.skip("a source distribution lacks it")
    blocks = re.findall(
        r"^```python\n(.*?)^```", (CHECKOUT / name).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert len(blocks) > 1
    names: dict[str, object] = {}
    try:
        for block in blocks:
            exec(compile(block, name, "exec"), names)
    finally:
        with suppress(RuntimeError):  # settings that a block enabled and did not disable
            convt_ext.disable()


def guide():
    path = CHECKOUT / "docs/guide.md"
    if not path.is_file():
        pytest.skip("a source distribution lacks it")
    return " ".join(path.read_text(encoding="utf-8").split())


def test_the_guide_states_when_a_shape_is_benchmarked():
    pattern = r"after about ([\d,]+) calls of 50 µs, ([\d,]+) of 500 µs or ([\d,]+) of 5 ms"
    (stated,) = re.findall(pattern, guide())
    for calls, us in zip(stated, (50.0, 500.0, 5000.0), strict=True):
        expected = benchmark.calls_before(Choice(False, 0, us, us, ESTIMATED))
        assert int(calls.replace(",", "")) == pytest.approx(expected, rel=0.02)


def test_the_guide_states_the_margins_of_compiled_programs():
    pattern = r"unless convt_ext is (\d+) % faster by measured times, or (\d+) % by the cost model"
    (stated,) = re.findall(pattern, guide())
    assert [1 + int(percent) / 100 for percent in stated] == [costs.MARGIN_OF_MEASURED, costs.MARGIN]

"""The Python code of README.md and of the guide runs as it stands, one block after the other."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest

import convt_ext

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
        with suppress(RuntimeError):  # what a block enabled and did not disable
            convt_ext.disable()

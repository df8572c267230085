"""The result file: one JSON object with the machine, the sources that were measured, and the rows.

Written after every row, so that an interrupted run keeps what it measured; ``complete`` says which it is.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import convt_ext
from convt_ext.bench.runner import Row, Skipped


def without_folder(argv: Sequence[str]) -> list[str]:
    """The words of a run; behind ``--out`` the base name alone, without the folder that a machine had.

    >>> without_folder(["bench", "--out", "/tmp/run.json", "--out=/tmp/run.json", "--csv", "benchmarks/layers.csv"])
    ['bench', '--out', 'run.json', '--out=run.json', '--csv', 'benchmarks/layers.csv']
    """
    words: list[str] = []
    for word in argv:
        if words and words[-1] == "--out":
            word = Path(word).name
        elif word.startswith("--out="):
            word = f"--out={Path(word).name}"
        words.append(word)
    return words


def describe_run(gpu: str, argv: Sequence[str]) -> dict[str, Any]:
    """The fields of a result file that identify a run."""
    return {
        "gpu": gpu,
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "sources": convt_ext.build_info()["sources"],
        "argv": without_folder(argv),
    }


def default_path(gpu: str, date: str) -> Path:
    """``benchmarks/results/<gpu>-<date>.json`` below the current folder."""
    name = re.sub(r"[^a-z0-9]+", "-", f"{gpu} {date[:19]}".lower()).strip("-")
    return Path("benchmarks") / "results" / f"{name}.json"


class ResultFile:
    """Rows of one run on their way to a file."""

    def __init__(self, path: Path, description: dict[str, Any]) -> None:
        self.path = path
        self.rows: list[Row] = []
        self.skipped: list[Skipped] = []
        self._description = description
        self._texts: list[str] = []  # of the rows, each made once: a file of many is written as often
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, item: Row | Skipped) -> None:
        if isinstance(item, Skipped):
            self.skipped.append(item)
        else:
            self.rows.append(item)
            self._texts.append(_json(item).replace("\n", "\n  "))
        self.write(complete=False)

    def write(self, *, complete: bool) -> None:
        """Replaces the file in one step: a reader never sees half of it."""
        skipped = [dataclasses.asdict(item) for item in self.skipped]
        head = _json({**self._description, "complete": complete, "skipped": skipped})
        rows = "[\n  " + ",\n  ".join(self._texts) + "\n ]" if self._texts else "[]"
        head = head.removesuffix("\n}")
        _replace(self.path, f'{head},\n "rows": {rows}\n}}')


def replace_file(path: Path, content: dict[str, Any]) -> None:
    """Writes a result file in one step."""
    _replace(path, _json(content))


def _json(content: dict[str, Any]) -> str:
    text = json.dumps(content, indent=1, allow_nan=False)
    # A row's lists of two numbers belong on one line: the files are read by people and diffed.
    return re.sub(r"\[\s+(\d+),\s+(\d+)\s+\]", r"[\1, \2]", text)


def _replace(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".part")
    partial.write_text(text + "\n", encoding="utf-8")
    os.replace(partial, path)

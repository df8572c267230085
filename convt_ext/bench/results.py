"""The result file: one JSON object with the machine, the digest of the measured sources, and the rows.

Written after every row, so that an interrupted run keeps its rows; ``complete`` is False in such a file.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import convt_ext
from convt_ext.bench.runner import Row, Skipped
from convt_ext.tuning.files import replace_text


def without_folder(argv: Sequence[str]) -> list[str]:
    """Returns the words of a run; ``--out`` keeps only the base name, without the machine's folder.

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
    return {
        "gpu": gpu,
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "sources": convt_ext.build_info()["sources"],
        "argv": without_folder(argv),
    }


def default_path(gpu: str, date: str) -> Path:
    """Returns ``benchmarks/results/<gpu>-<date>.json`` below the current folder."""
    name = re.sub(r"[^a-z0-9]+", "-", f"{gpu} {date[:19]}".lower()).strip("-")
    return Path("benchmarks") / "results" / f"{name}.json"


class ResultFile:
    """The rows of one run, written to a file."""

    def __init__(self, path: Path, description: dict[str, Any]) -> None:
        self.path = path
        self.rows: list[Row] = []
        self.skipped: list[Skipped] = []
        self._description = description
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, item: Row | Skipped) -> None:
        if isinstance(item, Skipped):
            self.skipped.append(item)
        else:
            self.rows.append(item)
        self.write(complete=False)

    def write(self, *, complete: bool) -> None:
        """Replaces the file atomically: a reader never sees a part of it."""
        skipped = [dataclasses.asdict(item) for item in self.skipped]
        replace_file(self.path, {**self._description, "complete": complete, "skipped": skipped, "rows": self.rows})


def replace_file(path: Path, content: dict[str, Any]) -> None:
    text = json.dumps(content, indent=1, allow_nan=False)
    # Lists of numbers stay on one line, because people read and diff the files.
    text = re.sub(r"\[\n[\d,\s]+\]", lambda found: json.dumps(json.loads(found[0])), text)
    replace_text(path, f"{text}\n")

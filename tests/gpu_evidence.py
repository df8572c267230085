"""The record of a GPU test run, and whether it still speaks for this source tree.

The machine that runs CI has no GPU. So a run on one that has writes `tests/gpu_report.json`, which
says for which sources (their digest), on what and with which outcome every GPU test ran; the report
is committed, and `status` tells whether it is about the tree as it is now.

Called by conftest.py (writes), tools/gpu_status.py and packaging/test_gpu_report.py (read). Knows
neither torch nor pytest, so that it can be tested anywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Report = dict[str, Any]

KEYS = ("sources", "gpu", "torch", "cuda", "driver", "date", "tests")
OUTCOMES = ("passed", "failed", "skipped")

# Two shards are one run only when all of these agree.
_SAME_RUN = ("sources", "gpu", "torch", "cuda", "driver")


def read(path: str | Path) -> Report | None:
    """The report in `path`, or None when there is none.

    Raises:
        ValueError: the file is no report.
    """
    file = Path(path)
    if not file.is_file():
        return None
    try:
        report = json.loads(file.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{file.name} is not JSON: {error}") from None
    missing = [key for key in KEYS if not isinstance(report, dict) or key not in report]
    if missing:
        raise ValueError(f"{file.name} is not a GPU report: it has no {missing[0]}")
    return report


def write(path: str | Path, report: Report) -> None:
    """Writes the report with its tests sorted: a later run differs in its diff only where it differs."""
    ordered = {**report, "tests": dict(sorted(report["tests"].items()))}
    Path(path).write_text(json.dumps(ordered, indent=1) + "\n")


def merge(earlier: Report | None, shard: Report) -> Report:
    """Adds a shard to what other shards of the same sources, GPU and torch have found."""
    if earlier is None or any(earlier[key] != shard[key] for key in _SAME_RUN):
        return shard
    return {**shard, "tests": {**earlier["tests"], **shard["tests"]}}


def parse_shard(text: str) -> tuple[int, int]:
    """ "2/3" as (2, 3).

    Raises:
        ValueError: it is not INDEX/COUNT with 1 <= INDEX <= COUNT.
    """
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ValueError(f"a shard is INDEX/COUNT, such as 1/2, but got {text!r}")
    return int(match[1]), int(match[2])


def deal(seconds: Sequence[int], count: int) -> list[int]:
    """The shard, 0 to count - 1, of each test that takes so long: all shards take about as long as each other.

    >>> deal([1, 1, 4, 1, 1], 2)
    [1, 1, 0, 1, 1]
    """
    shards, taken = [0] * len(seconds), [0] * count
    for test in sorted(range(len(seconds)), key=lambda test: -seconds[test]):
        shards[test] = min(range(count), key=taken.__getitem__)
        taken[shards[test]] += seconds[test]
    return shards


def status(report: Report | None, digest: str, collected: Iterable[str] | None) -> str:
    """`current`, or `stale: ` and why.

    Args:
        report: what `read` returned.
        digest: the digest of the source tree.
        collected: the ids of the GPU tests that the tree has; None leaves that comparison out.
    """
    if report is None:
        return "stale: there is no report"
    if report["sources"] != digest:
        return f"stale: the report is about sources {report['sources']}, the tree is {digest}"
    tests = report["tests"]
    failed = sorted(name for name, test in tests.items() if test["outcome"] == "failed")
    if failed:
        return f"stale: {len(failed)} of {len(tests)} tests failed, first {failed[0]}"
    if not any(test["outcome"] == "passed" for test in tests.values()):
        return "stale: no test of the report passed"
    if collected is not None:
        return _compare_lists(set(tests), set(collected)) or "current"
    return "current"


def _compare_lists(reported: set[str], collected: set[str]) -> str | None:
    missing, extra = sorted(collected - reported), sorted(reported - collected)
    if missing:
        return f"stale: {len(missing)} of {len(collected)} tests are not in the report, first {missing[0]}"
    if extra:
        return f"stale: {len(extra)} tests of the report do not exist, first {extra[0]}"
    return None

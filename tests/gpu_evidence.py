"""The record of a GPU test run, and whether it still speaks for this source tree.

The machine that runs CI has no GPU. So a run on one that has writes `tests/gpu_report.json`, which
says for which sources (their digest), on what and with which outcome every GPU test ran; the report
is committed, and `status` tells whether it is about the tree as it is now.

Called by gpu_recorder.py and tools/gpu_shards.py (write), tools/gpu_status.py and packaging/test_gpu_report.py (read).
Knows neither torch nor pytest, so that it can be tested anywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Report = dict[str, Any]

KEYS = ("sources", "gpu", "gpus", "torch", "cuda", "driver", "date", "results", "conflicts", "tests")
OUTCOMES = ("skipped", "passed", "failed")  # of two runs of a test the later word in this list counts
TWO_GPUS = "needs two GPUs"  # the reason of every skip for want of a second GPU, and of no other

# Two shards are one run only when all of these agree. On how many GPUs a part ran is no such thing.
_SAME_RUN = ("sources", "gpu", "torch", "cuda", "driver")


def read(path: str | Path) -> Report | None:
    """The report in `path`, or None when there is none. One of earlier sources may lack keys that came later.

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
    missing = [key for key in ("sources", "tests") if not isinstance(report, dict) or key not in report]
    if missing:
        raise ValueError(f"{file.name} is not a GPU report: it has no {missing[0]}")
    return report


def write(path: str | Path, report: Report) -> None:
    """Writes the report with its names sorted: a later run differs in its diff only where it differs."""
    ordered = {key: dict(sorted(value.items())) if isinstance(value, dict) else value for key, value in report.items()}
    Path(path).write_text(json.dumps(ordered, indent=1) + "\n")


def merge(earlier: Report | None, shard: Report) -> Report:
    """Adds a shard to what other shards of the same sources, GPU and torch have found.

    A test that has failed once stays failed, with its reason, whatever a repetition finds; one that has passed is not
    made a skip by a part that ran on fewer GPUs. A result that differs from the same one of another part is a conflict,
    which stays as well. Only a whole new run, which joins nothing, begins anew.
    """
    if earlier is None or any(earlier.get(key) != shard[key] for key in _SAME_RUN):
        return shard
    tests = dict(earlier["tests"])
    for name, test in shard["tests"].items():
        if name not in tests or _rank(test) > _rank(tests[name]):
            tests[name] = test
    results, conflicts = dict(earlier["results"]), {**earlier["conflicts"], **shard["conflicts"]}
    for name, value in shard["results"].items():
        if results.setdefault(name, value) != value:
            conflicts.setdefault(name, [results[name], value])
    gpus = max(earlier["gpus"], shard["gpus"])
    return {**shard, "gpus": gpus, "results": results, "conflicts": conflicts, "tests": tests}


def _rank(test: dict[str, Any]) -> int:
    return OUTCOMES.index(test["outcome"])


def add_result(results: dict[str, str], name: str, hexdigest: str) -> None:
    """Notes the digest of a result under its name.

    Raises:
        ValueError: it is no digest, or the name has another one already.
    """
    if re.fullmatch(r"[0-9a-f]{8,128}", hexdigest) is None:
        raise ValueError(f"hexdigest: got {hexdigest!r} for {name}, expected the digits of hashlib's hexdigest()")
    if results.setdefault(name, hexdigest) != hexdigest:
        raise ValueError(f"name: {name} has the digest {results[name]} already, got {hexdigest}: two results, one name")


def unfinished(path: str | Path) -> Path:
    """Where a run that writes to `path` notes the test that is running, for the case that its process dies of it."""
    return Path(path).with_name(f".{Path(path).name}.unfinished")


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
    """One line: what the report is worth for this tree.

    - `current`: it is about this tree, every test ran or says why it could not, and none failed.
    - `incomplete: ` and why: the same, but tests wait for a second GPU.
    - `stale: ` and why: there is none, or it is about other sources.
    - `failed: ` and why: it is about this tree and speaks against it, or leaves tests out.

    Args:
        report: what `read` returned.
        digest: the digest of the source tree.
        collected: the ids of the GPU tests that the tree has; None leaves that comparison out.
    """
    if report is None:
        return "stale: there is no report"
    if report["sources"] != digest:
        return f"stale: the report is about sources {report['sources']}, the tree is {digest}"
    missing = [key for key in KEYS if key not in report]
    if missing:
        return f"failed: the report has no {missing[0]}"
    tests = report["tests"]
    found = failures(report)
    if found:
        return f"failed: {len(found)} failure{'s' if len(found) > 1 else ''}, first {found[0]}"
    if not any(test["outcome"] == "passed" for test in tests.values()):
        return "failed: no test of the report passed"
    differing = _compare_lists(set(tests), set(tests if collected is None else collected))
    if differing:
        return f"failed: {differing}"
    waiting = [name for name, test in tests.items() if test["outcome"] == "skipped" and test["reason"] == TWO_GPUS]
    if waiting:
        return f"incomplete: {len(waiting)} tests were skipped because they need two GPUs, first {min(waiting)}"
    return "current"


def failures(report: Report) -> list[str]:
    """What speaks against the sources: tests that failed and results that were not the same twice, each with why."""
    failed = [f"{name}: {test['reason']}" for name, test in report["tests"].items() if test["outcome"] == "failed"]
    twice = [f"{name}: {one} in one part and {other} in another" for name, (one, other) in report["conflicts"].items()]
    return sorted(failed) + sorted(twice)


def difference(one: Report, other: Report) -> str | None:
    """The first thing in which two reports, of two GPU models say, differ: sources, the list of tests, or a result.

    None where they have the same tests, and every result has the same bits.
    """
    if one["sources"] != other["sources"]:
        return f"sources: {one['sources']} and {other['sources']}"
    differing = _compare_lists(set(one["tests"]), set(other["tests"]))
    if differing:
        return f"tests: {differing}"
    mine, theirs = one.get("results", {}), other.get("results", {})
    if not mine or not theirs:
        return "results: a report holds none"
    for name in sorted({*mine, *theirs}):
        if mine.get(name) != theirs.get(name):
            return f"result {name}: {mine.get(name, 'none')} and {theirs.get(name, 'none')}"
    return None


def _compare_lists(reported: set[str], expected: set[str]) -> str | None:
    missing, extra = sorted(expected - reported), sorted(reported - expected)
    if missing:
        return f"{len(missing)} of {len(expected)} tests are not in the report, first {missing[0]}"
    if extra:
        return f"{len(extra)} tests of the report do not exist, first {extra[0]}"
    return None

"""The record of a GPU test run, and whether it applies to this source tree.

The machine that runs CI has no GPU. So a run on another machine writes `tests/gpu_report.json`, which contains the
digest of the sources, the machine and the outcome of the GPU tests; the report is committed, and `status` reports
whether it applies to the current tree. It lists the tests that did not pass. For each test file it contains the number
of tests and a digest of their names, which `status` compares with the tests of the tree.

Called by gpu_recorder.py and tools/gpu_shards.py (write), tools/gpu_status.py and packaging/test_gpu_report.py (read).
Independent of torch and pytest, so that it can be tested anywhere.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Report = dict[str, Any]

KEYS = ("sources", "gpu", "gpus", "torch", "cuda", "driver", "date", "results", "conflicts", "tests", "others")
OUTCOMES = ("skipped", "passed", "failed")
TWO_GPUS = "needs two GPUs"  # the reason of every skip for want of a second GPU, and of no other


def read(path: str | Path) -> Report | None:
    """Returns the report in `path`, or None without one. Reports of earlier sources may lack newer keys.

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
    """Writes the report with sorted names, so that a diff of two runs shows only differences."""
    ordered = {key: dict(sorted(value.items())) if isinstance(value, dict) else value for key, value in report.items()}
    Path(path).write_text(json.dumps(ordered, indent=1) + "\n")


def join(shards: Sequence[Report]) -> Report:
    """Makes the report of a run from the files of its shards, which contain the outcome of every test.

    If a shard's process died within a test, two files contain this test, and the failure counts. A result that two
    shards give different digests is a conflict.
    """
    tests: dict[str, dict[str, str]] = {}
    results: dict[str, str] = {}
    conflicts: dict[str, list[str]] = {}
    for shard in shards:
        for name, test in shard["tests"].items():
            if test["outcome"] == "failed" or name not in tests:
                tests[name] = test
        for name, value in shard["results"].items():
            if results.setdefault(name, value) != value:
                conflicts.setdefault(name, [results[name], value])
    others = {name: test for name, test in tests.items() if test["outcome"] != "passed"}
    found = {"results": results, "conflicts": conflicts, "tests": digests(tests), "others": others}
    return {**shards[-1], "gpus": max(shard["gpus"] for shard in shards), **found}


def digests(names: Iterable[str]) -> dict[str, str]:
    """Returns the number of tests and the digest of their names, by file.

    >>> digests(["a.py::one", "a.py::two", "b.py::one"]).keys()
    dict_keys(['a.py', 'b.py'])
    """
    files: dict[str, list[str]] = {}
    for name in names:
        files.setdefault(name.partition("::")[0], []).append(name)
    return {
        file: f"{len(found)} {hashlib.sha256(chr(10).join(sorted(found)).encode()).hexdigest()[:16]}"
        for file, found in files.items()
    }


def num_tests(report: Report) -> int:
    """Returns the number of tests that ran, with any outcome."""
    return sum(_number(text) for text in report["tests"].values())


def _number(text: str) -> int:
    return int(text.partition(" ")[0])


def add_result(results: dict[str, str], name: str, hexdigest: str) -> None:
    """Records the digest of a result under its name.

    Raises:
        ValueError: it is no digest, or the name has another one already.
    """
    if re.fullmatch(r"[0-9a-f]{8,128}", hexdigest) is None:
        raise ValueError(f"hexdigest: got {hexdigest!r} for {name}, expected the digits of hashlib's hexdigest()")
    if results.setdefault(name, hexdigest) != hexdigest:
        raise ValueError(f"name: {name} has the digest {results[name]} already, got {hexdigest}: two results, one name")


def unfinished(path: str | Path) -> Path:
    """Returns the path where a run records the current test, in case the process dies in it."""
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
    """Returns the shard, 0 to count - 1, of each test, so that all shards take about the same time.

    >>> deal([1, 1, 4, 1, 1], 2)
    [1, 1, 0, 1, 1]
    """
    shards, taken = [0] * len(seconds), [0] * count
    for test in sorted(range(len(seconds)), key=lambda test: -seconds[test]):
        shards[test] = min(range(count), key=taken.__getitem__)
        taken[shards[test]] += seconds[test]
    return shards


def status(report: Report | None, digest: str, collected: Iterable[str] | None) -> str:
    """Returns the status of the report for this tree, in one line.

    - `current`: it applies to this tree, every test ran or was skipped with a reason, and none failed.
    - `incomplete: ` and why: as `current`, but tests need a second GPU.
    - `stale: ` and why: there is no report, or it is about other sources.
    - `failed: ` and why: it applies to this tree and contains failures, or lacks tests.

    Args:
        report: what `read` returned.
        digest: the digest of the source tree.
        collected: the ids of the GPU tests of the tree; None skips that comparison.
    """
    if report is None:
        return "stale: there is no report"
    if report["sources"] != digest:
        return f"stale: the report is about sources {report['sources']}, the tree is {digest}"
    missing = [key for key in KEYS if key not in report]
    if missing:
        return f"failed: the report has no {missing[0]}"
    found = failures(report)
    if found:
        return f"failed: {len(found)} failure{'s' if len(found) > 1 else ''}, first {found[0]}"
    if num_tests(report) == len(report["others"]):
        return "failed: no test of the report passed"
    differing = None if collected is None else _difference_of_lists(report["tests"], digests(collected))
    if differing:
        return f"failed: {differing}"
    waiting = [name for name, test in report["others"].items() if test["reason"] == TWO_GPUS]
    if waiting:
        return f"incomplete: {len(waiting)} tests were skipped because they need two GPUs, first {min(waiting)}"
    return "current"


def failures(report: Report) -> list[str]:
    """Returns failed tests and results that were not reproducible, each with the reason."""
    failed = [f"{name}: {test['reason']}" for name, test in report["others"].items() if test["outcome"] == "failed"]
    twice = [f"{name}: {one} in one part and {other} in another" for name, (one, other) in report["conflicts"].items()]
    return sorted(failed) + sorted(twice)


def difference(one: Report, other: Report) -> str | None:
    """Returns the first difference of two reports, for example of two GPU models: sources, tests, or a result.

    None if they have the same tests, and every result has the same bits.
    """
    if one["sources"] != other["sources"]:
        return f"sources: {one['sources']} and {other['sources']}"
    differing = _difference_of_lists(one["tests"], other["tests"])
    if differing:
        return f"tests: {differing}"
    mine, theirs = one.get("results", {}), other.get("results", {})
    if not mine or not theirs:
        return "results: a report holds none"
    for name in sorted({*mine, *theirs}):
        if mine.get(name) != theirs.get(name):
            return f"result {name}: {mine.get(name, 'none')} and {theirs.get(name, 'none')}"
    return None


def _difference_of_lists(reported: dict[str, str], expected: dict[str, str]) -> str | None:
    for file in sorted({*reported, *expected}):
        if reported.get(file) != expected.get(file):
            have, want = (_number(one.get(file, "0")) for one in (reported, expected))
            return f"{file} has {want} tests, and the report is about {have}{' others' if have == want else ''}"
    return None

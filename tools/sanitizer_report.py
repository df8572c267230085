"""Reads and writes the report of compute-sanitizer, and determines whether it is valid for this tree.

tools/sanitize.py writes it to tests/sanitizer_report.json, complete or tool by tool; tools/gpu_status.py reads it.
Needs neither torch nor a GPU.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import records

Report = dict[str, Any]

PATH = records.CHECKOUT / "tests/sanitizer_report.json"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
KEYS = ("sources", "gpu", "torch", "cuda", "driver", "date", "planted", "tools")

# The sources that a result depends on: the binary, its build and the workload. The workload calls the raw ops, so the
# Python package and the other tests, which change more often, do not affect it.
JUDGED = (
    "kernels", "setup.py", "tools/sanitize.py", "tools/sanitize_workload.py", "tests/cases.py", "tests/raw_ops.py",
)  # fmt: skip

# Results of two runs are merged only if these values are equal.
_SAME_RUN = ("sources", "gpu", "torch", "cuda", "driver")


def digest() -> str:
    """Returns the digest of the sources in `JUDGED`."""
    return records.part_digest(JUDGED)


def read(path: Path) -> Report | None:
    """Returns the report in `path`, or None if the file does not exist.

    Raises:
        ValueError: the file is not a report.
    """
    if not path.is_file():
        return None
    try:
        report = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path.name} is not JSON: {error}") from None
    missing = [key for key in KEYS if not isinstance(report, dict) or key not in report]
    if missing:
        raise ValueError(f"{path.name} is not a report of the sanitizers: it has no {missing[0]}")
    return report


def write(path: Path, report: Report) -> None:
    path.write_text(json.dumps(report, indent=1) + "\n")


def merge(earlier: Report | None, part: Report) -> Report:
    """Adds the results of tools to an earlier report of the same sources on the same machine.

    A failure is kept whatever a repetition finds. A run of all problems replaces one of the short list, and each of
    them replaces one that was stopped.
    """
    if earlier is None or any(earlier[key] != part[key] for key in _SAME_RUN):
        return part
    tools = dict(earlier["tools"])
    for name, result in part["tools"].items():
        if name not in tools or (not is_failure(tools[name]) and _rank(result) >= _rank(tools[name])):
            tools[name] = result
    return {**part, "planted": earlier["planted"] and part["planted"], "tools": tools}


def is_failure(result: dict[str, Any]) -> bool:
    """Returns whether a tool found errors, failed or saw no launch. A tool stopped by the time limit is no failure."""
    return not was_stopped(result) and (result["errors"] != 0 or result["status"] != 0 or result["launches"] == 0)


def was_stopped(result: dict[str, Any]) -> bool:
    return result["status"] is None


def _rank(result: dict[str, Any]) -> int:
    return 3 if is_failure(result) else 0 if was_stopped(result) else 1 if result["short"] else 2


def status(report: Report | None, digest: str) -> str:
    """Returns `current`, or `stale: `, `failed: ` or `incomplete: ` and the reason, like tests/gpu_evidence.py."""
    if report is None:
        return "stale: there is no report"
    if report["sources"] != digest:
        return f"stale: the report is about sources {report['sources']}, but the tree is {digest}"
    if not report["planted"]:
        return "failed: a planted mistake was not reported, so the other results are invalid"
    tools = report["tools"]
    for name, result in tools.items():
        if is_failure(result):
            found = f"errors {result['errors']}, launches {result['launches']}, status {result['status']}"
            return f"failed: {name}: {found}"
    missing = [name for name in TOOLS if name not in tools or was_stopped(tools[name])]
    if missing:
        return f"incomplete: {', '.join(missing)} did not run to the end"
    # racecheck is hundreds of times slower than a launch, so it always runs the short list.
    short = [name for name in TOOLS if tools[name]["short"] and name != "racecheck"]
    return f"incomplete: {', '.join(short)} ran the short list of problems" if short else "current"

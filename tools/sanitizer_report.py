"""The record of compute-sanitizer's tools, and what it is worth for this source tree.

tools/sanitize.py writes it to tests/sanitizer_report.json, all at once or tool by tool; tools/gpu_status.py reads it.
Knows neither torch nor a GPU.
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

# What the tools judge: the binary's code and how it is compiled, and the launches that are made under them. The
# workload calls the raw ops: neither the Python package nor the other tests, which change far more often, take part.
JUDGED = (
    *("kernels", "setup.py", "tools/sanitize.py", "tools/sanitize_workload.py"),
    *("tests/cases.py", "tests/raw_ops.py"),
)

# Parts are one run only when all of these agree.
_SAME_RUN = ("sources", "gpu", "torch", "cuda", "driver")


def digest() -> str:
    """The digest of what the tools judge in this tree."""
    return records.part_digest(JUDGED)


def read(path: Path) -> Report | None:
    """The report in `path`, or None when there is none.

    Raises:
        ValueError: the file is no report.
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
    """Adds tools to what a run of the same sources on the same machine has found.

    A tool that has found an error keeps it, whatever a repetition finds; all problems count for more than the short
    list of them, and anything for more than a tool that was stopped.
    """
    if earlier is None or any(earlier[key] != part[key] for key in _SAME_RUN):
        return part
    tools = dict(earlier["tools"])
    for name, result in part["tools"].items():
        if name not in tools or (not is_failure(tools[name]) and _rank(result) >= _rank(tools[name])):
            tools[name] = result
    return {**part, "planted": earlier["planted"] and part["planted"], "tools": tools}


def is_failure(result: dict[str, Any]) -> bool:
    """Whether a tool found something, broke off, or saw no launch. One that was stopped for its time is none."""
    return not was_stopped(result) and (result["errors"] != 0 or result["status"] != 0 or result["launches"] == 0)


def was_stopped(result: dict[str, Any]) -> bool:
    return result["status"] is None


def _rank(result: dict[str, Any]) -> int:
    return 3 if is_failure(result) else 0 if was_stopped(result) else 1 if result["short"] else 2


def status(report: Report | None, digest: str) -> str:
    """`current`, or `stale: `, `failed: ` or `incomplete: ` and why, as tests/gpu_evidence.py has them."""
    if report is None:
        return "stale: there is no report"
    if report["sources"] != digest:
        return f"stale: the report is about kernels and a workload {report['sources']}, the tree has {digest}"
    if not report["planted"]:
        return "failed: a planted mistake was not reported, so the rest means nothing"
    tools = report["tools"]
    for name, result in tools.items():
        if is_failure(result):
            found = f"errors {result['errors']}, launches {result['launches']}, status {result['status']}"
            return f"failed: {name}: {found}"
    missing = [name for name in TOOLS if name not in tools or was_stopped(tools[name])]
    if missing:
        return f"incomplete: {', '.join(missing)} did not run to the end"
    # racecheck is hundreds of times slower than a launch: it has the short list in any case.
    short = [name for name in TOOLS if tools[name]["short"] and name != "racecheck"]
    return f"incomplete: {', '.join(short)} had the short list of problems" if short else "current"

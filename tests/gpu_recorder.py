"""Collects the outcome of every GPU test of a shard, and digests of exact results, and writes them to a file.

A plugin of pytest, which conftest.py registers for `--gpu-report`. tools/gpu_shards.py merges the files of all shards
into one report, which gpu_evidence.py defines.
"""

from __future__ import annotations

import datetime
import time
from pathlib import Path
from typing import Any

import gpu_evidence
import pytest


class GpuRecorder:
    """Writes the file when the session ends.

    Args:
        path: the file.
        facts: sources and machine: the report's keys except the date and the outcomes.
        limit: after this number of seconds the session fails with a partial report.
    """

    def __init__(self, path: Path, facts: dict[str, Any], *, limit: float | None = None):
        self.path = path
        self.facts = facts
        self.limit = limit
        self.tests: dict[str, dict] = {}
        self.results: dict[str, str] = {}
        self.start = time.monotonic()

    def record_result(self, name: str, hexdigest: str) -> None:
        """The function that the fixture record_result returns. Raises ValueError."""
        gpu_evidence.add_result(self.results, name, hexdigest)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        self.expected = {item.nodeid for item in items if item.get_closest_marker("gpu")}

    def pytest_sessionstart(self, session):
        self.session = session

    def pytest_runtest_logstart(self, nodeid):
        """Records the test in advance, because a process that dies or hangs writes no report."""
        if nodeid in self.expected:
            died = {"outcome": "failed", "reason": "the process ended within this test"}
            gpu_evidence.write(gpu_evidence.unfinished(self.path), self._report({nodeid: died}, {}))

    def pytest_runtest_logreport(self, report):
        if report.nodeid not in self.expected:
            return
        entry = self.tests.setdefault(report.nodeid, {"outcome": "passed", "reason": ""})
        # A test fails or skips in any of its three parts: set-up, call, clean-up.
        if report.failed:
            entry["outcome"], entry["reason"] = "failed", _first_line(report)
        elif report.skipped and entry["outcome"] != "failed":
            entry["outcome"], entry["reason"] = "skipped", _skip_reason(report)

    def pytest_runtest_logfinish(self):
        taken = time.monotonic() - self.start
        if self.limit and taken > self.limit and self.session.testscollected > len(self.tests):
            self.session.shouldfail = f"more than {self.limit:.0f} s: raise LIMIT"

    def pytest_sessionfinish(self):
        if not self.tests:
            return
        gpu_evidence.write(self.path, self._report(self.tests, self.results))
        gpu_evidence.unfinished(self.path).unlink(missing_ok=True)

    def _report(self, tests: dict[str, dict], results: dict[str, str]) -> gpu_evidence.Report:
        date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {**self.facts, "date": date, "results": results, "tests": tests}


def _first_line(report) -> str:
    """Returns the first line of the error that ended the test; for chained errors, of the last one."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = report.longreprtext if crash is None else crash.message
    return text.strip().partition("\n")[0][:300]


def _skip_reason(report) -> str:
    if hasattr(report, "wasxfail"):
        return f"expected failure: {report.wasxfail}"
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")[:300]

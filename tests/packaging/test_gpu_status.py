"""CI's checks of the records of GPU runs: which records fail CI, and whether two GPUs computed the same bits."""

from __future__ import annotations

import sys
from pathlib import Path

import gpu_evidence
import pytest

TESTS = ("a", "b")


@pytest.fixture
def tool(tools, monkeypatch, tmp_path):
    """tools/gpu_status.py on reports in a folder; the tree has the GPU tests a and b and the digest 0123."""
    module = tools("gpu_status")
    monkeypatch.setitem(module.SOURCES, "sources_digest", lambda root: "0123")
    monkeypatch.setattr(module, "collect_gpu_tests", lambda: list(TESTS))
    monkeypatch.setattr(module, "sanitizer_status", lambda path: "current")
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["gpu_status.py", "--report", "report.json", *words])
        try:
            module.main()
        except SystemExit as ended:
            if isinstance(ended.code, str):
                print(ended.code)
            return 1
        return 0

    run.module = module
    return run


def write(path="report.json", tests=TESTS, outcome="passed", reason="", **changes):
    entries = {name: {"outcome": "passed", "reason": ""} for name in tests}
    entries[tests[-1]] = {"outcome": outcome, "reason": reason}
    report = {"sources": "0123", "gpu": "NVIDIA H200", "gpus": 2, "torch": "2.11.0", "cuda": "13.0", "driver": "580.1"}
    report |= {"date": "2026-01-01T00:00:00Z", "results": {"one": "0" * 8, "two": "1" * 8}, "tests": entries}
    gpu_evidence.write(path, {**gpu_evidence.join([report]), **changes})


@pytest.mark.parametrize(
    ("changes", "line", "fails", "fails_a_release"),
    [
        ({}, "current", False, False),
        ({"sources": "4567"}, "stale: the report is about", False, True),
        ({"sources": "4567", "outcome": "failed"}, "stale: the report is about", False, True),
        ({"outcome": "skipped", "reason": gpu_evidence.TWO_GPUS}, "incomplete: 1 tests were skipped", False, True),
        ({"outcome": "failed", "reason": "why"}, "failed: 1 failure, first b: why", True, True),
        ({"conflicts": {"one": ["0", "1"]}}, "failed: 1 failure, first one: 0 in one part", True, True),
        ({"tests": ("a",)}, "failed: b has 1 tests, and the report is about 0", True, True),
        ({"tests": ("a", "b", "c")}, "failed: c has 0 tests, and the report is about 1", True, True),
    ],
    ids=["current", "stale", "stale_with_a_failure", "one_gpu", "failure", "conflict", "test_added", "test_removed"],
)
def test_records_that_fail_ci_or_a_release(tool, capsys, changes, line, fails, fails_a_release):
    write(**changes)
    assert tool() == fails
    assert capsys.readouterr().out.startswith(f"GPU tests: {line}")
    assert tool("--require-current") == fails_a_release


def test_no_report_is_stale_and_a_torn_one_fails(tool, capsys):
    assert tool() == 0
    Path("report.json").write_text('{"sources": ')
    assert tool() == 1
    assert "failed: report.json is not JSON" in capsys.readouterr().out


def test_tests_that_cannot_be_collected_fail(tool, monkeypatch, capsys):
    def broken():
        raise RuntimeError("pytest cannot collect the GPU tests: no module named x")

    write()
    monkeypatch.setattr(tool.module, "collect_gpu_tests", broken)
    assert tool() == 1
    assert "failed: pytest cannot collect" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "fails", "fails_a_release"),
    [("stale: x", False, True), ("incomplete: x", False, True), ("failed: x", True, True)],
)
def test_the_sanitizers_have_a_line(tool, monkeypatch, capsys, line, fails, fails_a_release):
    write()
    monkeypatch.setattr(tool.module, "sanitizer_status", lambda path: line)
    assert tool() == fails
    assert capsys.readouterr().out.splitlines() == ["GPU tests: current", f"sanitizers: {line}"]
    assert tool("--require-current") == fails_a_release


def test_two_gpus_with_the_same_bits(tool, capsys):
    write()
    write("other.json", gpu="NVIDIA H100 80GB HBM3", torch="2.12.0", outcome="skipped", reason="64 GiB")
    assert tool("--compare", "other.json") == 0
    assert capsys.readouterr().out.startswith("equal: NVIDIA H200 and NVIDIA H100 80GB HBM3: 2 results, 2 tests")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"results": {"one": "0" * 8, "two": "2" * 8}}, "result two: 11111111 and 22222222"),
        ({"results": {"one": "0" * 8}}, "result two: 11111111 and none"),
        ({"results": {}}, "results: a report holds none"),
        ({"tests": ("a",)}, "tests: b has 0 tests, and the report is about 1"),
        ({"sources": "4567"}, "sources: 0123 and 4567"),
    ],
    ids=["a_bit", "a_result", "no_results", "a_test", "other_sources"],
)
def test_two_gpus_that_differ(tool, capsys, changes, words):
    write()
    write("other.json", gpu="NVIDIA H100", **changes)
    assert tool("--compare", "other.json") == 1
    assert capsys.readouterr().out.strip() == f"different: NVIDIA H200 and NVIDIA H100: {words}"
    assert tool("--compare", "nowhere.json") == 1
    assert "there is no nowhere.json" in capsys.readouterr().out

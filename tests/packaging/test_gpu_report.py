"""The GPU report: its status, its merging, which reports fail CI, and whether two GPUs computed the same bits."""

from __future__ import annotations

import os
import re
import runpy
import sys
from pathlib import Path

import gpu_evidence
import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
REPORT = CHECKOUT / "tests/gpu_report.json"


def shard(tests=("tests/gpu/test_a.py::test_one",), outcome="passed", **changes):
    entries = tests if isinstance(tests, dict) else {name: entry(outcome) for name in tests}
    facts = {"gpu": "NVIDIA H200", "gpus": 2, "torch": "2.11.0", "cuda": "13.0", "driver": "580.1"}
    found = {"date": "2026-01-01T00:00:00Z", "results": {"conv": "0123abcd"}, "tests": entries}
    return {"sources": "0123456789abcdef", **facts, **found, **changes}


def make_report(*arguments, **named):
    return gpu_evidence.join([shard(*arguments, **named)])


def entry(outcome, reason=""):
    return {"outcome": outcome, "reason": reason}


def status(report, digest="0123456789abcdef", collected=("tests/gpu/test_a.py::test_one",)):
    return gpu_evidence.status(report, digest, collected)


OF_EARLIER_SOURCES = {"sources": "f" * 16, "gpu": "NVIDIA H200", "tests": {"a": "1 ffff"}}


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (None, "stale: there is no report"),
        (OF_EARLIER_SOURCES, "stale: the report is about sources ffffffffffffffff"),
        ({**OF_EARLIER_SOURCES, "sources": "0123456789abcdef"}, "failed: the report has no gpus"),
        (make_report(outcome="skipped"), "failed: no test of the report passed"),
        (make_report(tests=()), "failed: no test of the report passed"),
        (
            make_report(["tests/gpu/test_a.py::test_other"]),
            "failed: tests/gpu/test_a.py has 1 tests, and the report is about 1 others",
        ),
    ],
    ids=["absent", "older_kind", "lacks_a_key", "all_skipped", "empty", "another_name"],
)
def test_a_report_that_is_not_current_has_a_reason(report, why):
    """`test_records_that_fail_ci_or_a_release` has the other reasons."""
    assert status(report).startswith(why)


def test_a_report_of_one_gpu_is_incomplete():
    tests = {"a": entry("passed"), "b": entry("skipped", gpu_evidence.TWO_GPUS), "c": entry("skipped", "64 GiB")}
    report = make_report(tests, gpus=1)
    why = "incomplete: 1 tests were skipped because they need two GPUs, first b"
    assert status(report, collected=tests) == why
    assert status(report, collected=["a", "c"]).startswith("failed")
    assert status(make_report(tests | {"b": entry("skipped", "another reason")}), collected=tests) == "current"


def test_every_skip_for_want_of_a_second_gpu_is_the_markers():
    """The report could not distinguish another skip from the permanent ones."""
    texts = {path.name: path.read_text() for path in (CHECKOUT / "tests/gpu").glob("*.py")}
    assert any("pytest.mark.needs_two_gpus" in text for text in texts.values())
    assert [name for name, text in texts.items() if "device_count" in text] == []


def test_shards_join():
    shards = [shard(["f::a"], gpus=1), shard(["f::b", "g::c"], outcome="failed", results={"other": "4567abcd"})]
    report = gpu_evidence.join(shards)
    assert report["others"] == {"f::b": entry("failed"), "g::c": entry("failed")}
    assert report["tests"] == gpu_evidence.digests(["g::c", "f::b", "f::a"])
    assert [text.partition(" ")[0] for text in report["tests"].values()] == ["2", "1"]
    assert gpu_evidence.num_tests(report) == 3
    assert report["results"] == {"conv": "0123abcd", "other": "4567abcd"}
    assert (report["gpus"], report["conflicts"]) == (2, {})


def test_a_result_that_differs_between_shards_is_a_failure():
    report = gpu_evidence.join([shard(["a"]), shard(["b"], results={"conv": "4567abcd"})])
    assert report["conflicts"] == {"conv": ["0123abcd", "4567abcd"]}
    assert status(report, collected=["a", "b"]).startswith("failed: 1 failure, first conv")


def test_a_report_survives_being_written_and_read(tmp_path):
    report = make_report(["b::x", "a::x"])
    gpu_evidence.write(tmp_path / "report.json", report)
    again = gpu_evidence.read(tmp_path / "report.json")
    assert again == report
    assert list(again["tests"]) == ["a", "b"]
    assert set(again) == set(gpu_evidence.KEYS)


def test_reading_nothing_and_nonsense(tmp_path):
    assert gpu_evidence.read(tmp_path / "absent.json") is None
    path = tmp_path / "report.json"
    path.write_text("{")
    with pytest.raises(ValueError, match="not JSON"):
        gpu_evidence.read(path)
    path.write_text('{"sources": "x"}')
    with pytest.raises(ValueError, match="no tests"):
        gpu_evidence.read(path)


@pytest.mark.parametrize(
    ("text", "shard"), [("1/1", (1, 1)), ("2/3", (2, 3)), *((text, None) for text in ("", "0/2", "3/2", "1", "a/b"))]
)
def test_shard(text, shard):
    if shard is not None:
        assert gpu_evidence.parse_shard(text) == shard
        return
    with pytest.raises(ValueError, match="INDEX/COUNT"):
        gpu_evidence.parse_shard(text)


@pytest.mark.parametrize("count", [1, 2, 7, 16])
def test_shards_take_about_as_long(count):
    seconds = [1] * 500 + [90, 30] + [1] * 300
    shards = gpu_evidence.deal(seconds, count)
    taken = [sum(s for s, shard in zip(seconds, shards, strict=True) if shard == number) for number in range(count)]
    assert sum(taken) == sum(seconds)
    assert max(taken) <= max(90, sum(seconds) // count + 1)


def test_the_committed_report_is_well_formed():
    report = gpu_evidence.read(REPORT)
    if report is None:
        pytest.skip("there is no tests/gpu_report.json")
    for name, text in report["tests"].items():
        assert name.startswith("tests/gpu/"), name
        assert re.fullmatch(r"[1-9]\d* [0-9a-f]{16}", text)
    for name, test in report["others"].items():
        assert name.partition("::")[0] in report["tests"]
        assert test["outcome"] in gpu_evidence.OUTCOMES
        assert test["reason"], f"{name} was {test['outcome']} without a reason"
    for name, hexdigest in report.get("results", {}).items():
        gpu_evidence.add_result({}, name, hexdigest)


def test_a_current_report_lists_the_tests_that_exist(tools):
    report = gpu_evidence.read(REPORT)
    digest = runpy.run_path(str(CHECKOUT / "convt_ext/_sources.py"))["sources_digest"](CHECKOUT)
    if report is None or report["sources"] != digest:
        pytest.skip("the GPU report is not about these sources (`make gpu-status`)")
    assert report["tests"] == gpu_evidence.digests(tools("gpu_status").collect_gpu_tests())


STAND_IN = """
import json, os, sys
import gpu_evidence
arguments = dict(zip(sys.argv, sys.argv[1:]))
index, count = map(int, arguments["--shard"].split("/"))
print("this is shard", index, "on", os.environ["CUDA_VISIBLE_DEVICES"])
if index == 3:
    report = json.load(open("REPORT"))
    report["tests"] = {"test_3": {"outcome": "failed", "reason": "the process ended"}}
    gpu_evidence.write(gpu_evidence.unfinished(arguments["--gpu-report"]), report)
    sys.exit("the GPU fell off")
if index == 7 or "nothing" in sys.argv:
    sys.exit(5)
report = json.load(open("REPORT"))
report["seed"] = int(os.environ["CONVT_TEST_SEED"])
report["tests"] = {f"test_{index}": {"outcome": "failed" if index == 2 else "passed", "reason": ""}}
json.dump(report, open(arguments["--gpu-report"], "w"))
sys.exit(index == 2)
"""


@pytest.fixture
def gpu_shards(tools, tmp_path, monkeypatch):
    """With a stand-in for pytest: its second shard has a failure, its third breaks off, its seventh is empty."""
    gpu_evidence.write(tmp_path / "example.json", shard())
    (tmp_path / "pytest.py").write_text(STAND_IN.replace("REPORT", str(tmp_path / "example.json")))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(CHECKOUT / "tests")]))
    module = tools("gpu_shards")
    monkeypatch.setattr(module, "visible_gpus", lambda: ["0", "1"])
    return module


@pytest.mark.parametrize(("number", "well"), [(1, True), (2, False), (3, False)])
def test_shards_side_by_side_make_one_report(tmp_path, gpu_shards, capsys, number, well):
    assert gpu_shards.run(number, 60, tmp_path / "report.json", []) is well
    report = gpu_evidence.read(tmp_path / "report.json")
    assert list(report["tests"]) == [f"test_{index}" for index in range(1, number + 1)]
    assert list(report["others"]) == [f"test_{index}" for index in range(2, number + 1)]
    printed = capsys.readouterr().out
    assert ("FAILED test_2" in printed) == (number >= 2)
    assert ("FAILED test_3: the process ended" in printed) == (number == 3)
    assert ("the GPU fell off" in printed) == (number == 3)
    assert "1 passed" in printed


def test_shards_share_one_seed(tmp_path, gpu_shards, capsys, monkeypatch):
    """It is a new one in each run unless the variable sets it."""
    path = tmp_path / "report.json"
    monkeypatch.delenv("CONVT_TEST_SEED", raising=False)
    seeds = []
    for _ in range(2):
        assert gpu_shards.run(1, 60, path, [])
        seeds.append(gpu_evidence.read(path)["seed"])
        assert f"CONVT_TEST_SEED={seeds[-1]}" in capsys.readouterr().out
    assert seeds[0] != seeds[1]
    monkeypatch.setenv("CONVT_TEST_SEED", "77")
    assert gpu_shards.run(1, 60, path, [])
    assert gpu_evidence.read(path)["seed"] == 77


def test_a_shard_that_hangs_is_stopped(tmp_path, gpu_shards, monkeypatch, capsys):
    (tmp_path / "pytest.py").write_text("import time; print('waiting', flush=True); time.sleep(600)")
    monkeypatch.setattr(gpu_shards, "GRACE", 0)
    assert not gpu_shards.run(2, 0.5, tmp_path / "report.json", [])
    assert "shard 2/2 was killed: it hangs" in capsys.readouterr().out


# ---- tools/gpu_status.py


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

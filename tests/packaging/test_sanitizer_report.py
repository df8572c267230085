"""The sanitizers' report: each tool updates it, errors stay, and its digest covers only what the tools check."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
DIGEST = "0123456789abcdef"


@pytest.fixture
def module(tools):
    return tools("sanitizer_report")


def result(errors=0, launches=9, status=0, short=False):
    return {"errors": errors, "launches": launches, "seconds": 1, "status": status, "short": short}


ALL = {name: result(short=name == "racecheck") for name in ("memcheck", "racecheck", "initcheck", "synccheck")}
STOPPED = result(errors=None, launches=0, status=None)


def make_report(tools=ALL, **changes):
    facts = {"gpu": "NVIDIA H200", "torch": "2.11.0", "cuda": "13.0", "driver": "580.1", "date": "2026-01-01T00:00:00Z"}
    return {"sources": DIGEST, **facts, "planted": True, "tools": tools, **changes}


@pytest.mark.parametrize(
    ("report", "line"),
    [
        (make_report(), "current"),
        (None, "stale: there is no report"),
        (make_report(sources="f" * 16, tools={"memcheck": result(errors=3)}), "stale: the report is about"),
        (make_report(ALL | {"memcheck": result(errors=3, status=99)}), "failed: memcheck: errors 3, launches 9"),
        (make_report(ALL | {"memcheck": result(errors=None, status=1)}), "failed: memcheck: errors None"),
        (make_report(ALL | {"synccheck": result(launches=0)}), "failed: synccheck: errors 0, launches 0"),
        (make_report(ALL | {"synccheck": result(status=1)}), "failed: synccheck: errors 0, launches 9, status 1"),
        (make_report(planted=False), "failed: a planted mistake was not reported"),
        (make_report({"memcheck": result()}), "incomplete: racecheck, initcheck, synccheck did not run to the end"),
        (make_report(ALL | {"memcheck": STOPPED}), "incomplete: memcheck did not run to the end"),
        (make_report(ALL | {"memcheck": result(short=True)}), "incomplete: memcheck ran the short list of problems"),
    ],
    ids=[
        *("current", "absent", "older", "errors", "broke_off", "no_launch", "workload_failed", "planted"),
        *("missing", "stopped", "short"),
    ],
)  # fmt: skip
def test_status(module, report, line):
    assert module.status(report, DIGEST).startswith(line)


def test_parts_join(module):
    merged = module.merge(make_report({"memcheck": result()}), make_report({"synccheck": result()}))
    assert merged["tools"] == {"memcheck": result(), "synccheck": result()}
    assert module.merge(make_report({"memcheck": STOPPED}), make_report())["tools"] == ALL


@pytest.mark.parametrize("key", ["sources", "gpu", "torch", "cuda", "driver"])
def test_parts_of_different_runs_do_not_join(module, key):
    merged = module.merge(make_report(**{key: "other"}), make_report({"memcheck": result()}))
    assert set(merged["tools"]) == {"memcheck"}


@pytest.mark.parametrize("other", [result(), result(errors=5), result(short=True), STOPPED])
def test_an_error_stays_and_replaces_any_other_result(module, other):
    found, error = make_report({"memcheck": other}), {"memcheck": result(errors=3, status=99)}
    assert module.merge(make_report(error), found)["tools"] == error
    assert module.merge(found, make_report(error))["tools"] == (found["tools"] if other["errors"] else error)


def test_what_changes_the_digest(module, tmp_path, monkeypatch):
    """Kernels, how they are compiled and the workload do; Python, other tests and documents do not."""
    judged = [*(name for name in module.JUDGED if name != "kernels"), "kernels/simt/forward.cu"]
    others = ["convt_ext/dispatch/ops.py", "tests/cpu/test_ops.py", "tests/sanitizer_report.json", "kernels/README.md"]
    for name in (*judged, *others):
        assert name.startswith("kernels/simt") or name == "tests/sanitizer_report.json" or (CHECKOUT / name).is_file()
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")

    def digest():
        return module.records.part_digest(module.JUDGED, tmp_path)

    for name in judged:
        before = digest()
        (tmp_path / name).write_text("other text")
        assert digest() != before, name
    before = digest()
    for name in others:
        (tmp_path / name).write_text("other text")
    assert digest() == before


def test_the_committed_report_is_well_formed(module):
    report = module.read(module.PATH)
    if report is None:
        pytest.skip("there is no tests/sanitizer_report.json")
    assert set(report["tools"]) <= set(module.TOOLS)


def test_reading_nonsense(module, tmp_path):
    assert module.read(tmp_path / "absent.json") is None
    path = tmp_path / "report.json"
    path.write_text("{")
    with pytest.raises(ValueError, match="not JSON"):
        module.read(path)
    path.write_text(json.dumps({"sources": "x"}))
    with pytest.raises(ValueError, match="it has no gpu"):
        module.read(path)


# ---- tools/sanitize.py with a stand-in for compute-sanitizer

STAND_IN = """#!/bin/sh
echo "========= COMPUTE-SANITIZER"
case "$*" in
    *--planted*) echo "========= ERROR SUMMARY: 1 error"; exit 99;;
    *"--tool racecheck"*) echo "launched a 3 times"; echo "========= RACECHECK SUMMARY: 0 hazards displayed";;
    *"--tool initcheck"*) echo "launched a 2 times"; echo "========= ERROR SUMMARY: $INITCHECK errors";
        exit $INITCHECK;;
    *"--tool synccheck"*) [ -z "$HANGS" ] || { echo "$HANGS"; sleep 600; }; echo "========= ERROR SUMMARY: 0 errors";
        echo "launched a 2 times"; echo "launched b 5 times";;
    *) echo "launched a 4 times"; echo "========= ERROR SUMMARY: 0 errors";;
esac
"""
FACTS = {"gpu": "none", "torch": "2.11.0", "cuda": "13.0", "driver": "580.1"}


@pytest.fixture
def sanitize(tools, module, monkeypatch, tmp_path):
    tool = tools("sanitize")
    program, path = tmp_path / "compute-sanitizer", tmp_path / "report.json"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    monkeypatch.setenv("INITCHECK", "0")
    monkeypatch.setattr(module, "digest", lambda: DIGEST)

    def run(*tools, short=False):
        well = tool.sanitize(str(program), list(tools), short, FACTS, path)
        return well, module.read(path)

    run.tool = tool
    return run


def test_a_run_of_all_tools(module, sanitize, capsys):
    well, report = sanitize()
    assert well
    assert module.status(report, DIGEST) == "current"
    launches = {name: one["launches"] for name, one in report["tools"].items()}
    assert launches == {"memcheck": 4, "racecheck": 3, "initcheck": 2, "synccheck": 7}
    assert [name for name, one in report["tools"].items() if one["short"]] == ["racecheck"]
    assert "report.json: current" in capsys.readouterr().out


def test_a_run_in_parts_keeps_what_it_found(module, sanitize, monkeypatch):
    monkeypatch.setenv("INITCHECK", "3")
    well, report = sanitize("initcheck")
    assert not well
    assert report["tools"]["initcheck"]["errors"] == 3
    monkeypatch.setenv("INITCHECK", "0")
    for tools, short in ((["memcheck", "racecheck", "synccheck"], False), (["initcheck"], False), ([], True)):
        well, report = sanitize(*tools, short=short)
        assert not well  # the part is clean, and the report is not
        assert module.status(report, DIGEST).startswith("failed: initcheck: errors 3")
    well, report = sanitize()
    assert well
    assert module.status(report, DIGEST) == "current"


@pytest.mark.parametrize(("words", "line"), [("starting", "incomplete"), ("========= Invalid read", "failed")])
def test_a_tool_that_exceeds_its_time(module, sanitize, monkeypatch, words, line):
    monkeypatch.setattr(sanitize.tool, "SECONDS_PER_TOOL", 0.3)
    monkeypatch.setenv("HANGS", words)
    well, report = sanitize()
    assert not well
    assert module.status(report, DIGEST).startswith(f"{line}: synccheck")

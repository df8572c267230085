"""The GPU report: its status, its merging, and that a current one lists exactly the tests that exist."""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from pathlib import Path

import gpu_evidence
import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
REPORT = CHECKOUT / "tests/gpu_report.json"


def make_report(tests=("tests/gpu/test_a.py::test_one",), outcome="passed", **changes):
    entries = {name: {"outcome": outcome, "reason": "", "seconds": 0.1} for name in tests}
    facts = {"gpu": "NVIDIA H200", "gpus": 2, "torch": "2.11.0", "cuda": "13.0", "driver": "580.1"}
    found = {"date": "2026-01-01T00:00:00Z", "results": {"conv": "0123abcd"}, "conflicts": {}, "tests": entries}
    return {"sources": "0123456789abcdef", **facts, **found, **changes}


def entry(outcome, reason=""):
    return {"outcome": outcome, "reason": reason, "seconds": 0.1}


def status(report, digest="0123456789abcdef", collected=("tests/gpu/test_a.py::test_one",)):
    return gpu_evidence.status(report, digest, collected)


def test_a_report_of_this_tree_is_current():
    assert status(make_report()) == "current"


OF_EARLIER_SOURCES = {"sources": "f" * 16, "gpu": "NVIDIA H200", "tests": {"a": entry("failed", "why")}}
TWICE = {"conv": ["0123abcd", "4567abcd"]}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"report": None}, "stale: there is no report"),
        ({"report": make_report(sources="f" * 16)}, "stale: the report is about sources ffffffffffffffff"),
        ({"report": OF_EARLIER_SOURCES}, "stale: the report is about sources ffffffffffffffff"),
        ({"report": {**OF_EARLIER_SOURCES, "sources": "0123456789abcdef"}}, "failed: the report has no gpus"),
        ({"report": make_report(outcome="failed")}, "failed: 1 failure, first tests/gpu/test_a.py::test_one"),
        ({"report": make_report(conflicts=TWICE)}, "failed: 1 failure, first conv: 0123abcd in one part and 4567abcd"),
        ({"report": make_report(outcome="skipped")}, "failed: no test of the report passed"),
        ({"report": make_report(tests=())}, "failed: no test of the report passed"),
        (
            {"report": make_report(), "collected": ["tests/gpu/test_a.py::test_one", "b"]},
            "failed: 1 of 2 tests are not",
        ),
        ({"report": make_report(), "collected": []}, "failed: 1 tests of the report do not exist"),
    ],
    ids=[
        *("absent", "digest", "older_kind", "lacks_a_key", "failure", "conflict"),
        *("all_skipped", "empty", "test_added", "test_removed"),
    ],
)
def test_a_report_that_is_not_current_says_why(arguments, why):
    assert status(**arguments).startswith(why)


def test_a_report_of_one_gpu_is_incomplete():
    tests = {"a": entry("passed"), "b": entry("skipped", gpu_evidence.TWO_GPUS), "c": entry("skipped", "64 GiB")}
    report = make_report(tests=(), gpus=1) | {"tests": tests}
    why = "incomplete: 1 tests were skipped because they need two GPUs, first b"
    assert status(report, collected=tests) == why
    assert status(report, collected=["a", "c"]).startswith("failed")
    assert status(report | {"tests": tests | {"b": entry("skipped", "another reason")}}, collected=tests) == "current"


def test_every_skip_for_want_of_a_second_gpu_is_the_markers():
    """The report would not know another one from the skips that are for good."""
    texts = {path.name: path.read_text() for path in (CHECKOUT / "tests/gpu").glob("*.py")}
    assert any("pytest.mark.needs_two_gpus" in text for text in texts.values())
    assert [name for name, text in texts.items() if "device_count" in text] == []


def test_shards_of_one_run_join():
    shard = make_report(tests=["b", "c"], outcome="failed", results={"other": "4567abcd"})
    merged = gpu_evidence.merge(make_report(tests=["a", "b"]), shard)
    assert {name: test["outcome"] for name, test in merged["tests"].items()} == {
        "a": "passed",
        "b": "failed",
        "c": "failed",
    }
    assert merged["results"] == {"conv": "0123abcd", "other": "4567abcd"}
    assert merged["conflicts"] == {}


def test_a_repeated_part_does_not_overwrite_a_failure():
    failed = make_report() | {"tests": {"a": entry("failed", "the first time")}}
    for later in ("passed", "skipped", "failed"):
        merged = gpu_evidence.merge(failed, make_report() | {"tests": {"a": entry(later, "the second time")}})
        assert merged["tests"] == {"a": entry("failed", "the first time")}
        again = gpu_evidence.merge(make_report() | {"tests": {"a": entry(later, "the second time")}}, failed)
        assert again["tests"]["a"]["outcome"] == "failed"


def test_a_part_on_two_gpus_completes_one_on_one():
    one_gpu = make_report(gpus=1) | {"tests": {"a": entry("skipped", gpu_evidence.TWO_GPUS), "b": entry("passed")}}
    two_gpus = make_report(gpus=2) | {"tests": {"a": entry("passed")}}
    for merged in (gpu_evidence.merge(one_gpu, two_gpus), gpu_evidence.merge(two_gpus, one_gpu)):
        assert merged["gpus"] == 2
        assert status(merged, collected=["a", "b"]) == "current"


def test_a_result_that_differs_between_parts_is_a_failure_that_stays():
    merged = gpu_evidence.merge(make_report(), make_report(results={"conv": "4567abcd"}))
    assert merged["conflicts"] == TWICE
    assert gpu_evidence.merge(merged, make_report())["conflicts"] == TWICE
    assert gpu_evidence.merge(make_report(), merged)["conflicts"] == TWICE


def test_results_have_one_digest_each():
    results = {}
    gpu_evidence.add_result(results, "conv", "0123abcd")
    gpu_evidence.add_result(results, "conv", "0123abcd")
    with pytest.raises(ValueError, match="conv has the digest 0123abcd already, got 4567abcd"):
        gpu_evidence.add_result(results, "conv", "4567abcd")
    with pytest.raises(ValueError, match="expected the digits"):
        gpu_evidence.add_result(results, "other", "no digest")
    assert results == {"conv": "0123abcd"}


@pytest.mark.parametrize("key", ["sources", "gpu", "torch", "cuda", "driver"])
def test_shards_of_different_runs_do_not_join(key):
    merged = gpu_evidence.merge(make_report(tests=["a"], **{key: "other"}), make_report(tests=["b"]))
    assert set(merged["tests"]) == {"b"}


def test_a_report_survives_being_written_and_read(tmp_path):
    report = make_report(tests=["b", "a"])
    gpu_evidence.write(tmp_path / "report.json", report)
    again = gpu_evidence.read(tmp_path / "report.json")
    assert again == report
    assert list(again["tests"]) == ["a", "b"]


def test_reading_nothing_and_nonsense(tmp_path):
    assert gpu_evidence.read(tmp_path / "absent.json") is None
    path = tmp_path / "report.json"
    path.write_text("{")
    with pytest.raises(ValueError, match="not JSON"):
        gpu_evidence.read(path)
    path.write_text('{"sources": "x"}')
    with pytest.raises(ValueError, match="no tests"):
        gpu_evidence.read(path)


@pytest.mark.parametrize(("text", "shard"), [("1/1", (1, 1)), ("2/3", (2, 3))])
def test_shard(text, shard):
    assert gpu_evidence.parse_shard(text) == shard


@pytest.mark.parametrize("count", [1, 2, 7, 16])
def test_shards_take_about_as_long(count):
    seconds = [1] * 500 + [90, 30] + [1] * 300
    shards = gpu_evidence.deal(seconds, count)
    taken = [sum(s for s, shard in zip(seconds, shards, strict=True) if shard == number) for number in range(count)]
    assert sum(taken) == sum(seconds)
    assert max(taken) <= max(90, sum(seconds) // count + 1)


@pytest.mark.parametrize("text", ["", "0/2", "3/2", "1", "a/b"])
def test_no_shard(text):
    with pytest.raises(ValueError, match="INDEX/COUNT"):
        gpu_evidence.parse_shard(text)


def test_the_committed_report_is_well_formed():
    report = gpu_evidence.read(REPORT)
    if report is None:
        pytest.skip("there is no tests/gpu_report.json")
    for name, test in report["tests"].items():
        assert name.startswith("tests/"), name
        assert test["outcome"] in gpu_evidence.OUTCOMES
        assert test["outcome"] == "passed" or test["reason"], f"{name} was {test['outcome']} without a reason"
    for name, hexdigest in report.get("results", {}).items():
        gpu_evidence.add_result({}, name, hexdigest)


def test_a_current_report_lists_the_tests_that_exist():
    report = gpu_evidence.read(REPORT)
    digest = runpy.run_path(str(CHECKOUT / "convt_ext/_sources.py"))["sources_digest"](CHECKOUT)
    if report is None or report["sources"] != digest:
        pytest.skip("the GPU report is not about these sources (`make gpu-status`)")
    sys.path.insert(0, str(CHECKOUT / "tools"))
    try:
        import gpu_status
    finally:
        sys.path.remove(str(CHECKOUT / "tools"))
    assert sorted(report["tests"]) == sorted(gpu_status.collect_gpu_tests())


STAND_IN = """
import json, os, sys
import gpu_evidence
arguments = dict(zip(sys.argv, sys.argv[1:]))
index, count = map(int, arguments["--shard"].split("/"))
print("this is shard", index, "on", os.environ["CUDA_VISIBLE_DEVICES"])
if index == 3:
    report = json.load(open("REPORT"))
    report["tests"] = {"test_3": {"outcome": "failed", "reason": "the process ended", "seconds": 0.0}}
    gpu_evidence.write(gpu_evidence.unfinished(arguments["--gpu-report"]), report)
    sys.exit("the GPU fell off")
if index == 7 or "nothing" in sys.argv:
    sys.exit(5)
report = json.load(open("REPORT"))
report["seed"] = int(os.environ["CONVT_TEST_SEED"])
report["tests"] = {f"test_{index}": {"outcome": "failed" if index == 2 else "passed", "reason": "", "seconds": 1.0}}
json.dump(report, open(arguments["--gpu-report"], "w"))
sys.exit(index == 2)
"""


@pytest.fixture
def gpu_shards(tmp_path, monkeypatch):
    """With a stand-in for pytest: its second shard has a failure, its third breaks off, its seventh is empty."""
    monkeypatch.syspath_prepend(str(CHECKOUT / "tools"))
    gpu_evidence.write(tmp_path / "example.json", make_report())
    (tmp_path / "pytest.py").write_text(STAND_IN.replace("REPORT", str(tmp_path / "example.json")))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(CHECKOUT / "tests")]))
    module = importlib.import_module("gpu_shards")
    monkeypatch.setattr(module, "visible_gpus", lambda: ["0", "1"])
    return module


@pytest.mark.parametrize(("number", "well"), [(1, True), (2, False), (3, False)])
def test_shards_side_by_side_make_one_report(tmp_path, gpu_shards, capsys, number, well):
    assert gpu_shards.run(number, (1, 1), 60, tmp_path / "report.json", []) is well
    report = gpu_evidence.read(tmp_path / "report.json")
    assert list(report["tests"]) == [f"test_{index}" for index in range(1, number + 1)]
    printed = capsys.readouterr().out
    assert ("FAILED test_2" in printed) == (number >= 2)
    assert ("FAILED test_3: the process ended" in printed) == (number == 3)
    assert ("the GPU fell off" in printed) == (number == 3)


def test_a_part_joins_the_report(tmp_path, gpu_shards):
    """Part 1 of 3 in three shards: the first, fourth and seventh of nine, of which the last has nothing to run."""
    gpu_evidence.write(tmp_path / "report.json", make_report(tests=["earlier"]))
    assert gpu_shards.run(3, (1, 3), 60, tmp_path / "report.json", [])
    assert list(gpu_evidence.read(tmp_path / "report.json")["tests"]) == ["earlier", "test_1", "test_4"]
    assert gpu_shards.run(1, (1, 1), 60, tmp_path / "report.json", [])
    assert list(gpu_evidence.read(tmp_path / "report.json")["tests"]) == ["test_1"]


def test_shards_draw_from_one_seed(tmp_path, gpu_shards, capsys, monkeypatch):
    """A new one in each run, which a part of that run takes from the report; or the one that was asked for."""
    path = tmp_path / "report.json"
    monkeypatch.delenv("CONVT_TEST_SEED", raising=False)
    assert gpu_shards.run(1, (1, 1), 60, path, [])
    drawn = gpu_evidence.read(path)["seed"]
    assert gpu_shards.run(1, (4, 8), 60, path, [])
    assert gpu_evidence.read(path)["seed"] == drawn
    assert capsys.readouterr().out.count(f"CONVT_TEST_SEED={drawn}") == 2
    assert gpu_shards.run(1, (1, 1), 60, path, [])
    assert gpu_evidence.read(path)["seed"] != drawn
    monkeypatch.setenv("CONVT_TEST_SEED", "77")
    assert gpu_shards.run(1, (1, 1), 60, path, [])
    assert gpu_evidence.read(path)["seed"] == 77


def test_a_part_that_is_repeated_keeps_its_failure(tmp_path, gpu_shards, capsys):
    """Part 1 of 3 finds nothing wrong, but the report had a failure, in this part or in another."""
    earlier = make_report() | {"tests": {"test_1": entry("failed", "once"), "other": entry("passed")}}
    gpu_evidence.write(tmp_path / "report.json", earlier)
    assert not gpu_shards.run(1, (1, 3), 60, tmp_path / "report.json", [])
    assert "FAILED test_1: once" in capsys.readouterr().out
    assert gpu_evidence.read(tmp_path / "report.json")["tests"]["test_1"] == entry("failed", "once")
    assert gpu_shards.run(1, (1, 1), 60, tmp_path / "report.json", [])
    assert gpu_evidence.read(tmp_path / "report.json")["tests"]["test_1"]["outcome"] == "passed"


def test_no_test_was_chosen(tmp_path, gpu_shards, capsys):
    gpu_evidence.write(tmp_path / "report.json", make_report(tests=["earlier"]))
    assert not gpu_shards.run(1, (1, 2), 60, tmp_path / "report.json", ["nothing"])
    assert "no shard has written a report" in capsys.readouterr().out
    assert list(gpu_evidence.read(tmp_path / "report.json")["tests"]) == ["earlier"]


def test_a_shard_that_hangs_is_stopped(tmp_path, gpu_shards, monkeypatch, capsys):
    (tmp_path / "pytest.py").write_text("import time; print('waiting', flush=True); time.sleep(600)")
    monkeypatch.setattr(gpu_shards, "GRACE", 0)
    assert not gpu_shards.run(2, (1, 1), 0.5, tmp_path / "report.json", [])
    assert "shard 2/2 was stopped: it hangs" in capsys.readouterr().out


def test_words_of_the_command(tmp_path, gpu_shards, monkeypatch):
    """What `make gpu-test` passes on, TEST_ARGS included."""
    seen = []
    monkeypatch.setattr(gpu_shards, "run", lambda *given: seen.append(given) or True)
    report = str(tmp_path / "report.json")
    for words in ([], ["--shards", "4", "--part", "2/3", "--limit", "480", "-k", "a or b", "-x"]):
        monkeypatch.setattr(sys, "argv", ["gpu_shards.py", report, *words])
        gpu_shards.main()
    assert seen == [
        (0, (1, 1), gpu_shards.LIMIT, Path(report), []),
        (4, (2, 3), 480.0, Path(report), ["-k", "a or b", "-x"]),
    ]


def test_every_core_gets_a_shard(gpu_shards, monkeypatch):
    for cores, num_gpus, number in ((1, 1, 1), (16, 1, 16), (32, 1, 18), (32, 2, 32)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)))
        assert gpu_shards.default_number(num_gpus) == number


def test_every_test_is_in_one_shard_of_one_part(gpu_shards):
    tests = list(range(1000))
    shards = [gpu_evidence.parse_shard(name) for part in (1, 2, 3) for name in gpu_shards.shards_of((part, 3), 5)]
    assert sorted(test for index, count in shards for test in tests[index - 1 :: count]) == tests

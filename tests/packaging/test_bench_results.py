"""Result files of the benchmark: which are current, and that one command writes those that are not."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]

if not (CHECKOUT / "benchmarks").is_dir():
    pytest.skip("a source distribution has no measurements", allow_module_level=True)

RUNS = {"one": "--layers all --precisions tf32", "two": "--csv layers.csv --default"}


@pytest.fixture
def tool(tools, monkeypatch, tmp_path):
    """tools/bench_results.py on a tree in a folder, with two runs and a benchmark that measures nothing."""
    module = tools("bench_results")
    really = module.records.part_digest
    monkeypatch.setattr(module.records, "part_digest", lambda entries: really(entries, tmp_path))
    monkeypatch.setattr(module, "BENCHMARKS", tmp_path / "benchmarks")
    for name in ("kernels/a.cu", "convt_ext/functional.py", "tests/test_a.py", "benchmarks/layers.csv", "setup.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text")
    (tmp_path / "benchmarks/runs.json").write_text(json.dumps(RUNS))
    module.ran = []

    def bench(words, timeout):
        name, path = words[-1].rpartition("h200_")[2].removesuffix(".json"), Path(words[-1])
        module.ran.append(name)
        argv = ["bench", *words[:-1], path.name]
        path.write_text(json.dumps({"sources": "0123", "date": "2026-01-01T00:00", "argv": argv, "complete": True}))
        return module.ends_well

    module.ends_well = True
    monkeypatch.setattr(module, "bench", bench)
    return module


@pytest.fixture
def results(tmp_path):
    return tmp_path / "benchmarks/results"


def states(tool, results, capsys) -> dict[str, str]:
    capsys.readouterr()
    tool.print_status(results)
    lines = capsys.readouterr().out.splitlines()
    return {line[:26].strip(): line[26:].partition("  sources")[0].strip() for line in lines}


def test_one_command_writes_what_is_not_current(tool, results, capsys):
    assert tool.write_results(results, "NVIDIA H200", [], None)
    assert tool.ran == ["one", "two"]
    assert states(tool, results, capsys) == {"h200_one": "current", "h200_two": "current"}
    assert tool.write_results(results, "NVIDIA H200", [], None)
    assert tool.ran == ["one", "two"]
    assert tool.write_results(results, "NVIDIA H200", ["one"], None)
    assert tool.ran == ["one", "two", "one"]
    with pytest.raises(SystemExit, match="--only: got three, expected some of one, two"):
        tool.write_results(results, "NVIDIA H200", ["three"], None)


@pytest.mark.parametrize(
    ("changed", "one", "two"),
    [
        ("kernels/a.cu", "older: kernels", "older: kernels"),
        ("setup.py", "older: kernels", "older: kernels"),
        ("convt_ext/functional.py", "older: python", "older: python"),
        ("benchmarks/layers.csv", "current", "older: layers"),
        ("tests/test_a.py", "current", "current"),
    ],
)
def test_what_makes_a_result_old(tool, results, capsys, tmp_path, changed, one, two):
    tool.write_results(results, "NVIDIA H200", [], None)
    (tmp_path / changed).write_text("other text")
    assert states(tool, results, capsys) == {"h200_one": one, "h200_two": two}


def test_other_reasons(tool, results, capsys, tmp_path):
    tool.write_results(results, "NVIDIA H200", [], None)
    path = results / "h200_one.json"
    content = json.loads(path.read_text())
    for changes, why in (
        ({"depends_on": None}, "older: it has no digests of its sources"),
        ({"complete": False}, "older: the run was interrupted"),
        ({"argv": ["bench", "--layers", "all", "--out", path.name]}, "older: command"),
    ):
        path.write_text(json.dumps(content | changes))
        assert states(tool, results, capsys)["h200_one"] == why
    path.rename(results / "h200_three.json")
    found = states(tool, results, capsys)
    assert found["h200_three"] == "older: no run of this name is in runs.json"
    assert found["h200_one"] == "missing"


def test_a_run_that_fails_leaves_the_file_as_it_was(tool, results, capsys):
    tool.write_results(results, "NVIDIA H200", [], None)
    before = (results / "h200_one.json").read_text()
    tool.ends_well = False
    assert not tool.write_results(results, "NVIDIA H200", ["one"], None)
    assert "failed, files unchanged: one" in capsys.readouterr().out
    assert (results / "h200_one.json").read_text() == before


def test_a_limit_leaves_the_rest_for_another_time(tool, results, capsys, monkeypatch):
    clock = iter([0.0, 1.0, 11.0])  # the beginning, before each run
    monkeypatch.setattr(tool, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert tool.write_results(results, "NVIDIA H200", [], 10.0)
    assert tool.ran == ["one"]
    assert "out of time: two" in capsys.readouterr().out
    assert states(tool, results, capsys) == {"h200_one": "current", "h200_two": "missing"}


def test_the_runs_of_the_checkout(tools, monkeypatch):
    """The benchmark accepts each command, the documents list each command, and every file has one."""
    tool = tools("bench_results")
    harness = pytest.importorskip("harness.command", reason="needs rich")
    text = (CHECKOUT / "benchmarks/README.md").read_text()
    monkeypatch.chdir(tool.BENCHMARKS)
    runs = tool.read_runs()
    assert set(tool.VARIABLES) <= set(runs)
    for name, words in runs.items():
        assert harness.select(harness.make_parser().parse_args(words)), name
        assert f"`h200_{name}.json`" in text
        assert set(tool.dependencies(words)) >= {"kernels", "python"}
    assert {path.stem.partition("_")[2] for path in (tool.BENCHMARKS / "results").glob("*.json")} <= set(runs)

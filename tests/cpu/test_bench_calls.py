"""The benchmark of default calls without a GPU: first calls, second timings, benchmarks of shapes, and the summary."""

from __future__ import annotations

import json
import threading
import time

import pytest
import torch
import torch.nn.functional as F
from bench_cpu import SMALL, FakeTimer, bench

import convt_ext
from convt_ext.bench import command, floors, runner
from convt_ext.bench.modes import MODES
from convt_ext.bench.results import ResultFile, replace_file
from convt_ext.bench.runner import Settings, Skipped, run
from convt_ext.bench.summary import parts, served_by, summarise
from convt_ext.tuning import benchmark

CPU = torch.device("cpu")


class ListedTimer:
    """Runs every call once and reports the next of the listed times, convt_ext's first."""

    def __init__(self, *pairs):
        self.pairs = iter(pairs)

    def times_us(self, calls):
        for call in calls:
            call()
        return list(next(self.pairs))[: len(calls)]

    def peak_bytes(self, call):
        return None


def measure(timer, **changes):
    values = {"layers": SMALL[:1], "modes": (MODES["default"],), "directions": ("fwd",), "layouts": ("nchw",)}
    return list(run(Settings(**{**values, "device": CPU, **changes}), timer, floors.H200, lambda: None))


@pytest.fixture
def by_our_kernel(monkeypatch):
    monkeypatch.setattr(runner, "kernel_of", lambda *_: "patch_tf32_128x64")


# ---- a second timing


def test_slower_calls_are_timed_again_and_the_better_time_counts(by_our_kernel):
    (row,) = measure(ListedTimer((10.4, 10.0), (10.6, 9.5)))
    assert (row["chosen"], row["retimed"]) == ("ours", True)
    assert (row["ours_us"], row["torch_us"]) == (10.4, 9.5)
    (row,) = measure(ListedTimer((14.0, 10.0), (9.0, 11.0)))
    assert (row["ours_us"], row["torch_us"]) == (9.0, 10.0)


@pytest.mark.parametrize("times", [(10.2, 10.0), (5.0, 10.0)])
def test_calls_that_are_not_slower_by_three_percent_are_timed_once(by_our_kernel, times):
    (row,) = measure(ListedTimer(times))
    assert not row["retimed"]
    assert (row["ours_us"], row["torch_us"]) == times


def test_pytorchs_operator_on_both_sides_is_timed_once():
    (row,) = measure(ListedTimer((12.0, 10.0)))
    assert (row["chosen"], row["retimed"], row["ours_us"]) == ("torch", False, 12.0)


def test_ours_alone_is_timed_once(by_our_kernel):
    (row,) = measure(ListedTimer((12.0,)), with_torch=False)
    assert (row["retimed"], row["ours_us"], row["torch_us"], row["first_call_ms"]) == (False, 12.0, None, None)


# ---- first calls


def slow_once(seconds):
    """A conv_transpose2d with a slow first call; records the threads that call it."""
    threads = []

    def call(input, weight, bias, *, precision, backend, **arguments):
        if not threads:
            time.sleep(seconds)
        threads.append(threading.current_thread())
        return F.conv_transpose2d(input, weight, bias, **arguments)

    return call, threads


def test_a_first_call_is_timed_against_pytorchs_second(monkeypatch):
    """In PyTorch's first call cuDNN searches, for this thread only."""
    call, threads = slow_once(0.2)
    monkeypatch.setattr(convt_ext, "conv_transpose2d", call)
    (row,) = measure(ListedTimer((10.0, 10.0)))
    assert 100 < row["first_call_ms"] < 10_000
    assert set(threads) == {threading.main_thread()}


def test_pytorchs_time_is_taken_off(monkeypatch):
    order = []

    def timed(call, device):
        order.append(len(order))
        return call(), (30.0, 42.0)[order[-1]]  # PyTorch's comes first

    monkeypatch.setattr(runner, "timed", timed)
    (row,) = measure(ListedTimer((10.0, 10.0)))
    assert row["first_call_ms"] == 12.0


def test_without_benchmarks_no_first_call_is_timed(monkeypatch):
    call, threads = slow_once(0.0)
    monkeypatch.setattr(convt_ext, "conv_transpose2d", call)
    (row,) = measure(ListedTimer((10.0, 10.0)), with_first_calls=False)
    assert row["first_call_ms"] is None
    assert set(threads) == {threading.main_thread()}


def test_the_kernel_is_read_after_the_first_call(monkeypatch):
    """The first call may benchmark the shape and change the choice."""
    call, threads = slow_once(0.0)
    monkeypatch.setattr(convt_ext, "conv_transpose2d", call)
    monkeypatch.setattr(runner, "kernel_of", lambda *_: "torch" if threads else "patch_tf32_128x64")
    (row,) = measure(ListedTimer((10.0, 10.0)))
    assert (row["kernel"], row["chosen"]) == ("torch", "torch")


def test_a_failing_first_call_is_a_failure_with_its_kernel(monkeypatch, by_our_kernel):
    def broken(*args, **kwargs):
        raise RuntimeError("launch failed")

    monkeypatch.setattr(convt_ext, "conv_transpose2d", broken)
    (row,) = measure(ListedTimer((10.0,)))
    assert row["failure"] == "ours: RuntimeError: launch failed"
    assert (row["kernel"], row["first_call_ms"], row["torch_us"]) == ("patch_tf32_128x64", None, 10.0)


# ---- options


def test_without_errors_no_reference_is_made(monkeypatch):
    monkeypatch.setattr(runner, "make_reference", lambda *_: pytest.fail("a reference was made"))
    (row,) = measure(ListedTimer((10.0, 10.0)), with_errors=False)
    assert row["error"] is row["torch_error"] is None
    assert (row["ours_us"], "failure" in row) == (10.0, False)


@pytest.mark.parametrize(("words", "measures"), [([], True), (["--race", "on"], True), (["--race", "off"], False)])
def test_option_race_benchmarks_in_first_calls_or_never(monkeypatch, tmp_path, words, measures):
    runs = []

    class Watching(FakeTimer):
        def times_us(self, calls):
            runs.append(benchmark._forced)
            return super().times_us(calls)

    out = tmp_path / "run.json"
    monkeypatch.setattr(command, "select", lambda args: list(SMALL[:1]))
    more = ["--no-errors", "--out", str(out), "--layouts", "nchw", "--default", "--precisions", "bf16"]
    assert bench([*words, *more], Watching(12.5)) == 0
    assert runs == [measures] * 2
    assert benchmark._forced is None
    rows = json.loads(out.read_text())["rows"]
    assert [row["first_call_ms"] is None for row in rows] == [not measures] * 2
    assert all(row["error"] is None for row in rows)


# ---- the summary


def row(ours, theirs, chosen="ours", **more):
    return {
        **{
            "layer": "a",
            "direction": "fwd",
            "precision": "bf16",
            "layout": "nchw",
            "ours_us": ours,
            "torch_us": theirs,
        },
        **{"kernel": "torch" if chosen == "torch" else "patch", "chosen": chosen, "floor_us": None, "error": None},
        **{"torch_error": None, **more},
    }


ROWS = [
    row(10.0, 40.0, first_call_ms=30.0),
    row(10.25, 10.0, retimed=True, first_call_ms=-2.0, direction="dx"),
    row(10.35, 10.0, retimed=True, direction="dx"),
    row(20.0, 10.0, retimed=True, layout="nhwc", first_call_ms=5.0),
    row(100.0, 10.0, "torch", layout="nhwc"),
    row(None, 10.0),
    row(None, None, None),
]


def test_the_summary_of_all_calls():
    found = summarise(ROWS)
    assert (found.num_calls, found.num_ours, found.num_slower, found.num_retimed) == (5, 4, (3, 2, 1), 3)
    product = 4.0 / 1.025 / 1.035 / 2
    assert found.speedup == pytest.approx(product ** (1 / 5))
    assert found.speedup_of_ours == pytest.approx(product ** (1 / 4))
    assert found.worst == pytest.approx(0.5)
    # A call that PyTorch's operator runs counts PyTorch's time, whatever the second measurement was.
    assert found.ours_ms == pytest.approx(0.0606)
    assert found.torch_ms == pytest.approx(0.080)
    assert found.first_calls_ms == (30.0, -2.0, 5.0)
    assert found.median_first_call_ms == 5.0


def test_a_summary_without_calls_of_ours_and_without_any():
    found = summarise([row(11.0, 10.0, "torch")])
    assert (found.num_ours, found.speedup, found.speedup_of_ours, found.worst) == (0, 1.0, None, None)
    assert (found.ours_ms, found.median_first_call_ms) == (0.01, None)
    assert summarise(ROWS[5:]) is None


def test_exactly_the_share_is_not_slower():
    assert summarise([row(102.0, 100.0), row(110.0, 100.0)]).num_slower == (1, 1, 0)


def test_older_rows_name_the_implementation_by_the_kernel():
    older = [{key: value for key, value in one.items() if key != "chosen"} for one in (*ROWS[3:5], row(None, None))]
    older[2]["kernel"] = None
    assert [served_by(one) for one in older] == ["ours", "torch", None]
    assert summarise(older).num_ours == 1


def test_parts_are_of_what_has_several_values():
    found = parts(ROWS)
    assert list(found) == ["all", "nchw", "nhwc", "fwd", "dx"]
    assert [len(rows) for rows in found.values()] == [7, 5, 2, 5, 2]


def test_a_kept_file_is_summed_up_without_a_gpu(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    path = tmp_path / "h200_run.json"
    content = {"gpu": "NVIDIA H200", "torch": "2.13", "date": "2026-01-02T03:04", "complete": False, "rows": ROWS}
    replace_file(path, {**content, "skipped": [{"layer": "huge", "reason": "900 GiB", "num_rows": 2}]})
    assert bench(["--summary", str(path)]) == 0
    text = capsys.readouterr().out
    for words in (
        "h200_run.json: NVIDIA H200, torch 2.13, 2026-01-02, interrupted",
        "2 calls lack a time and are not in these numbers",
        "3 calls seemed slower than PyTorch's; both sides were timed again",
        "by 5.0 ms in the median, 30.0 at most, 0.03 s for 3 calls",
        "skipped: huge (2 rows): 900 GiB",
    ):
        assert words in text
    (line,) = (line for line in text.splitlines() if line.startswith("│ all"))
    assert [cell.strip() for cell in line.split("│")[1:-1]] == [
        *("all", "5", "4", "3", "2", "1", "1.135x", "1.172x", "0.50x", "0.06", "0.08")
    ]


def test_a_file_that_grows_is_written_as_one_that_is_whole(tmp_path):
    grown, whole = tmp_path / "grown.json", tmp_path / "whole.json"
    description = {"gpu": "none", "argv": ["bench"]}
    file = ResultFile(grown, description)
    file.write(complete=False)
    replace_file(whole, {**description, "complete": False, "skipped": [], "rows": []})
    assert json.loads(grown.read_text()) == json.loads(whole.read_text())
    for one in ({"layer": 'a\n"b"', "k": [3, 5], "nested": {"x": [1.5, 2.5]}}, {"layer": "c"}):
        file.add(one)
    file.add(Skipped("huge", "too large", 1))
    file.write(complete=True)
    skipped = [{"layer": "huge", "reason": "too large", "num_rows": 1}]
    replace_file(whole, {**description, "complete": True, "skipped": skipped, "rows": file.rows})
    assert grown.read_text() == whole.read_text()

"""The benchmark without a GPU: rows, first calls, second timings, result files and the summary, with fake times."""

from __future__ import annotations

import json
import threading
import time

import pytest
import torch
import torch.nn.functional as F
from bench_cpu import SMALL, FakeTimer, bench, run_harness
from cpu_kernels import needs_binary

import convt_ext
from convt_ext.bench import command, floors, runner
from convt_ext.bench.layers import KERNELBENCH, Layer
from convt_ext.bench.modes import MODES
from convt_ext.bench.operands import DIRECTIONS, Operands, needed_bytes
from convt_ext.bench.results import ResultFile, replace_file
from convt_ext.bench.runner import Settings, Skipped, kernel_of, our_call, run
from convt_ext.bench.summary import parts, served_by, summarise
from convt_ext.tuning import benchmark

CPU = torch.device("cpu")

ROW_KEYS = [
    *("layer", "n", "c_in", "c_out", "h", "w", "k", "s", "p", "op", "g", "d", "bias"),
    *("direction", "precision", "layout", "ours_us", "torch_us", "floor_us", "kernel", "chosen", "error"),
    *("torch_error", "ours_peak_bytes", "torch_peak_bytes", "first_call_ms", "retimed"),
]


# A volume with kernels in every direction.
SLICES = Layer("slices", 2, 4, 8, 4, 5, (1, 2, 2), (1, 2, 2), (0, 0, 0), (0, 0, 0), 1, (1, 1, 1), depth=3)


class ListedTimer(FakeTimer):
    """Reports the next of the listed times, convt_ext's first."""

    def __init__(self, *pairs):
        self.pairs = iter(pairs)

    def times_us(self, calls):
        self.times = next(self.pairs)
        return super().times_us(calls)


def measure(timer=None, free_bytes=lambda: None, **changes):
    values = {"layers": SMALL, "modes": (MODES["ieee"],), "directions": ("fwd",), "layouts": ("nchw",), "device": CPU}
    return list(run(Settings(**{**values, **changes}), timer or FakeTimer(10.0, 20.0), floors.H200, free_bytes))


def measure_one(*pairs, **changes):
    """Returns the row of one default call with these times."""
    timer = ListedTimer(*pairs or [(10.0, 10.0)])
    (row,) = measure(timer, **{"layers": SMALL[:1], "modes": (MODES["default"],), **changes})
    return row


# ---- runner


def test_rows_have_exactly_the_promised_keys():
    rows = measure(modes=tuple(MODES.values()), layouts=("nchw", "nhwc"), directions=DIRECTIONS)
    assert len(rows) == (2 * len(SMALL) - 1) * len(MODES) * 3  # there is no channels_last in one dimension
    for row in rows:
        assert row.pop("depth", None) == (3 if row["layer"] == "volume" else None)
        assert list(row) == ROW_KEYS, row.get("failure")
        assert row["kernel"] == row["chosen"] == "torch"
        assert row["error"] <= {"f16": 2e-3, "bf16": 2e-2}.get(row["precision"], 1e-5)
        assert row["floor_us"] > 0
        json.dumps(row, allow_nan=False)
    identities = {(row["layer"], row["direction"], row["precision"], row["layout"]) for row in rows}
    assert len(identities) == len(rows)


@needs_binary
@pytest.mark.parametrize("layer", [KERNELBENCH[-1], SMALL[-2], SLICES], ids=lambda layer: layer.name)
def test_gradients_run_convt_ext_with_an_explicit_precision(pretend_gpu, layer):
    shapes = (layer.input_shape, layer.weight_shape, layer.output_shape)
    x, weight, grad_output = (torch.empty(shape, device="cuda") for shape in shapes)
    operands = Operands(x, weight, bias=None, grad_output=grad_output)
    for direction, name, like in (("dx", "_grad_input_", x), ("dw", "_grad_weight_", weight)):
        assert name in kernel_of(layer, direction, MODES["ieee"], operands)
        assert our_call(layer, direction, MODES["ieee"], operands)().shape == like.shape


def test_convt_ext_gets_the_precision_and_the_layout(monkeypatch):
    calls = []

    def recorded(input, weight, bias, *, precision, **arguments):
        calls.append((precision, input.is_contiguous(memory_format=torch.channels_last), torch.backends.cudnn.enabled))
        return F.conv_transpose2d(input, weight, bias, **arguments)

    monkeypatch.setattr(convt_ext, "conv_transpose2d", recorded)
    measure(layers=SMALL[:1], modes=(MODES["aten"], MODES["default"]), layouts=("nchw", "nhwc"))
    assert set(calls) == {("aten", False, False), ("aten", True, False), (None, False, True), (None, True, True)}


def test_both_sides_are_timed_alternately():
    """The timer receives both calls at once, and each side gets its own time."""
    seen = []

    class Turns(FakeTimer):
        def times_us(self, calls):
            seen.append(len(calls))
            return super().times_us(calls)

    (row,) = measure(Turns(10.0, 20.0), layers=SMALL[:1])
    assert seen == [2]
    assert (row["ours_us"], row["torch_us"]) == (10.0, 20.0)


def test_a_failing_side_is_recorded_and_the_other_one_kept(broken):
    rows = measure()
    assert len(rows) == len(SMALL)
    assert all(row["failure"] == "ours: RuntimeError: no such plan" for row in rows)
    assert all(row["ours_us"] is None and row["torch_us"] is not None for row in rows)


def test_a_result_that_is_not_finite_is_a_failure(monkeypatch):
    def poisoned(input, weight, bias, *, precision, backend, **arguments):
        return F.conv_transpose2d(input, weight, bias, **arguments) * float("nan")

    monkeypatch.setattr(convt_ext, "conv_transpose2d", poisoned)
    (row,) = measure(layers=SMALL[:1])
    assert "not finite" in row["failure"]
    assert row["ours_us"] is None


def test_a_layer_that_does_not_fit_is_skipped_with_the_reason():
    limit = needed_bytes(SMALL[0], 4, ("fwd",))
    modes = (MODES["ieee"], MODES["tf32"], MODES["f64"])
    found = measure(modes=modes, layers=SMALL[:1], free_bytes=lambda: limit)
    assert [type(one) for one in found] == [dict, dict, Skipped]
    assert found[2].num_rows == 1
    assert "GiB" in found[2].reason


@pytest.fixture
def by_our_kernel(monkeypatch):
    monkeypatch.setattr(runner, "kernel_of", lambda *_: "patch_tf32_128x64")


# ---- a second timing


def test_slower_calls_are_timed_again_and_the_better_time_counts(by_our_kernel):
    row = measure_one((10.4, 10.0), (10.6, 9.5))
    assert (row["chosen"], row["retimed"]) == ("ours", True)
    assert (row["ours_us"], row["torch_us"]) == (10.4, 9.5)
    row = measure_one((14.0, 10.0), (9.0, 11.0))
    assert (row["ours_us"], row["torch_us"]) == (9.0, 10.0)


@pytest.mark.parametrize("times", [(10.2, 10.0), (5.0, 10.0)])
def test_calls_that_are_not_slower_by_three_percent_are_timed_once(by_our_kernel, times):
    row = measure_one(times)
    assert not row["retimed"]
    assert (row["ours_us"], row["torch_us"]) == times


# ---- first calls


@pytest.fixture
def slow_once(monkeypatch):
    """Makes the first call slow; returns the threads that call."""
    threads = []

    def call(input, weight, bias, *, precision, backend, **arguments):
        if not threads:
            time.sleep(0.2)
        threads.append(threading.current_thread())
        return F.conv_transpose2d(input, weight, bias, **arguments)

    monkeypatch.setattr(convt_ext, "conv_transpose2d", call)
    return threads


def test_a_first_call_is_timed_against_pytorchs_second(slow_once):
    """In PyTorch's first call cuDNN searches, for this thread only."""
    assert 100 < measure_one()["first_call_ms"] < 10_000
    assert set(slow_once) == {threading.main_thread()}


def test_pytorchs_time_is_taken_off(monkeypatch):
    times = iter((30.0, 42.0))  # PyTorch's comes first
    monkeypatch.setattr(runner, "timed", lambda call, device: (call(), next(times)))
    assert measure_one()["first_call_ms"] == 12.0


def test_the_kernel_is_read_after_the_first_call(monkeypatch, slow_once):
    """The first call may benchmark the shape and change the choice."""
    monkeypatch.setattr(runner, "kernel_of", lambda *_: "torch" if slow_once else "patch_tf32_128x64")
    row = measure_one()
    assert (row["kernel"], row["chosen"]) == ("torch", "torch")


# ---- options


def test_without_errors_no_reference_is_made(monkeypatch):
    monkeypatch.setattr(runner, "make_reference", lambda *_: pytest.fail("a reference was made"))
    row = measure_one(with_errors=False)
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
        **{"layer": "a", "direction": "fwd", "precision": "bf16", "layout": "nchw", "ours_us": ours},
        **{"kernel": "torch" if chosen == "torch" else "patch", "chosen": chosen, "floor_us": None, "error": None},
        **{"torch_us": theirs, "torch_error": None, **more},
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
    # Exactly 2 % and 10 % longer is not slower than that.
    assert summarise([row(102.0, 100.0), row(110.0, 100.0)]).num_slower == (1, 1, 0)


def test_a_summary_without_calls_of_ours_and_without_any():
    found = summarise([row(11.0, 10.0, "torch")])
    assert (found.num_ours, found.speedup, found.speedup_of_ours, found.worst) == (0, 1.0, None, None)
    assert (found.ours_ms, found.median_first_call_ms) == (0.01, None)
    assert summarise(ROWS[5:]) is None


def test_older_rows_name_the_implementation_by_the_kernel():
    older = [{key: value for key, value in one.items() if key != "chosen"} for one in (*ROWS[3:5], row(None, None))]
    older[2]["kernel"] = None
    assert [served_by(one) for one in older] == ["ours", "torch", None]
    assert summarise(older).num_ours == 1


def test_parts_are_of_what_has_several_values():
    found = parts(ROWS)
    assert list(found) == ["all", "fwd", "dx", "nchw", "nhwc", "fwd nchw", "dx nchw", "fwd nhwc"]
    assert [len(rows) for rows in found.values()] == [7, 5, 2, 5, 2, 3, 2, 2]
    assert list(parts(ROWS[:3])) == ["all", "fwd", "dx"]
    assert list(parts(ROWS[:1])) == ["all"]


def test_a_kept_file_is_summed_up_without_a_gpu(tmp_path, capsys, no_gpu):
    path = tmp_path / "h200_run.json"
    content = {"gpu": "NVIDIA H200", "torch": "2.13", "date": "2026-01-02T03:04", "complete": False, "rows": ROWS}
    replace_file(path, {**content, "skipped": [{"layer": "huge", "reason": "900 GiB", "num_rows": 2}]})
    assert run_harness(["--summary", str(path)]) == 0
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
    (line,) = (line for line in text.splitlines() if line.startswith("│ fwd nhwc"))
    assert [cell.strip() for cell in line.split("│")[2:-3]] == ["2", "1", "1", "1", "1", "0.707x", "0.500x", "0.50x"]


# ---- result files


def test_a_file_that_grows_is_whole_after_every_row_and_written_as_one_that_is_whole(tmp_path):
    grown, whole = tmp_path / "results" / "grown.json", tmp_path / "whole.json"
    description = {"gpu": "none", "argv": ["bench"]}
    file = ResultFile(grown, description)
    file.write(complete=False)
    replace_file(whole, {**description, "complete": False, "skipped": [], "rows": []})
    assert json.loads(grown.read_text()) == json.loads(whole.read_text())
    rows = {"layer": 'a\n"b"', "k": (3, 5), "nested": {"x": [1.5, 2.5]}}, *measure(layers=SMALL[:2])
    for number, row in enumerate(rows, 1):
        file.add(row)
        content = json.loads(grown.read_text())
        assert (content["complete"], len(content["rows"])) == (False, number)
    file.add(Skipped("huge", "needs about 900.0 GiB of GPU memory", 2))
    file.write(complete=True)
    skipped = [{"layer": "huge", "reason": "needs about 900.0 GiB of GPU memory", "num_rows": 2}]
    replace_file(whole, {**description, "complete": True, "skipped": skipped, "rows": rows})
    assert grown.read_text() == whole.read_text()
    assert grown.read_text().count('"k": [3, 5]') == 2
    assert list(grown.parent.iterdir()) == [grown]

"""The benchmark without a GPU: runner, result files and the timer, with fake times."""

from __future__ import annotations

import doctest
import itertools
import json

import pytest
import torch
import torch.nn.functional as F
from bench_cpu import SMALL
from pretend_gpu import pretend_gpu  # noqa: F401

import convt_ext
from convt_ext import ops
from convt_ext.bench import floors, timing
from convt_ext.bench.layers import BUILT_IN, KERNELBENCH
from convt_ext.bench.modes import MODES
from convt_ext.bench.operands import DIRECTIONS, Operands, needed_bytes
from convt_ext.bench.results import ResultFile, default_path
from convt_ext.bench.runner import Settings, Skipped, kernel_of, our_call, run
from convt_ext.bench.timing import CudaTimer

CPU = torch.device("cpu")

ROW_KEYS = [
    *("layer", "n", "c_in", "c_out", "h", "w", "k", "s", "p", "op", "g", "d", "bias"),
    *("direction", "precision", "layout", "ours_us", "torch_us", "floor_us", "kernel", "chosen", "error"),
    *("torch_error", "ours_peak_bytes", "torch_peak_bytes", "first_call_ms", "retimed"),
]


class CountingTimer:
    """Runs every call once and reports 10 µs, 20 µs, 30 µs, ..."""

    def __init__(self):
        self.times = itertools.count(10, 10)

    def times_us(self, calls):
        for call in calls:
            call()
        return [float(next(self.times)) for _ in calls]

    def peak_bytes(self, call):
        return call().nbytes


def settings(**changes) -> Settings:
    values = {"layers": SMALL, "modes": (MODES["ieee"],), "directions": ("fwd",), "layouts": ("nchw",), "device": CPU}
    return Settings(**{**values, **changes})


def measure(chosen: Settings, free_bytes=lambda: None):
    return list(run(chosen, CountingTimer(), floors.H200, free_bytes))


# ---- runner


def test_rows_have_exactly_the_promised_keys():
    rows = measure(settings(modes=tuple(MODES.values()), layouts=("nchw", "nhwc"), directions=DIRECTIONS))
    assert len(rows) == len(SMALL) * len(MODES) * 2 * 3
    for row in rows:
        assert list(row) == ROW_KEYS, row.get("failure")
        assert row["kernel"] == row["chosen"] == "torch"
        assert row["error"] <= {"f16": 2e-3, "bf16": 2e-2}.get(row["precision"], 1e-5)
        assert row["floor_us"] > 0
        json.dumps(row, allow_nan=False)
    identities = {(row["layer"], row["direction"], row["precision"], row["layout"]) for row in rows}
    assert len(identities) == len(rows)


def test_gradients_of_calls_that_pytorch_runs_are_pytorchs():
    for row in measure(settings(directions=("dx", "dw"), with_torch=False)):
        assert row["kernel"] == "torch"
        assert row["ours_us"] > 0
        assert row["torch_us"] is None


@pytest.mark.skipif(ops.plan is None, reason="the binary is not installed")
def test_gradients_are_ours_where_that_is_asked_for(pretend_gpu):  # noqa: F811
    layer = next(layer for layer in KERNELBENCH if layer.name == "kb81")
    shapes = (layer.input_shape, layer.weight_shape, layer.output_shape)
    x, weight, grad_output = (torch.empty(shape, device="cuda") for shape in shapes)
    operands = Operands(x, weight, bias=None, grad_output=grad_output)
    for direction, name, like in (("dx", "_grad_input_", x), ("dw", "_grad_weight_", weight)):
        assert name in kernel_of(layer, direction, MODES["ieee"], operands)
        assert our_call(layer, direction, MODES["ieee"], operands)().shape == like.shape


def test_ours_gets_the_precision_and_the_layout(monkeypatch):
    calls = []

    def recorded(input, weight, bias, *, precision, **arguments):
        calls.append((precision, input.is_contiguous(memory_format=torch.channels_last), torch.backends.cudnn.enabled))
        return F.conv_transpose2d(input, weight, bias, **arguments)

    monkeypatch.setattr(convt_ext, "conv_transpose2d", recorded)
    measure(settings(layers=SMALL[:1], modes=(MODES["aten"], MODES["default"]), layouts=("nchw", "nhwc")))
    assert set(calls) == {("aten", False, False), ("aten", True, False), (None, False, True), (None, True, True)}


@pytest.mark.skipif(ops.plan is None, reason="the binary is not installed")
def test_kernel_is_torch_where_pytorch_is_estimated_faster(pretend_gpu, monkeypatch):  # noqa: F811
    monkeypatch.setattr("convt_ext.precision.class_by_switches", lambda *_: "ieee")
    kernels = {}
    for layer in KERNELBENCH:
        tensors = (torch.empty(shape, device="cuda") for shape in (layer.input_shape, layer.weight_shape))
        operands = Operands(*tensors, bias=None, grad_output=None)
        for mode in (MODES["default"], MODES["ieee"], MODES["tf32x3"]):
            kernels[layer.name, mode.name] = kernel_of(layer, "fwd", mode, operands)
    assert [key for key, kernel in kernels.items() if kernel == "torch"] == [("kb65", "default"), ("kb69", "default")]


def test_both_sides_are_timed_by_turns():
    """The timer receives both calls at once, and each side gets its own time."""
    seen = []

    class Turns(CountingTimer):
        def times_us(self, calls):
            seen.append(len(calls))
            return super().times_us(calls)

    (row,) = list(run(settings(layers=SMALL[:1]), Turns(), floors.H200, lambda: None))
    assert seen == [2]
    assert (row["ours_us"], row["torch_us"]) == (10.0, 20.0)


def test_a_failing_side_is_recorded_and_the_other_one_kept(monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("no such plan")

    monkeypatch.setattr(convt_ext, "conv_transpose2d", broken)
    rows = measure(settings())
    assert len(rows) == len(SMALL)
    assert all(row["failure"] == "ours: RuntimeError: no such plan" for row in rows)
    assert all(row["ours_us"] is None and row["torch_us"] is not None for row in rows)


def test_a_result_that_is_not_finite_is_a_failure(monkeypatch):
    def poisoned(input, weight, bias, *, precision, backend, **arguments):
        return F.conv_transpose2d(input, weight, bias, **arguments) * float("nan")

    monkeypatch.setattr(convt_ext, "conv_transpose2d", poisoned)
    (row,) = measure(settings(layers=SMALL[:1]))
    assert "not finite" in row["failure"]
    assert row["ours_us"] is None


def test_a_layer_that_does_not_fit_is_skipped_with_the_reason():
    limit = needed_bytes(SMALL[0], 4, ("fwd",))
    modes = (MODES["ieee"], MODES["tf32"], MODES["f64"])
    first, *others = measure(settings(modes=modes, layers=SMALL[:1]), free_bytes=lambda: limit)
    assert isinstance(first, dict)
    assert isinstance(others[0], dict)
    assert isinstance(others[1], Skipped)
    assert others[1].num_rows == 1
    assert "GiB" in others[1].reason


def test_memory_need_covers_operands_and_results():
    for layer in BUILT_IN:
        held = 4 * (2 * torch.Size(layer.input_shape).numel() + torch.Size(layer.output_shape).numel())
        assert needed_bytes(layer, 4, ("fwd",)) > held


# ---- results and timer


def test_result_file_is_whole_after_every_row(tmp_path):
    path = tmp_path / "results" / "run.json"
    file = ResultFile(path, {"gpu": "none", "sources": "0123"})
    for item in measure(settings(layers=SMALL[:2])):
        file.add(item)
        assert json.loads(path.read_text())["complete"] is False
    file.add(Skipped("huge", "needs about 900.0 GiB of GPU memory", 2))
    file.write(complete=True)
    content = json.loads(path.read_text())
    assert content["complete"] is True
    assert [row["layer"] for row in content["rows"]] == ["plain", "grouped"]
    assert content["rows"][1]["k"] == [3, 5]
    assert content["skipped"] == [{"layer": "huge", "reason": "needs about 900.0 GiB of GPU memory", "num_rows": 2}]
    assert list(path.parent.iterdir()) == [path]
    assert '"k": [3, 5]' in path.read_text()


def test_default_path_names_gpu_and_date():
    path = default_path("NVIDIA H200", "2026-01-02T03:04:05+00:00")
    assert path.as_posix() == "benchmarks/results/nvidia-h200-2026-01-02t03-04-05.json"


class FakeEvent:
    """An event on a clock that every call advances."""

    clock = 0.0

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.at = FakeEvent.clock

    def query(self):
        return False  # the host is ahead

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return end.at - self.at


@pytest.fixture
def timer(monkeypatch):
    """Returns a timer on the clock of FakeEvent, with a budget of 40 ms; `timer.order` records its flushes."""
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda _: None)
    monkeypatch.setattr(torch.cuda, "device", lambda _: torch.no_grad())
    monkeypatch.setattr(FakeEvent, "clock", 0.0)

    class Flush:
        def zero_(self):
            timer.order.append("flush")
            FakeEvent.clock += 1000.0

    timer = object.__new__(CudaTimer)
    timer._device, timer._budget_ms, timer._flush, timer.order = CPU, 40.0, Flush(), []
    return timer


def test_timer_returns_the_median_of_calls_with_a_flush_before_each(timer):
    durations = itertools.chain([500.0, 300.0], itertools.cycle([2.0, 2.0, 9.0]))

    def call():
        timer.order.append("call")
        FakeEvent.clock += next(durations)

    assert timer.times_us([call]) == [2000.0]
    assert timer.order[:2] == ["call", "call"]
    assert timer.order[2:] == ["flush", "call"] * ((len(timer.order) - 2) // 2)
    assert timer.order.count("flush") == 3 + 20 // 5 + 20


@pytest.mark.parametrize(("milliseconds", "number", "num_blocks"), [(2.0, 20, 5), (50.0, 3, 4)])
def test_calls_take_turns_and_the_first_turn_too(timer, milliseconds, number, num_blocks):
    def called(name):
        def call():
            timer.order.append(name)
            FakeEvent.clock += milliseconds

        return call

    timer.times_us([called("ours"), called("torch")])
    sides = [word for word in timer.order if word != "flush"]
    blocks = [name for name, _ in itertools.groupby(sides[10:])]  # two calls to warm up and three to estimate, each
    assert blocks == (["ours", "torch"] * 3)[:num_blocks]
    # As many calls as one after the other would take: both sides the same.
    assert sides.count("ours") == sides.count("torch") == 5 + max(1, number // 5) + number


def test_a_clock_that_drifts_meets_both_sides_alike(timer):
    """Every call takes 0.5 % longer than the previous one. Without alternation the sides would differ by 11 %."""
    made = itertools.count()

    def call():
        FakeEvent.clock += 2.0 * 1.005 ** next(made)

    ours, theirs = timer.times_us([call, call])
    assert ours == pytest.approx(theirs, rel=0.04)


def test_rounds_share_the_calls():
    result = doctest.testmod(timing)
    assert (result.attempted, result.failed) == (1, 0)


def test_timer_refuses_a_budget_that_is_not_positive():
    with pytest.raises(ValueError, match="budget_ms must be positive, got 0"):
        CudaTimer(CPU, 0)

"""One benchmark: which plans it times, how often, what it returns, and what it frees if memory is short.

Times and memory are fake, except for the buffer that flushes the L2 cache.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from functools import partial

import pytest
import torch

from convt_ext.bench.timing import CudaTimer
from convt_ext.compile import measure
from convt_ext.dispatch import planner
from convt_ext.environment import _driver
from convt_ext.tuning import benchmark
from convt_ext.tuning.choices import FORWARD, MEASURED, Choice
from convt_ext.tuning.gpu_clock import GpuClock


def contenders(*workspaces):
    return [planner.Contender(number, 10.0, bytes_) for number, bytes_ in enumerate(workspaces)]


@pytest.fixture
def on_no_gpu(monkeypatch):
    """Replaces what `benchmark.run` needs of a GPU: 1 MiB of L2 cache, 1 GiB of free memory, and three plans."""
    monkeypatch.setattr(planner, "contenders", lambda *_: contenders(0, 0, 0))
    properties = type("Properties", (), {"L2_cache_size": 1 << 20})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(_driver, "relaxed_capture", contextlib.nullcontext)
    monkeypatch.setattr(benchmark, "_free_bytes", lambda device: 1 << 30)


def run(problem_bytes=1 << 20, with_torch=True):
    problem = type("Problem", (), {"tensor_bytes": lambda self: problem_bytes})()
    return benchmark.run(
        problem, FORWARD, lambda number: None, (lambda: None) if with_torch else None, torch.device("cpu")
    )


@pytest.mark.parametrize(("theirs", "by_torch"), [(10.0, True), (10.2, True), (10.4, False), (50.0, False)])
def test_convt_ext_must_be_faster_by_a_margin(monkeypatch, on_no_gpu, theirs, by_torch):
    times = {4: [12.0, 10.0, 11.0, theirs], 3: [12.0, 10.0, 11.0], 2: [12.0, 10.0]}
    monkeypatch.setattr(benchmark, "_times", lambda calls, *_: list(times[len(calls)]))
    assert run() == Choice(by_torch, 1, 10.0, theirs, MEASURED)
    assert run(with_torch=False) == Choice(False, 1, 10.0, 0.0, MEASURED)


@pytest.mark.parametrize(("again", "candidate"), [([9.0, 10.0], 0), ([10.0, 10.0], 0), ([12.0, 10.0], 2)])
def test_the_cost_models_plan_is_measured_again_before_another_replaces_it(monkeypatch, on_no_gpu, again, candidate):
    times = [[20.0, 15.0, 10.0, 50.0], again]
    measured = []
    monkeypatch.setattr(benchmark, "_times", lambda calls, *_: measured.append(len(calls)) or times.pop(0))
    found = run()
    assert found.candidate == candidate
    assert found.ours_us == min(again[0] if candidate == 0 else again[1], 10.0 if candidate == 2 else 20.0)
    assert measured == [4, 2]


@pytest.mark.parametrize(("tensors", "workspaces"), [(1 << 30, [0, 0]), (1 << 20, [0, 1 << 30]), (1 << 20, [])])
def test_no_benchmark_without_a_kernel_or_if_its_memory_does_not_fit(monkeypatch, on_no_gpu, tensors, workspaces):
    monkeypatch.setattr(planner, "contenders", lambda *_: contenders(*workspaces))
    monkeypatch.setattr(benchmark, "_times", lambda *_: pytest.fail("benchmarked"))
    assert run(tensors) is None


@pytest.fixture
def emptied(monkeypatch):
    """For each time that the allocator's cache is emptied: whether the lock of the benchmark is held."""
    found = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: found.append(benchmark._lock.locked()))
    return found


def test_short_memory_ends_a_benchmark(monkeypatch, on_no_gpu, emptied):
    """The buffer is freed before the cache is emptied: a later result could split the buffer's segment."""
    buffers = []

    def no_memory(calls, num_ours, flush):
        buffers.append(weakref.ref(flush))
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(benchmark, "_times", no_memory)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append([buffer() for buffer in buffers]))
    assert run() is None
    assert emptied == [[None]]
    assert not benchmark._lock.locked()


def test_memory_that_ends_while_a_compiled_layer_is_timed(on_no_gpu, emptied):
    def no_memory():
        raise torch.OutOfMemoryError("no memory")

    with pytest.raises(torch.OutOfMemoryError, match="no memory"):
        measure.time_calls([lambda: None, no_memory], torch.device("cpu"))
    assert emptied == [True]
    assert not benchmark._lock.locked()


@pytest.mark.parametrize(("other_bytes", "is_timed"), [((1 << 30) - (2 << 20), True), (1 << 30, False)])
def test_only_what_fits_is_timed(on_no_gpu, emptied, other_bytes, is_timed):
    if is_timed:
        assert benchmark.timed(torch.numel, torch.device("cpu"), other_bytes) == 2 << 20
    else:
        with pytest.raises(torch.OutOfMemoryError, match="too little memory"):
            benchmark.timed(torch.numel, torch.device("cpu"), other_bytes)
    assert emptied == []


def test_slow_candidates_are_dropped_after_two_passes(monkeypatch):
    """PyTorch's operator and the fastest plan of convt_ext are never dropped; the order of rounds alternates."""
    clock = {"a": 100.0, "b": 130.0, "c": 101.0, "torch": 40.0}
    rounds = []

    def one_round(self, calls, flush):
        names = [call() for call in calls]
        rounds.append("".join(name[0] for name in names))
        return [clock[name] for name in names]

    monkeypatch.setattr(GpuClock, "times_us", one_round)
    calls = [lambda name=name: name for name in clock]
    assert benchmark._times(calls, 3, None) == [100.0, float("inf"), float("inf"), 40.0]
    assert rounds[:2] == ["abct", "tcba"]
    assert set(rounds[2::2]) == {"at"}
    assert set(rounds[3::2]) == {"ta"}
    assert len(rounds) - 2 == benchmark._MOST_ROUNDS
    clock.update(a=9000.0, b=9100.0, c=20000.0, torch=9050.0)
    rounds.clear()
    assert benchmark._times(calls, 3, None) == [9000.0, 9100.0, float("inf"), 9050.0]
    assert len(rounds) - 2 == benchmark._LEAST_ROUNDS


@pytest.mark.parametrize("disturbed", [0, 1])
def test_one_disturbed_pass_drops_no_candidate(monkeypatch, disturbed):
    clock, rounds = {"a": 100.0, "b": 110.0, "torch": 400.0}, []

    def one_round(self, calls, flush):
        rounds.append(calls)
        late = len(rounds) == disturbed + 1
        return [clock[name] * (10 if late and name == "a" else 1) for name in (call() for call in calls)]

    monkeypatch.setattr(GpuClock, "times_us", one_round)
    assert benchmark._times([lambda name=name: name for name in clock], 2, None) == [100.0, 110.0, 400.0]


# ---- the timer of the benchmark command


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
    timer._device, timer._budget_ms, timer._flush, timer.order = torch.device("cpu"), 40.0, Flush(), []
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
def test_calls_alternate_and_so_does_the_first_side(timer, milliseconds, number, num_blocks):
    def call(name):
        timer.order.append(name)
        FakeEvent.clock += milliseconds

    timer.times_us([partial(call, "ours"), partial(call, "torch")])
    sides = [word for word in timer.order if word != "flush"]
    blocks = [name for name, _ in itertools.groupby(sides[10:])]  # two calls to warm up and three to estimate, each
    assert blocks == (["ours", "torch"] * 3)[:num_blocks]
    # As many calls as one after the other would take: both sides the same.
    assert sides.count("ours") == sides.count("torch") == 5 + max(1, number // 5) + number


# ---- gpu_clock.py on a simulated GPU, which runs launches in order, and never before they are issued


HOST_US, GPU_US, FLUSH_US = 60.0, 7.0, 20.0  # a call: the host launches it for longer than it runs


class FakeGpu:
    """Microseconds of host and GPU; `hiccups` are the calls, counted from 0, that take the host that much longer."""

    def __init__(self, hiccups=None, most_ahead=1000):
        self.host = self.gpu = 0.0
        self.calls, self.held, self.hiccups = 0, [], hiccups or {}
        self.queue, self.most_ahead = [], most_ahead

    def launch(self, us):
        """Waits for a launch to finish if too many are queued."""
        self.queue = [end for end in self.queue if end > self.host]
        if len(self.queue) >= self.most_ahead:
            self.host = self.queue[-self.most_ahead]
        self.gpu = max(self.gpu, self.host) + us
        self.queue.append(self.gpu)

    def hold(self, cycles):
        self.held.append(cycles / 2000)
        self.launch(cycles / 2000)

    def call(self):
        self.host += HOST_US + self.hiccups.get(self.calls, 0.0)
        self.calls += 1
        self.launch(GPU_US)

    def zero_(self):
        self.launch(FLUSH_US)


@pytest.fixture
def fake_gpu(monkeypatch):
    def make(*arguments, **named):
        gpu = FakeGpu(*arguments, **named)

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                self.us = max(gpu.gpu, gpu.host)

            def query(self):
                return self.us <= gpu.host

            def synchronize(self):
                gpu.host = max(gpu.host, self.us)

            def elapsed_time(self, end):
                return (end.us - self.us) / 1e3

        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "_sleep", gpu.hold)
        return gpu

    return make


@pytest.mark.parametrize("number", [1, 5, 23])
def test_the_hosts_time_is_not_the_gpus(fake_gpu, number):
    gpu = fake_gpu()
    assert GpuClock().times_us([gpu.call] * number, gpu) == pytest.approx([GPU_US] * number)
    assert gpu.calls == number


def test_a_host_that_is_late_is_given_longer(fake_gpu):
    """The late times are discarded, and later groups start with the longer hold."""
    gpu = fake_gpu({3: 1500.0})
    clock = GpuClock()
    for _ in range(2):
        assert clock.times_us([gpu.call] * 5, gpu) == pytest.approx([GPU_US] * 5)
    assert gpu.calls == 15
    assert gpu.held == [500, 2000, 2000]


def test_fewer_calls_are_timed_at_once_if_launches_are_too_many(fake_gpu):
    """No hold is long enough for these: the host waits until the queue has space."""
    gpu = fake_gpu(most_ahead=12)
    clock = GpuClock()
    for _ in range(3):
        assert clock.times_us([gpu.call] * 20, gpu) == pytest.approx([GPU_US] * 20)
    assert max(gpu.held) == 256_000
    assert gpu.held[5:] == [25_600 * 5] * len(gpu.held[5:])


def test_a_call_that_waits_for_the_gpu_is_timed_all_the_same(fake_gpu):
    gpu = fake_gpu()

    def waiting():
        gpu.call()
        gpu.host = max(gpu.host, gpu.gpu)

    clock = GpuClock()
    for number in (1, 12):
        for us in clock.times_us([waiting] * number, gpu):
            assert GPU_US <= us <= GPU_US + HOST_US
    assert len(gpu.held) < 30

"""gpu_clock.py on a simulated GPU, which runs launches in order, and never before they are issued."""

from __future__ import annotations

import pytest
import torch

from convt_ext.tuning.gpu_clock import GpuClock

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

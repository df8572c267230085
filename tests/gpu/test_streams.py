"""Streams, threads, CUDA graphs and several GPUs: work is queued in PyTorch's order on PyTorch's current stream."""

from __future__ import annotations

import threading

import pytest
import torch
from cases import CASES, STAGED_CASES, Case, named
from raw_ops import CLASSES, Call, assert_same_bits

# Large shared memory, several tiles, every dtype.
GRAPH_CASES = [case for case in (*CASES, *STAGED_CASES) if case.name in ("k4s2p1", "kb75", "many_taps", "many_tiles")]
LONG = Case("long", "long enough to overlap", n=4, c_in=32, c_out=32, h=128, w=128)


@pytest.mark.parametrize("kind", CLASSES)
def test_order_on_a_side_stream(kind):
    """The kernel waits for what the stream holds before it, and what comes after waits for the kernel."""
    dtype, precision = CLASSES[kind]
    call = Call.of(named("k4s2p1"), dtype, precision)
    expected = call.run()
    negative = call.replace(x=-call.x, bias=None if call.bias is None else -call.bias).run()
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.zeros_like(call.x)
        torch.cuda._sleep(20_000_000)
        x.copy_(call.x)
        result = call.replace(x=x).run()
        copy = result.clone()
        x.fill_(float("nan"))
    stream.synchronize()
    assert_same_bits(result, expected)
    assert_same_bits(copy, expected)
    assert torch.equal(negative, -expected)  # rounding is symmetric, so the inputs did reach the kernel


def test_two_streams_at_once():
    calls = [Call.of(LONG, seed=seed) for seed in (0, 1)]
    expected = [call.run() for call in calls]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in calls]
    results: list[list[torch.Tensor]] = [[], []]
    for _ in range(10):
        for call, stream, found in zip(calls, streams, results, strict=True):
            with torch.cuda.stream(stream):
                found.append(call.run())
    torch.cuda.synchronize()
    for found, right in zip(results, expected, strict=True):
        for result in found:
            assert_same_bits(result, right)


def test_threads_with_their_own_streams():
    """Plans and opt-ins to shared memory are remembered for all threads together."""
    problems = [Call.of(case, seed=seed) for case in GRAPH_CASES for seed in (0, 1)]
    results: dict[int, list[torch.Tensor]] = {}
    barrier = threading.Barrier(len(problems))

    def work(number: int) -> None:
        stream = torch.cuda.Stream()
        barrier.wait()
        with torch.cuda.stream(stream):
            results[number] = [problems[number].run() for _ in range(20)]
        stream.synchronize()

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(problems))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == len(problems)
    for number, found in results.items():
        expected = problems[number].run()
        for result in found:
            assert_same_bits(result, expected)


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("case", GRAPH_CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
def test_cuda_graph_sees_new_inputs(case, kind, channels_last):
    """Captured once, replayed with other inputs, weights and biases in the same memory."""
    dtype, precision = CLASSES[kind]
    call = Call.of(case, dtype, precision, channels_last)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call.run()  # as PyTorch's documentation has it: warm up on a side stream
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call.run()
    for seed in (1, 2):
        other = Call.of(case, dtype, precision, channels_last, seed=seed)
        expected = other.run()
        for old, new in ((call.x, other.x), (call.weight, other.weight), (call.bias, other.bias)):
            if old is not None:
                old.copy_(new)
        graph.replay()
        torch.cuda.synchronize()
        assert_same_bits(result, expected, f"seed {seed}")


def test_cuda_graph_of_a_chain():
    """Several calls in one graph: the second reads what the first writes."""
    call = Call.of(named("k4s2p1"))
    weight = torch.randn(6, 4, 3, 3, device="cuda")
    second = Call(call.run(), weight, None).run
    second()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = Call(call.run(), weight, None).run()
    call.x.mul_(-2)
    graph.replay()
    torch.cuda.synchronize()
    assert_same_bits(result, Call(call.run(), weight, None).run())


@pytest.mark.needs_two_gpus
@pytest.mark.parametrize("kind", CLASSES)
def test_a_gpu_that_is_not_the_current_one(kind):
    """Large shared memory is opted in to on every GPU; the current GPU stays."""
    dtype, precision = CLASSES[kind]
    for case in GRAPH_CASES:
        call = Call.of(case, dtype, precision)
        there = call.map(lambda tensor: tensor.to("cuda:1"))
        result = there.run()
        assert result.device.index == 1
        assert torch.cuda.current_device() == 0
        assert_same_bits(result, call.run())


@pytest.mark.needs_two_gpus
def test_current_streams_of_two_gpus():
    """Each GPU's own current stream, whatever the current GPU is."""
    call = Call.of(LONG, device="cuda:1")
    expected = call.run()
    torch.cuda.synchronize(1)
    stream = torch.cuda.Stream(device=1)
    with torch.cuda.stream(stream), torch.cuda.device(0):
        result = call.run()
    stream.synchronize()
    assert_same_bits(result, expected)

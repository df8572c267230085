"""Benchmarks in calls: when they run, and which calls they affect. Times are fake."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch.nn.functional as F
from cpu_kernels import RAN
from served import SeenOps, benchmarks_in_first_calls, switch

import convt_ext
from convt_ext.dispatch import ops, routing
from convt_ext.tuning import benchmark, choices, replay
from convt_ext.tuning.choices import FORWARD, GRAD_INPUT, GRAD_WEIGHT, MEASURED, Choice

pytestmark = pytest.mark.usefixtures("cpu_is_gpu", "nothing_known")


@pytest.fixture
def nothing_known():
    with switch(torch.cuda, "is_current_stream_capturing", lambda: False), benchmarks_in_first_calls():
        yield


@pytest.fixture
def worth_ten_times(nothing_known):
    """A benchmark runs after calls that take ten times as long. Ends before `nothing_known`, which monkeypatch does
    not: its undo would restore a value of that fixture."""
    with switch(benchmark, "_WORTH", 10):
        yield


@pytest.fixture
def benchmarked(monkeypatch):
    """Lists the directions of all benchmarks. `winners` sets the fastest implementation; convt_ext's is candidate 3."""
    found = type("Benchmarked", (list,), {"winners": ("ours", "ours", "ours")})()

    def run(problem, direction, run_ours, run_torch, device):
        found.append(direction)
        run_ours(3)
        run_torch()
        by_torch = found.winners[direction] == "torch"
        return Choice(by_torch, 3, 30.0, 20.0 if by_torch else 400.0, MEASURED)

    monkeypatch.setattr(benchmark, "run", run)
    return found


@pytest.fixture
def numbers(monkeypatch):
    """The preferred candidates of each op of convt_ext."""
    seen = []
    for name, place in (("run_forward", 3), ("run_gradients", 3), ("run_recorded", -1)):
        real = getattr(ops, name)

        def run(*args, name=name, place=place, real=real):
            seen.append((name, ops.remembered(args[place])[12:15]))
            return real(*args)

        monkeypatch.setattr(ops, name, run)
    return seen


def operands(batch=2, dtype=torch.float32):
    shapes = (batch, 4, 5, 6), (4, 6, 3, 3), (6,)
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def step(tensors, call=None, **arguments):
    """Returns result and gradients of a call, by default of convt_ext."""
    result = (call or convt_ext.conv_transpose2d)(*tensors, stride=2, **arguments)
    return result, *torch.autograd.grad(result, tensors, torch.ones_like(result))


def test_each_direction_is_benchmarked_once(benchmarked):
    tensors = operands()
    for _ in range(3):
        for found, expected in zip(step(tensors), step(tensors, F.conv_transpose2d), strict=True):
            assert torch.allclose(found, expected, atol=1e-5)
    assert benchmarked == [FORWARD, GRAD_INPUT, GRAD_WEIGHT]
    step(operands(batch=3))
    assert benchmarked == [FORWARD, GRAD_INPUT, GRAD_WEIGHT] * 2


@pytest.fixture
def after_ten_calls(monkeypatch):
    """A benchmark is worth its time after ten calls of a direction; the cost model's choice, plan 0, runs before."""
    monkeypatch.setattr(benchmark, "calls_before", lambda estimate: 10)


def test_a_shape_is_benchmarked_once_it_has_come_back(benchmarked, numbers, after_ten_calls):
    """The plans change once: directions that are requested at the same time are benchmarked at the same time."""
    tensors = operands()
    for _ in range(10):
        step(tensors)
    assert benchmarked == []
    assert numbers == [("run_recorded", (0, 0, 0)), ("run_gradients", (0, 0, 0))] * 10  # PyTorch's node records them
    step(tensors)
    assert benchmarked == [FORWARD, GRAD_INPUT, GRAD_WEIGHT]
    numbers.clear()
    for _ in range(20):
        step(tensors)
    assert benchmarked == [FORWARD, GRAD_INPUT, GRAD_WEIGHT]
    assert numbers == [("run_recorded", (3, 3, 3)), ("run_gradients", (3, 3, 3))] * 20


@torch.no_grad()
def test_unbatched_calls_are_counted_too(benchmarked, after_ten_calls):
    x, weight, bias = operands()
    for _ in range(11):
        result = convt_ext.conv_transpose2d(x[0], weight, bias, stride=2)
    assert benchmarked == [FORWARD]
    assert torch.allclose(result, F.conv_transpose2d(x[0], weight, bias, stride=2), atol=1e-5)


def test_a_direction_that_is_wanted_later_counts_from_then_on(benchmarked, after_ten_calls):
    x, weight, bias = operands()
    for _ in range(11):
        with torch.no_grad():
            convt_ext.conv_transpose2d(x, weight, bias, stride=2)
    assert benchmarked == [FORWARD]
    for _ in range(10):
        step([x, weight, bias])
    assert benchmarked == [FORWARD]
    step([x, weight, bias])
    assert benchmarked == [FORWARD, GRAD_INPUT, GRAD_WEIGHT]


def test_compiled_programs_count_their_calls(benchmarked, after_ten_calls):
    tensors = operands()
    program = torch.compile(lambda *inputs: convt_ext.conv_transpose2d(*inputs, stride=2), backend="aot_eager")
    for _ in range(12):
        result = program(*tensors)
        torch.autograd.grad(result, tensors, torch.ones_like(result))
    assert sorted(benchmarked) == [FORWARD, GRAD_INPUT, GRAD_WEIGHT]


@torch.no_grad()
def test_frozen_weights_count_their_calls(benchmarked, after_ten_calls):
    module = convt_ext.ConvTranspose2d(4, 6, 3).eval()
    convt_ext.freeze(module)
    for _ in range(11):
        module(torch.randn(2, 4, 5, 6))
    assert benchmarked == [FORWARD]


@pytest.mark.parametrize(("ours_us", "torch_us"), [(5.0, 0.0), (50.0, 80.0), (80.0, 50.0), (5000.0, 9000.0)])
def test_a_benchmark_costs_a_tenth_of_what_the_calls_before_it_took(worth_ten_times, ours_us, torch_us):
    """The estimate of the cost: 60 launches, each with an empty cache, and 50 ms. No clock is read."""
    calls = benchmark.calls_before(Choice(False, 0, ours_us, torch_us, "estimated"))
    us = min(ours_us, torch_us or ours_us)
    assert calls * us == pytest.approx(10 * (50_000 + 60 * (us + 40)), abs=us)
    assert 600 < calls < 120_000


def test_tuning_benchmarks_in_the_first_call(worth_ten_times):
    estimate = Choice(False, 0, 50.0, 80.0, "estimated")
    with benchmark.forced(True):
        assert benchmark.calls_before(estimate) == 0
    assert benchmark.calls_before(estimate) > 0
    assert benchmark.calls_before(estimate._replace(ours_us=float("inf"))) is None


def test_calls_that_ask_for_the_same_results_keep_their_plans(benchmarked, numbers):
    """Results of benchmarks apply only to calls without a precision while benchmarks are enabled."""
    tensors = operands()
    step(tensors)
    numbers.clear()
    step(tensors, precision="exact")
    assert numbers == [("run_recorded", (0, 0, 0)), ("run_gradients", (0, 0, 0))]
    for name, value in (("benchmark", False), ("deterministic", True)):
        with switch(torch.backends.cudnn, name, value):
            numbers.clear()
            step(tensors)
        assert numbers == [("run_recorded", (0, 0, 0)), ("run_gradients", (0, 0, 0))]


@pytest.mark.parametrize(
    "winners", [("torch", "torch", "torch"), ("torch", "ours", "ours"), ("ours", "torch", "torch")]
)
def test_the_winner_of_a_benchmark_runs(benchmarked, winners):
    benchmarked.winners = winners
    tensors = operands()
    step(tensors)
    RAN.clear()
    found = step(tensors)
    names = ("forward", "grad_input", "grad_weight")
    assert set(RAN) - {"grad_bias"} == {names[i] for i, winner in enumerate(winners) if winner == "ours"}
    for one, expected in zip(found, step(tensors, F.conv_transpose2d), strict=True):
        assert torch.allclose(one, expected, atol=1e-5)


def test_autocast_is_left_to_pytorch_where_the_call_is(benchmarked):
    """PyTorch caches casts of parameters; operands without the cast never reach a kernel of convt_ext."""
    benchmarked.winners = ("torch", "torch", "torch")
    tensors = operands()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(2):
            first = step(tensors)
        with SeenOps() as seen:
            step(tensors)
        *operands_now, directions = routing.route(*tensors, 2, 0, 0, 1, 1, None)
    assert first[0].dtype is torch.bfloat16
    assert all(now is tensor for now, tensor in zip(operands_now, tensors, strict=True))
    assert "aten.convolution.default" in seen.names
    for direction in (FORWARD, GRAD_INPUT, GRAD_WEIGHT):
        directions._put(direction, Choice(False, 0, 1.0, 500.0, MEASURED))
    assert not directions.serves(*tensors, 7)
    assert directions.serves(*(tensor.bfloat16() for tensor in tensors), 7)


@contextlib.contextmanager
def deterministic_algorithms():
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    "inside",
    [
        lambda: switch(torch.backends.cudnn, "benchmark", False),
        lambda: switch(torch.backends.cudnn, "deterministic", True),
        deterministic_algorithms,
        replay,
        SeenOps,
    ],
    ids=["benchmark_off", "deterministic", "deterministic_algorithms", "replay", "watched"],
)
def test_contexts_that_disable_benchmarks(benchmarked, inside):
    tensors = operands()
    with inside():
        step(tensors)
    assert benchmarked == []
    step(tensors)
    assert benchmarked == [FORWARD, GRAD_INPUT, GRAD_WEIGHT]


def test_no_benchmark_while_a_graph_is_captured(benchmarked, monkeypatch):
    tensors = operands()
    result = convt_ext.conv_transpose2d(*tensors, stride=2)
    assert benchmarked == [FORWARD]
    for capturing in (True, False):
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda capturing=capturing: capturing)
        torch.autograd.grad(result, tensors, torch.ones_like(result), retain_graph=True)
        assert benchmarked == ([FORWARD] if capturing else [FORWARD, GRAD_INPUT, GRAD_WEIGHT])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    step(operands(batch=3))
    assert len(benchmarked) == 3


def test_no_benchmark_if_the_backward_has_other_switches(benchmarked):
    """PyTorch would compute another class than the forward pass did."""
    x, weight, bias = operands()
    with switch(torch.backends.cudnn, "allow_tf32", True):
        result = convt_ext.conv_transpose2d(x, weight, bias, stride=2)
    torch.autograd.grad(result, (x, weight), torch.ones_like(result))
    assert benchmarked == [FORWARD]


def test_short_memory_leaves_the_choice_to_estimates_for_good(monkeypatch):
    asked = []
    monkeypatch.setattr(benchmark, "run", lambda *arguments: asked.append(arguments[1]))
    tensors = operands()
    for _ in range(2):
        step(tensors)
    assert asked == [FORWARD, GRAD_INPUT, GRAD_WEIGHT]


def test_the_cache_of_choices_is_bounded(monkeypatch):
    monkeypatch.setattr(choices, "_MAX_MEASURED", 3)
    kept = Choice(False, 1, 1.0, 2.0, MEASURED)
    for number in range(5):
        choices.remember(number, FORWARD, kept)
        choices.find(0, FORWARD) if number < 2 else None  # used last, so it goes last
    assert [problem for problem, _, _ in choices.measured()] == [2, 3, 4]

"""Compiled programs choose by benchmarks when they are loaded, before they run. On the CPU, with fake benchmarks."""

from __future__ import annotations

import pytest
import torch
from compiled_choices import X, from_scratch, layer
from cpu_kernels import cpu_is_gpu
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_inductor_cache

from convt_ext import routing
from convt_ext.compile import choice, measure, mode
from convt_ext.tuning import benchmark, choices
from convt_ext.tuning.choices import FORWARD, GRAD_INPUT, GRAD_WEIGHT, MEASURED, Choice

pytestmark = pytest.mark.usefixtures("cpu_is_gpu", "from_scratch")
__all__ = ["cpu_is_gpu", "from_scratch"]


@pytest.fixture
def benchmarked(monkeypatch):
    """Records the benchmarked directions; convt_ext's plan 0 wins each benchmark."""
    found = []

    def run(problem, direction, ours, theirs, device):
        assert not torch.is_grad_enabled()
        ours(0), theirs()
        found.append((direction, problem.has_bias))
        return Choice(False, 0, 5.0, 9.0, MEASURED)

    monkeypatch.setattr(measure, "is_possible", lambda device: benchmark.is_enabled())
    monkeypatch.setattr(benchmark, "is_enabled", lambda: True)
    monkeypatch.setattr(benchmark, "is_possible", lambda: torch.utils._python_dispatch._len_torch_dispatch_stack() == 0)
    monkeypatch.setattr(benchmark, "run", run)
    monkeypatch.setattr(measure, "time_calls", lambda calls, device: [5.0, 9.0, 12.0][: len(calls)])
    choices.forget_measured()
    with fresh_inductor_cache():
        yield found
    choices.forget_measured()


def train(model, x):
    model(x).sum().backward()


def compiled(model):
    torch._dynamo.reset()
    return torch.compile(model, fullgraph=True)


def decided(module, x=X):
    """Returns the sources of the choices for a call's forward pass and gradients."""
    directions = routing.route(x, module.weight, None, (2, 2), (1, 1), (0, 0), 1, (1, 1), None, lowers=False)[3]
    return [None if one is None else one.source for one in directions._choices]


def test_every_direction_is_benchmarked_once_before_a_program_trains(benchmarked):
    module = layer(bias=False)
    x = X.clone().requires_grad_()
    program = compiled(nn.Sequential(module, nn.ReLU()))
    for _ in range(2):
        train(program, x)
    assert sorted(benchmarked) == [(FORWARD, False), (GRAD_INPUT, False), (GRAD_WEIGHT, False)]
    assert decided(module) == [MEASURED] * 3


def test_a_gradient_that_is_not_needed_is_not_benchmarked(benchmarked):
    train(compiled(nn.Sequential(layer(bias=False), nn.ReLU())), X)
    assert sorted(benchmarked) == [(FORWARD, False), (GRAD_WEIGHT, False)]


def test_a_bias_that_stays_in_the_op_is_benchmarked_with_it(benchmarked, monkeypatch):
    monkeypatch.setattr(mode, "MODE", mode.BARE)
    with torch.no_grad():
        compiled(layer())(X)
    assert benchmarked == [(FORWARD, True)]


def test_choices_of_the_cost_model_in_eager_calls_are_replaced(benchmarked):
    module = layer(bias=False)
    with torch.no_grad():
        module(X)
        assert decided(module)[FORWARD] == choices.ESTIMATED
        compiled(module)(X)
    assert decided(module)[FORWARD] == MEASURED


def test_a_program_from_a_cache_on_disk_is_benchmarked_too(benchmarked, monkeypatch):
    monkeypatch.setattr(choice, "inputs", tuple)  # those of fake GPUs cannot be read
    module = layer(bias=False)
    hits = []
    for _ in range(2):
        benchmarked.clear()
        choices.forget_measured()
        routing.forget()
        monkeypatch.setattr(measure, "_known", {})
        counters.clear()
        with torch.no_grad():
            compiled(nn.Sequential(module, nn.Softplus()))(X)
        hits.append(counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"])
        assert (FORWARD, False) in benchmarked
        assert decided(module)[FORWARD] == MEASURED
    assert hits[0] == 0
    assert hits[1] > 0


def test_nothing_is_benchmarked_while_benchmarks_are_disabled(benchmarked, monkeypatch):
    monkeypatch.setattr(benchmark, "is_enabled", lambda: False)
    train(compiled(nn.Sequential(layer(bias=False), nn.ReLU())), X.clone().requires_grad_())
    assert benchmarked == []


def test_sizes_that_are_symbols_are_not_benchmarked(benchmarked):
    with torch.no_grad():
        torch._dynamo.reset()
        torch.compile(layer(bias=False), fullgraph=True, dynamic=True)(X)
    assert benchmarked == []


def test_short_memory_leaves_the_cost_models_choice(benchmarked, monkeypatch):
    def fail(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(benchmark, "run", fail)
    module = layer(bias=False)
    train(compiled(nn.Sequential(module, nn.ReLU())), X)
    measure.choose([FORWARD], (X.shape, X.stride()), (module.weight.shape, module.weight.stride()), False,
                   [2, 2, 1, 1, 0, 0, 1, 1, 1], X.dtype, X.device)  # fmt: skip
    assert decided(module)[FORWARD] == choices.ESTIMATED

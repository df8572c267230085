"""Times on which choices of compiled programs rest: by fake timers and benchmarks, or the cost model. On the CPU."""

from __future__ import annotations

import pytest
import torch
from compiled_choices import VOLUME, X, alternatives, from_scratch, layer, rewritten, volume
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_inductor_cache

from convt_ext.compile import choice, costs, measure, mode
from convt_ext.compile.costs import Layer, Steps, Times
from convt_ext.compile.mode import BARE, FUSED, ORIGINAL
from convt_ext.dispatch import planner, routing
from convt_ext.epilogue import steps as epilogue
from convt_ext.tuning import benchmark, choices
from convt_ext.tuning.choices import FORWARD, GRAD_INPUT, GRAD_WEIGHT, MEASURED, Choice

pytestmark = pytest.mark.usefixtures("cpu_is_gpu", "from_scratch")
__all__ = ["from_scratch"]

# Input 67 MB, result 134 MB, weight 131 KB: the passes below take 42 us (input to channels_last) and 85 us (result).
PROBLEM = planner.Problem(
    (128, 64, 64, 64), (262144, 4096, 64, 1), (64, 32, 4, 4), (512, 16, 4, 1), False, (2, 2), (1, 1), (0, 0), 1, (1, 1),
    torch.bfloat16, 4, False, planner.H200,
)  # fmt: skip
INPUT_US, RESULT_US = (2 + 2 * 2 * elements / 3159.75e3 for elements in (128 * 64 * 64 * 64, 128 * 32 * 128 * 128))


# The cost of each alternative: the kernel's, 100 for convt_ext and 90 for PyTorch, and that of what is around it.
COSTS = {
    "nothing around": (Layer(PROBLEM), {BARE: 100, ORIGINAL: 90}),
    "bias": (Layer(PROBLEM, has_bias=True), {BARE: 100, ORIGINAL: 90 + RESULT_US}),
    "steps": (
        Layer(PROBLEM, True, True, steps=Steps((epilogue.CLAMP,), (0.0, 1.0))),
        {BARE: 100 + RESULT_US, ORIGINAL: 90 + RESULT_US, FUSED: 100 + 0.7 * 67.108864},
    ),
    "a function": (
        Layer(PROBLEM, True, True, steps=Steps((epilogue.TANH,), (0.0, 0.0))),
        {BARE: 100 + RESULT_US, ORIGINAL: 90 + RESULT_US, FUSED: 100 + 2 * 67.108864},
    ),
    "steps for a pass": (
        Layer(PROBLEM, True, True, steps=Steps((epilogue.TANH, epilogue.GELU), (0.0,) * 4)),
        {BARE: 100 + RESULT_US, ORIGINAL: 90 + RESULT_US, FUSED: 100 + 1.15 * RESULT_US},
    ),
    "absorbed": (Layer(PROBLEM, True, True, is_absorbed=True), {BARE: 100, ORIGINAL: 90}),
    "copies to channels_last": (
        Layer(PROBLEM, copies_input=True, copies_result=True),
        {BARE: 100 + INPUT_US + RESULT_US, ORIGINAL: 90 + INPUT_US + RESULT_US},
    ),
    "a pass instead of a copy to channels_last": (
        Layer(PROBLEM, False, True, steps=Steps((epilogue.CLAMP,), (0.0, 1.0)), copies_result=True),
        {BARE: 100 + RESULT_US, ORIGINAL: 90 + RESULT_US, FUSED: 100 + 0.7 * 67.108864 + RESULT_US},
    ),
}


@pytest.mark.parametrize("name", COSTS)
def test_costs(name):
    layer, expected = COSTS[name]
    found = costs.of_alternatives(layer, Times(100, 90, "flat"), name.endswith("channels_last"))
    assert found == pytest.approx(expected)


def test_measured_steps_count_instead_of_the_cost_models():
    norm = Steps((epilogue.MULTIPLY + TENSOR, epilogue.ADD + TENSOR), (0.0,) * 4, ((32, 1, 1),) * 2, are_computed=True)
    times = Times(100, 90, "flat", 105.0, True)
    for steps, computed_us in ((norm, 2), (norm._replace(are_computed=False), 0)):
        found = costs.of_alternatives(Layer(PROBLEM, True, True, steps=steps), times, False)
        assert found[FUSED] == 105 + computed_us


def test_a_problem_in_channels_last():
    turned = costs.turned(PROBLEM)
    assert turned.input_stride == torch.empty(PROBLEM.input_size, memory_format=torch.channels_last).stride()
    assert turned.channels_last


RESULT = (2, 6, 10, 12)
TENSOR = epilogue.HAS_TENSOR


@pytest.mark.parametrize(
    ("operations", "sizes", "family", "fits"),
    [
        ([epilogue.MISH, epilogue.ADD, epilogue.CLAMP, epilogue.MULTIPLY], [], "flat", True),
        ([epilogue.CLAMP, epilogue.MULTIPLY, epilogue.CLAMP], [], "flat", False),
        ([epilogue.MULTIPLY, epilogue.MULTIPLY], [], "flat", True),
        ([epilogue.ADD + TENSOR, epilogue.TANH], [RESULT], "flat", True),
        ([epilogue.ADD + TENSOR, epilogue.TANH], [RESULT], "window", False),
        ([epilogue.SUBTRACT + TENSOR, epilogue.TANH], [(6, 1, 1)], "window", True),
        ([epilogue.MULTIPLY + TENSOR], [(10, 12)], "flat", False),
        ([epilogue.DIVIDE + TENSOR], [(6, 1, 1)], "flat", False),
        ([epilogue.MULTIPLY + TENSOR, epilogue.LEAKY_RELU + TENSOR], [(6, 1, 1), (1,)], "flat", True),
        ([epilogue.TANH, epilogue.LEAKY_RELU], [], "flat", False),
    ],
)  # fmt: skip
def test_steps_that_a_kernel_runs(operations, sizes, family, fits):
    assert Steps(tuple(operations), (), tuple(sizes)).fit(family, RESULT) == fits


def test_a_measured_call_replaces_the_estimates(monkeypatch):
    monkeypatch.setattr(benchmark, "is_enabled", lambda: True)
    assert not costs.known_times(PROBLEM).is_measured
    choices.remember(PROBLEM, FORWARD, Choice(False, 0, 7.0, 9.0, MEASURED))
    try:
        assert costs.known_times(PROBLEM)[:2] == (7.0, 9.0)
        assert costs.known_times(PROBLEM).is_measured
        choices.remember(PROBLEM, FORWARD, Choice(True, 0, 9.0, 7.0, MEASURED))
        assert costs.known_times(PROBLEM)[:3] == (7.0, 7.0, "")  # convt_ext's op would run PyTorch's operator
    finally:
        choices.forget_measured()


@pytest.fixture
def timer(monkeypatch):
    """A timer with fake times (convt_ext's, PyTorch's, fused) that counts its calls."""
    asked = []
    monkeypatch.setattr(benchmark, "is_enabled", lambda: True)
    monkeypatch.setattr(measure, "is_possible", lambda device: True)
    monkeypatch.setattr(benchmark, "run", lambda *_: Choice(False, 0, 5.0, 6.0, MEASURED))

    def set_times(*times):
        def time_calls(calls, device):
            results = [call() for call in calls]
            assert all(one.shape == results[0].shape for one in results)
            asked.append(len(calls))
            return list(times[: len(calls)])

        monkeypatch.setattr(measure, "time_calls", time_calls)
        return asked

    yield set_times
    choices.forget_measured()


@pytest.mark.parametrize(
    ("times", "expected"), [((5.0, 9.0, 4.5), FUSED), ((5.0, 9.0, 12.0), BARE), ((5.0, 2.0, 8.0), ORIGINAL)]
)  # fmt: skip
def test_measured_times_decide_and_are_remembered(timer, times, expected):
    asked = timer(*times)
    model = nn.Sequential(layer(), nn.BatchNorm2d(6), nn.PReLU(), nn.Hardtanh()).eval()
    for _ in range(2):
        assert alternatives(rewritten(model, X)) == [expected]
    assert asked == [3, 3]  # in both layouts, once


@pytest.mark.parametrize(("torch_us", "expected"), [(5.4, BARE), (5.1, ORIGINAL)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last_3d], ids=str)
def test_three_dimensions_are_measured_in_their_layout(timer, torch_us, expected, layout):
    asked = timer(5.0, torch_us)
    x = VOLUME.contiguous(memory_format=layout)
    assert alternatives(rewritten(nn.Sequential(volume(), nn.ReLU()), x)) == [expected]
    assert asked == [2]


def no_memory(*_):
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_where_memory_is_short_the_cost_model_decides(timer, monkeypatch):
    timer(1.0, 1.0)
    monkeypatch.setattr(measure, "time_calls", no_memory)
    assert alternatives(rewritten(layer(), X)) == [BARE]
    assert not measure._known


# ---- programs choose by benchmarks when they are loaded, before they run


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


def compiled(model, **named):
    torch._dynamo.reset()
    return torch.compile(model, fullgraph=True, **named)


def train(model, x):
    compiled(nn.Sequential(model, nn.ReLU()))(x).sum().backward()


def decided(module, x=X):
    """Returns the sources of the choices for a call's forward pass and gradients."""
    directions = routing.route(x, module.weight, None, 2, 1, 0, 1, 1, None, lowers=False, dims=x.dim() - 2)[3]
    return [None if one is None else one.source for one in directions._choices]


@pytest.mark.parametrize(("make", "x"), [(layer, X), (volume, VOLUME)], ids=["2d", "3d"])
def test_every_direction_is_benchmarked_once_before_a_program_trains(benchmarked, make, x):
    module = make(bias=False)
    x = x.clone().requires_grad_()
    program = compiled(nn.Sequential(module, nn.ReLU()))
    for _ in range(2):
        program(x).sum().backward()
    assert sorted(benchmarked) == [(FORWARD, False), (GRAD_INPUT, False), (GRAD_WEIGHT, False)]
    assert decided(module, x) == [MEASURED] * 3


def test_a_gradient_that_is_not_needed_is_not_benchmarked(benchmarked):
    train(layer(bias=False), X)
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
    train(layer(bias=False), X.clone().requires_grad_())
    assert benchmarked == []


def test_sizes_that_are_symbols_are_not_benchmarked(benchmarked):
    with torch.no_grad():
        compiled(layer(bias=False), dynamic=True)(X)
    assert benchmarked == []


def test_short_memory_leaves_the_cost_models_choice(benchmarked, monkeypatch):
    monkeypatch.setattr(benchmark, "run", no_memory)
    module = layer(bias=False)
    train(module, X)
    measure.choose([FORWARD], (X.shape, X.stride()), (module.weight.shape, module.weight.stride()), False,
                   [2, 2, 1, 1, 0, 0, 1, 1, 1], X.dtype, X.device)  # fmt: skip
    assert decided(module)[FORWARD] == choices.ESTIMATED

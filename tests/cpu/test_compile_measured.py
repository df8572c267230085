"""Times on which choices of compiled programs rest: measured by a fake timer, or by the cost model. On the CPU."""

from __future__ import annotations

import pytest
import torch
from compiled_choices import X, alternatives, from_scratch, layer, rewritten
from cpu_kernels import cpu_is_gpu
from torch import nn

from convt_ext import epilogue, planner
from convt_ext.compile import costs, measure
from convt_ext.compile.costs import Layer, Times
from convt_ext.compile.mode import BARE, FUSED, ORIGINAL
from convt_ext.compile.steps import Steps
from convt_ext.tuning import benchmark, choices

pytestmark = pytest.mark.usefixtures("cpu_is_gpu", "from_scratch")
__all__ = ["cpu_is_gpu", "from_scratch"]

# Input 67 MB, result 134 MB, weight 131 KB: the passes below take 42 us (input to channels_last) and 85 us (result).
PROBLEM = planner.Problem(
    (128, 64, 64, 64), (262144, 4096, 64, 1), (64, 32, 4, 4), (512, 16, 4, 1), False, (2, 2), (1, 1), (0, 0), 1, (1, 1),
    torch.bfloat16, 4, False, planner.H200,
)  # fmt: skip
INPUT_US, RESULT_US = (2 + 2 * 2 * elements / 3159.75e3 for elements in (128 * 64 * 64 * 64, 128 * 32 * 128 * 128))


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
        {BARE: 100 + RESULT_US, ORIGINAL: 90 + RESULT_US, FUSED: 100 + 2 * RESULT_US},
    ),
    "absorbed": (Layer(PROBLEM, True, True, is_absorbed=True), {BARE: 100, ORIGINAL: 90}),
}
TURNED = {
    "copies": (
        Layer(PROBLEM, copies_input=True, copies_result=True),
        dict.fromkeys((BARE, ORIGINAL), INPUT_US + RESULT_US),
    ),
    "a pass instead of the copy": (
        Layer(PROBLEM, False, True, steps=Steps((epilogue.CLAMP,), (0.0, 1.0)), copies_result=True),
        {BARE: RESULT_US, ORIGINAL: RESULT_US, FUSED: 0.7 * 67.108864 + RESULT_US},
    ),
}


@pytest.mark.parametrize("name", COSTS)
def test_costs(name):
    layer, expected = COSTS[name]
    assert costs.of_alternatives(layer, Times(100, 90, "flat"), False) == pytest.approx(expected)


@pytest.mark.parametrize("name", TURNED)
def test_costs_in_channels_last(name):
    layer, expected = TURNED[name]
    found = costs.of_alternatives(layer, Times(100, 90, "flat"), True)
    assert found == pytest.approx({one: us + (90 if one == ORIGINAL else 100) for one, us in expected.items()})


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
    choices.remember(PROBLEM, choices.FORWARD, choices.Choice(False, 0, 7.0, 9.0, choices.MEASURED))
    try:
        assert costs.known_times(PROBLEM)[:2] == (7.0, 9.0)
        assert costs.known_times(PROBLEM).is_measured
        choices.remember(PROBLEM, choices.FORWARD, choices.Choice(True, 0, 9.0, 7.0, choices.MEASURED))
        assert costs.known_times(PROBLEM)[:3] == (7.0, 7.0, "")  # convt_ext's op would run PyTorch's operator
    finally:
        choices.forget_measured()


@pytest.fixture
def timer(monkeypatch):
    """A timer with fake times (convt_ext's, PyTorch's, fused) that counts its calls."""
    asked = []
    monkeypatch.setattr(benchmark, "is_enabled", lambda: True)
    monkeypatch.setattr(measure, "is_possible", lambda device: True)
    monkeypatch.setattr(benchmark, "run", lambda *_: choices.Choice(False, 0, 5.0, 6.0, choices.MEASURED))

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


def test_where_memory_is_short_the_cost_model_decides(timer, monkeypatch):
    timer(1.0, 1.0)

    def fail(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(measure, "time_calls", fail)
    assert alternatives(rewritten(layer(), X)) == [BARE]
    assert not measure._known

"""routing.py: which calls convt_ext runs, and in which class. Uses fake GPU tensors: the decision reads no data.
test_routing_reasons.py tests calls that PyTorch's operator runs."""

from __future__ import annotations

import timeit

import numpy as np
import pytest
import torch
from cases import each_case
from cpu_kernels import needs_binary
from pretend_gpu import decide, operands
from served import cuda_autocast, tf32

from convt_ext import explain, use_precision
from convt_ext.bench.layers import KERNELBENCH
from convt_ext.dispatch import planner, routing
from convt_ext.dispatch.request import PRECISIONS

pytestmark = pytest.mark.usefixtures("pretend_gpu")


@pytest.fixture
def no_tf32(monkeypatch):
    monkeypatch.setattr(routing.precisions, "class_by_switches", lambda dtype, capability: "ieee")


def native(*operands, **named):
    """Returns the operands and arguments of a call that convt_ext may run."""
    decision = decide(*operands, **named)
    assert not isinstance(decision, routing.Reason), decision
    return decision[3]


def arguments_of(*operands, **named):
    return native(*operands, **named).arguments


def choice_of(*operands, **named):
    """Returns the choice for the forward pass."""
    return native(*operands, **named).choice(0)


def empty(*sizes, dtype=torch.float32):
    return [torch.empty(size, dtype=dtype, device="cuda") for size in sizes]


CODE, CHANNELS_LAST = 5, 6


@each_case()
def test_every_case_reaches_the_op(case):
    """An explicit precision never falls back on PyTorch for a legal problem."""
    x, weight, bias = empty((case.n, case.c_in, case.h, case.w), (case.c_in, case.c_out // case.g, *case.k), case.c_out)
    found = arguments_of(x, weight, bias if case.bias else None, *case.arguments.values(), precision="exact")
    assert found[:6] == (case.s, case.p, case.op, case.g, case.d, 0)


def test_ints_become_pairs_and_an_unbatched_input_gets_a_batch():
    x, weight, _ = operands()
    decision = decide(x.select(0, 0), weight, precision="tf32")
    assert decision[0].shape == (1, 4, 5, 6)
    assert decision[3].arguments == ((2, 2), (1, 1), (0, 0), 1, (1, 1), 3, False)


@pytest.mark.parametrize("groups", [1, np.int64(1)], ids=["int", "numpy"])
def test_groups_become_an_int(groups):
    found = arguments_of(*operands(), groups=groups, precision="exact")[3]
    assert type(found) is int
    assert found == 1


@pytest.mark.parametrize("name", ["stride", "padding", "output_padding", "dilation", "groups"])
@pytest.mark.parametrize("value", [1.5, 1.0, True, [1, 1, 1], {}], ids=str)
def test_one_argument_that_is_no_int_is_pytorchs(name, value):
    """Even if the call with an int is cached: 1, 1.0 and True compare equal."""
    decide(*operands(), **{name: 1}, precision="exact")
    assert decide(*operands(), **{name: value}, precision="exact") is routing.ARGUMENTS


def test_cached_decisions_depend_on_switches():
    for _ in range(2):
        for on, code in ((True, 3), (False, 0)):
            with tf32(on):
                assert arguments_of(*operands())[CODE] == code
        assert arguments_of(*operands(), precision="exact")[CODE] == 0


@pytest.mark.parametrize(("word", "code"), [("exact", 0), ("aten", 1), ("tf32x3", 2), ("tf32", 3)])
def test_precisions_have_codes(word, code):
    assert arguments_of(*operands(), precision=word)[CODE] == code
    with use_precision(word):
        assert arguments_of(*operands())[CODE] == code


@needs_binary
@pytest.mark.parametrize(("dtype", "code"), [(torch.float32, 3), (torch.float16, 4), (torch.bfloat16, 4)])
def test_tensor_cores_of_hopper_run_convt_ext_unless_it_is_slower(dtype, code, monkeypatch):
    monkeypatch.setattr(routing.precisions, "class_by_switches", lambda *_: {3: "tf32", 4: "bf16"}[code])
    kb71 = empty((8, 32, 512, 1024), (32, 32, 3, 3), dtype=dtype)
    assert arguments_of(*kb71, stride=1, padding=0)[CODE] == code
    assert not choice_of(*kb71, stride=1, padding=0).by_torch
    many_taps = empty((1, 2, 3, 3), (2, 3, 64, 64), dtype=dtype)
    choice = choice_of(*many_taps, stride=1, padding=0)
    assert choice.by_torch
    assert "PyTorch about" in choice.why()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("word", ["aten", "tf32x3", "tf32"])
def test_precisions_only_for_float32(dtype, word, a100):
    with pytest.raises(ValueError, match='precision="exact"'):
        decide(*operands(dtype), precision=word)
    with use_precision(word):  # in a context, this precision applies only to float32
        decision = decide(*operands(dtype))
    assert (decision is routing.TENSOR_CORES) == (dtype is not torch.float64)


def test_memory_format_follows_the_strides():
    x, weight, _ = operands()
    last = x.to(memory_format=torch.channels_last)
    assert arguments_of(last, weight, precision="exact")[CHANNELS_LAST] is True
    assert arguments_of(x, weight.to(memory_format=torch.channels_last), precision="exact")[CHANNELS_LAST] is True
    assert arguments_of(last.double(), weight.double(), precision="exact")[CHANNELS_LAST] is False
    assert arguments_of(last, weight, stride=1, output_padding=1, dilation=2, precision="exact")[CHANNELS_LAST] is False


@needs_binary
@pytest.mark.parametrize("layer", KERNELBENCH, ids=lambda layer: layer.name)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["nchw", "nhwc"])
def test_by_default_the_faster_implementation_runs(layer, layout, no_tf32):
    x, weight = (
        torch.empty(shape, device="cuda").to(memory_format=layout) for shape in (layer.input_shape, layer.weight_shape)
    )
    choice = choice_of(x, weight, **layer.arguments)
    assert choice.by_torch == (layer.name in ("kb65", "kb69"))  # cuDNN uses a transform there
    assert "PyTorch about" in choice.why()
    assert arguments_of(x, weight, **layer.arguments)[CODE] == 0
    for word in set(PRECISIONS) - {"half"}:
        native(x, weight, **layer.arguments, precision=word)
        with use_precision(word):
            native(x, weight, **layer.arguments)


@needs_binary
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_precision_half_runs_convt_ext(dtype):
    x, weight = empty((8, 64, 512, 512), (64, 64, 3, 3), dtype=dtype)
    by_default = explain(x, weight, stride=2, padding=1)
    assert (by_default.served_by == "torch") == ("precision='half' runs convt_ext" in by_default.reason)
    assert arguments_of(x, weight, precision="half")[CODE] == 4
    with use_precision("half"):
        assert arguments_of(x, weight)[CODE] == 4
        assert arguments_of(x.float(), weight.float(), precision="exact")[CODE] == 0


@needs_binary
def test_float64_and_aten_are_compared_too(monkeypatch):
    x, weight = empty((64, 64, 128, 256), (64, 128, 3, 5))
    assert choice_of(x.double(), weight.double()).by_torch
    assert arguments_of(x.double(), weight.double(), precision="exact")[CODE] == 0
    monkeypatch.setattr(routing.precisions, "class_by_switches", lambda dtype, capability: "aten")
    assert arguments_of(x, weight)[CODE] == 1
    assert not choice_of(x, weight).by_torch  # PyTorch's columns take far longer here
    assert choice_of(*empty((1, 256, 37, 37), (256, 256, 4, 4)), stride=4).by_torch


@needs_binary
def test_a_comparison_is_made_once(no_tf32, monkeypatch):
    questions = []

    def best_plan(*arguments):
        questions.append(arguments)
        return planner.BestPlan(30.0, 20.0, 0)

    monkeypatch.setattr(planner, "best_plan", best_plan)
    x, weight, bias = operands()
    for _ in range(3):
        assert choice_of(x, weight, bias).why() == "estimated 30 us for convt_ext, PyTorch about 20 us"
        choice_of(x, weight, bias, stride=(2, 2), padding=[1])
    assert len(questions) == 1
    choice_of(x, weight)  # without a bias, and so on: other problems
    choice_of(x, weight, bias, padding=0)
    choice_of(x.to(memory_format=torch.channels_last), weight, bias)
    assert [problem.has_bias for problem, _ in questions] == [True, False, True, True]


@needs_binary
@pytest.mark.parametrize(("torch_us", "by_torch"), [(0.0, False), (0.5, True), (29.5, True), (30.0, False)])
def test_convt_ext_runs_calls_at_which_pytorch_is_not_faster(no_tf32, monkeypatch, torch_us, by_torch):
    """A time of 0 is unknown."""
    monkeypatch.setattr(planner, "best_plan", lambda *_: planner.BestPlan(30.0, torch_us, 0))
    assert choice_of(*operands()).by_torch == by_torch


@needs_binary
def test_pytorch_runs_problems_without_a_tile(no_tf32):
    """One position of the weight exceeds shared memory; with an explicit precision the op raises an error."""
    x, weight = empty((1, 131072, 1, 1), (131072, 1, 16384, 1))
    arguments = {"stride": (16384, 1), "padding": 0, "groups": 131072}
    choice = choice_of(x, weight, **arguments)
    assert choice.by_torch
    assert choice.why() == "no convt_ext kernel supports this problem"
    assert arguments_of(x, weight, **arguments, precision="exact")[CODE] == 0
    found = explain(x, weight, **arguments)
    assert (found.served_by, found.plan) == ("torch", None)
    assert "no convt_ext kernel" in str(found)
    with pytest.raises(ValueError, match="no kernel's tile fits"):
        explain(x, weight, **arguments, precision="exact")


@pytest.mark.parametrize("which", [0, 1, 2])
def test_gradients_are_no_reason(which):
    arguments = operands()
    arguments[which].requires_grad_()
    assert arguments_of(*arguments, precision="exact")[CODE] == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_autocast_casts(dtype, a100):
    x, weight, bias = operands(dtype)
    with cuda_autocast(torch.bfloat16):
        decision = decide(x, weight, bias, precision="exact")
        default = decide(x, weight, bias)
        words = "autocast casts the input to bfloat16: make" if dtype is torch.float32 else "the input is .*: leave"
        with pytest.raises(ValueError, match=words):
            decide(x, weight, bias, precision="aten")
    expected = torch.float64 if dtype is torch.float64 else torch.bfloat16
    assert all(tensor.dtype is expected for tensor in decision[:3])
    assert (default is routing.TENSOR_CORES) == (dtype is not torch.float64)


def test_a_decision_costs_microseconds():
    """An upper bound with room for a slow machine; the target on the hot path is a third of it."""
    x, weight, bias = operands()
    with torch.no_grad():
        seconds = min(timeit.repeat(lambda: decide(x, weight, bias, precision="exact"), number=200, repeat=5)) / 200
    assert seconds < 200e-6

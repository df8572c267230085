"""Compiled programs take the alternative that fake times make the fastest. On the CPU."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from compiled_choices import VOLUME, X, alternatives, from_scratch, layer, rewritten, turns, volume
from torch import nn
from torch._inductor import config
from torch._inductor.graph import GraphLowering
from torch._inductor.utils import run_and_get_code

import convt_ext
from convt_ext import conv_transpose2d as ours
from convt_ext.compile import choice, costs, fusion, inductor
from convt_ext.compile import mode as compile_mode
from convt_ext.compile.costs import Times
from convt_ext.compile.mode import AUTO, BARE, FUSED, ORIGINAL
from convt_ext.tuning import benchmark, choices, files

pytestmark = pytest.mark.usefixtures("cpu_is_gpu", "from_scratch")
__all__ = ["from_scratch"]

# Times in microseconds with which each alternative is the fastest: a pass over such a small result needs about 2.
FAST = {FUSED: Times(2.0, 100.0, "flat"), BARE: Times(50.0, 100.0, "flat"), ORIGINAL: Times(100.0, 50.0, "flat")}


@pytest.fixture
def pretend(monkeypatch):
    """Sets the times of every layer, those in channels_last if they differ."""

    def set_times(times, turned=None):
        monkeypatch.setattr(
            costs, "known_times", lambda problem: turned if turned and problem.input_stride[1] == 1 else times
        )

    return set_times


@pytest.mark.parametrize("name", FAST)
def test_the_fastest_is_taken(pretend, name):
    pretend(FAST[name])
    graph = rewritten(nn.Sequential(layer(), nn.ReLU()), X)
    assert alternatives(graph) == [name]
    assert (F.relu in [node.target for node in graph.nodes]) == (name != FUSED)


@pytest.mark.parametrize(
    ("ours_us", "torch_us", "is_measured", "is_ours"),
    [
        *[(1e4, 1.09e4, False, False), (1e4, 1.11e4, False, True)],
        *[(1e4, 1.04e4, True, False), (1e4, 1.06e4, True, True)],
        (2.0, math.inf, False, True),  # without a time of PyTorch
        (math.inf, math.inf, False, False),  # without a kernel
    ],
)
def test_convt_ext_runs_if_it_is_faster_by_a_margin(pretend, ours_us, torch_us, is_measured, is_ours):
    pretend(Times(ours_us, torch_us, "", None, is_measured))
    assert alternatives(rewritten(layer(bias=False), X)) == [BARE if is_ours else ORIGINAL]


READERS = {
    "output": (lambda y: y, True),
    "convolution": (nn.Conv2d(6, 4, 3), True),
    "linear": (nn.Linear(12, 3), True),
    "linear of a view": (lambda y: F.linear(y.flatten(1), torch.ones(3, 720)), True),
    "another of ours": (convt_ext.ConvTranspose2d(6, 4, 2), True),
    "pooling": (nn.MaxPool2d(2), False),
    "softmax": (lambda y: torch.softmax(y, 1), False),
    "group norm": (nn.GroupNorm(2, 6), False),
    "mean": (lambda y: y.mean((2, 3)), False),
    "cat": (lambda y: torch.cat([y, y], 1), False),
    "pointwise": (torch.erf, False),
    "min": (lambda y: torch.min(y, 1)[0], False),
    "convolution and pooling": (lambda y: (F.conv2d(y, torch.ones(1, 6, 1, 1)), F.max_pool2d(y, 2)), False),
}


@pytest.mark.parametrize("name", READERS)
def test_steps_are_fused_only_where_a_pass_disappears(pretend, name):
    after, is_fused = READERS[name]
    pretend(FAST[FUSED])
    model = layer()
    graph = rewritten(lambda x: after(model(x).relu()), X)
    assert alternatives(graph)[0] == (FUSED if is_fused else BARE)


def test_steps_that_no_kernel_runs_in_their_order_are_left_to_inductor(pretend):
    pretend(FAST[FUSED])
    assert alternatives(rewritten(nn.Sequential(layer(), nn.Hardtanh(0, 1), nn.Tanh()), X)) == [BARE]
    assert alternatives(rewritten(nn.Sequential(layer(), nn.Tanh(), nn.Hardtanh(0, 1)), X)) == [FUSED]


@pytest.mark.parametrize(("name", "num_norms"), [(FUSED, 0), (BARE, 1), (ORIGINAL, 1)])
def test_a_norm_becomes_steps_only_where_steps_are_fused(pretend, monkeypatch, name, num_norms):
    monkeypatch.setattr(costs, "_RATE", 5e-4)  # a pass is slower than the kernel that computes the factors
    pretend(FAST[name])
    graph = rewritten(nn.Sequential(layer(), nn.BatchNorm2d(6), nn.ReLU()).eval(), X)
    assert alternatives(graph) == [name]
    assert sum(node.target is F.batch_norm for node in graph.nodes) == num_norms


def test_the_program_of_the_original_is_that_of_the_unconverted_model(pretend):
    pretend(FAST[ORIGINAL])
    torch.manual_seed(0)
    theirs = nn.Sequential(nn.ConvTranspose2d(8, 6, 4, 2, 1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2))
    theirs = nn.Sequential(theirs, nn.ConvTranspose2d(6, 5, 3, 2, output_padding=1, dilation=2), nn.GELU()).eval()
    programs = []
    for model in (theirs, convt_ext.convert(theirs)):
        torch._dynamo.reset()
        with torch.no_grad(), config.patch(force_disable_caches=True):
            _, codes = run_and_get_code(torch.compile(model, fullgraph=True), X)
        programs.append([code[code.index("def call(") : code.index("runner =")] for code in codes])
    assert isinstance(theirs[1], convt_ext.ConvTranspose2d)
    assert programs[0] == programs[1]


def test_a_network_is_turned_to_channels_last_if_that_is_faster(pretend):
    model = nn.Sequential(layer(32, 48), nn.ReLU(), layer(48, 32), nn.Tanh())
    x = torch.rand(2, 32, 5, 6)
    for as_traced, in_channels_last, is_turned in ((90.0, 30.0, True), (30.0, 90.0, False)):
        freezing = is_turned
        pretend(Times(as_traced, 500.0, "flat"), Times(in_channels_last, 500.0, "flat"))
        torch._dynamo.reset()
        assert turns(rewritten(model, x)) == [is_turned] * 2
        torch._dynamo.reset()
        with torch.no_grad(), config.patch(force_disable_caches=True, freezing=freezing):
            found, codes = run_and_get_code(torch.compile(model, fullgraph=True), x)
            expected = model(x)
        calls = [line for line in codes[0].splitlines() if "= convt_ext_run_forward(" in line]
        # With freezing, torch 2.10 passes no sizes on: then the program is the original.
        assert [line.rstrip().endswith(", True)") for line in calls] in ([is_turned] * 2, *([[]] if freezing else []))
        assert found.stride() == expected.stride()
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_a_network_that_a_release_cannot_turn_is_the_original_or_stays(pretend, monkeypatch):
    monkeypatch.setattr(GraphLowering, "decide_layout_opt", staticmethod(lambda gm, *, is_inference: False))
    for as_traced, expected in ((90.0, BARE), (490.0, ORIGINAL)):
        pretend(Times(as_traced, 500.0, "flat"), Times(30.0, 500.0, "flat"))
        torch._dynamo.reset()
        graph = rewritten(layer(), X)
        assert alternatives(graph) == [expected]
        assert not any(turns(graph))


@pytest.mark.parametrize("after", [nn.MaxPool2d(2), nn.Conv2d(6, 4, 3)], ids=["pooling", "convolution"])
def test_a_network_that_is_faster_in_channels_last_does_not_stay(pretend, after):
    """For its other operations the layer alone does not decide: PyTorch's would be channels_last."""
    pretend(Times(10.0, 500.0, "flat"), Times(300.0, 200.0, "flat"))
    assert alternatives(rewritten(nn.Sequential(layer(), nn.GELU(), after), X)) == [ORIGINAL]


def test_grouped_convolutions_keep_a_network_as_it_is(pretend):
    pretend(Times(20.0, 200.0, ""), Times(300.0, 100.0, ""))
    graph = rewritten(layer(groups=2), X)
    assert alternatives(graph) == [BARE]
    assert not any(turns(graph))


def test_symbolic_sizes_keep_the_op(pretend):
    pretend(FAST[ORIGINAL])
    model = nn.Sequential(layer(), nn.ReLU())
    assert alternatives(rewritten(model, X, dynamic=True)) == [BARE]
    assert alternatives(rewritten(model, X, dynamic=False)) == [ORIGINAL]


def test_an_explicit_precision_is_never_pytorchs(pretend):
    pretend(FAST[ORIGINAL])
    graph = rewritten(nn.Sequential(layer(precision="exact"), nn.ReLU()), X)
    assert [node.target for node in graph.nodes if "convt_ext" in str(node.target)] == [convt_ext.dispatch.ops.forward]


@pytest.mark.parametrize("is_ours", [False, True])
def test_training_is_the_original_where_pytorch_computes_every_direction(monkeypatch, is_ours):
    def estimated(problem, direction):
        return choices.Choice(not (is_ours and direction == choices.GRAD_WEIGHT), 0, 1.0, 2.0, choices.ESTIMATED)

    monkeypatch.setattr(choices, "estimated", estimated)
    graph = rewritten(nn.Sequential(layer(), nn.ReLU()), X, trains=True)
    assert alternatives(graph) == [BARE if is_ours else ORIGINAL]


@pytest.mark.parametrize("name", [FUSED, BARE])
def test_in_training_an_activation_is_fused_where_that_is_faster(pretend, monkeypatch, name):
    pretend(FAST[name])
    monkeypatch.setattr(costs, "known_choice", lambda *_: choices.Choice(False, 0, 1.0, 2.0, choices.ESTIMATED))
    assert alternatives(rewritten(nn.Sequential(layer(), nn.ReLU()), X, trains=True)) == [name]
    assert alternatives(rewritten(nn.Sequential(layer(), nn.ReLU(), nn.MaxPool2d(2)), X, trains=True)) == [BARE]


@pytest.mark.parametrize(
    ("times", "expected"),
    [(FAST[FUSED], BARE), (FAST[BARE], BARE), (FAST[ORIGINAL], ORIGINAL), (Times(2.0, math.inf, "flat"), ORIGINAL)],
)
def test_three_dimensions_are_bare_where_that_is_faster_than_a_known_time(pretend, times, expected):
    pretend(times)
    for x in (VOLUME, VOLUME.contiguous(memory_format=torch.channels_last_3d)):
        graph = rewritten(nn.Sequential(volume(), nn.ReLU()), x)
        assert alternatives(graph) == [expected]
        assert not any(turns(graph))


@pytest.mark.parametrize(("torch_us", "expected"), [(11.5, BARE), (10.5, ORIGINAL), (0.0, ORIGINAL)])
def test_three_dimensions_train_as_the_original_without_a_margin(monkeypatch, torch_us, expected):
    def estimated(problem, direction):
        return choices.Choice(direction != choices.GRAD_WEIGHT, 0, 10.0, torch_us, choices.ESTIMATED)

    monkeypatch.setattr(choices, "estimated", estimated)
    assert alternatives(rewritten(nn.Sequential(volume(), nn.ReLU()), VOLUME, trains=True)) == [expected]


@pytest.mark.parametrize("is_ours", [False, True])
def test_a_network_of_two_and_three_dimensions(monkeypatch, is_ours):
    """The three-dimensional layer requests no format, and the original is a convolution of PyTorch."""

    def known_times(problem):
        return Times(30.0 if is_ours or len(problem.input_size) == 4 else 600.0, 500.0, "")

    monkeypatch.setattr(costs, "known_times", known_times)
    first, second = layer(), volume(6)
    graph = rewritten(lambda x: second(first(x)[:, :, None]), X)
    assert alternatives(graph) == [BARE, BARE if is_ours else ORIGINAL]
    assert turns(graph) == ([True, False] if is_ours else [False])
    assert inductor._asks_to_turn(graph) == is_ours


def test_the_variable():
    assert compile_mode._forced({}) == compile_mode._forced({"CONVT_EXT_COMPILE": ""}) == AUTO
    for mode in (AUTO, BARE, FUSED, ORIGINAL):
        assert compile_mode._forced({"CONVT_EXT_COMPILE": mode}) == mode
    message = "CONVT_EXT_COMPILE: it must be auto, fused, bare or original, but is 'fuse'"
    with pytest.warns(RuntimeWarning, match=message):
        assert compile_mode._forced({"CONVT_EXT_COMPILE": "fuse"}) == AUTO


@pytest.mark.parametrize("mode", [FUSED, ORIGINAL])
def test_the_variable_overrides_the_times(pretend, monkeypatch, mode):
    monkeypatch.setattr(compile_mode, "MODE", mode)
    pretend(FAST[BARE])
    assert alternatives(rewritten(nn.Sequential(layer(), nn.ReLU()), X)) == [mode]
    three_dimensional = rewritten(nn.Sequential(volume(), nn.ReLU()), VOLUME)
    assert alternatives(three_dimensional) == [BARE if mode == FUSED else mode]


INPUTS = {
    "variable": lambda patch: patch.setattr(compile_mode, "MODE", FUSED),
    "GPU": lambda patch: patch.setattr(choice.planner, "device_numbers", lambda index: (80, 1, 1, 1, 1, 1)),
    "cuDNN": lambda patch: patch.setattr(torch.backends.cudnn, "version", lambda: 12345),
    "binary": lambda patch: patch.setattr(choice._extension, "build_info", lambda: {"sources": "another"}),
    "tuning file": lambda patch: patch.setattr(files, "in_force", lambda: iter([("a.json", {})])),
    "benchmark": lambda patch: patch.setattr(benchmark, "is_enabled", lambda: True),
    "TF32": lambda patch: patch.setattr(choice.precision, "tf32_switch", lambda: "another"),
    "cuDNN enabled": lambda patch: patch.setattr(choice.precision, "cudnn_enabled", lambda: False),
}


@pytest.mark.parametrize("name", INPUTS)
def test_cache_keys_contain_every_input_of_a_choice(monkeypatch, name):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    before = fusion.Fusion(()).uuid()
    assert before == fusion.Fusion(()).uuid()
    with config.patch(layout_optimization=False):
        assert fusion.Fusion(()).uuid() != before
    INPUTS[name](monkeypatch)
    assert fusion.Fusion(()).uuid() != before


def test_calls_of_the_function_have_a_choice_too(pretend):
    pretend(FAST[ORIGINAL])
    weight = torch.rand(8, 6, 4, 4)
    assert alternatives(rewritten(lambda x: ours(x, weight, stride=2), X)) == [ORIGINAL]

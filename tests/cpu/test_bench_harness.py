"""`python -m harness --programs` and `--steps` without a GPU: models, rows, loops, figures, and the files."""

from __future__ import annotations

import itertools
import math
from functools import partial

import bench_cpu
import pytest
import torch
from harness import program_report, program_rows, program_sets, steps
from harness.drawn_programs import DRAWN
from harness.layer_programs import LAYER_PROGRAMS, LEVEL2, LayerProgram, layer_of
from harness.programs import PROGRAMS, CLIPSegDecoder, Program
from torch import nn

import convt_ext
from convt_ext.bench.layers import Layer
from convt_ext.compile import choice
from convt_ext.demo.models import DCGANGenerator

CPU = torch.device("cpu")
ROW_KEYS = [
    *("program", "dtype", "batch", "mode", "inputs", "ours_us", "torch_us", "bare_us", "ours_wall_us", "torch_wall_us"),
    *("error", "torch_error", "choices", "ours_kernels", "torch_kernels", "ours_first_s", "torch_first_s"),
]


def small(program):
    """The program with few channels and images, for a CPU."""
    layer = program.layer
    sizes = {"n": 2, "c_in": layer.c_in // 32, "c_out": layer.c_out // 32, "h": 5, "w": 5}
    return LayerProgram(Layer(**{**vars(layer), **sizes}), program.follow, program.limit, program.has_residual)


TINY = tuple(map(small, LAYER_PROGRAMS))
GENERATOR = Program("generator", partial(DCGANGenerator, width=2), ((2, 100, 1, 1),))
DECODER = Program("decoder", partial(CLIPSegDecoder, 8, 12, 6), (*[(2, 1 + 2 * 2, 12)] * 3, (2, 6)), "infer")


class Timer(bench_cpu.FakeTimer):
    """Reports 10 µs for convt_ext, 30 for PyTorch, and 8 for the layer, and keeps the results of the calls."""

    def __init__(self):
        super().__init__(10.0, 30.0, 8.0)
        self.results = []

    def times_us(self, calls):
        self.results.append([call() for call in calls])
        return list(self.times[: len(calls)])

    def num_kernels(self, call):
        return 3


@pytest.fixture
def converted(monkeypatch):
    """Records the arguments of `convert`, and fuses nothing: other files test fusing."""
    asked = []
    really = convt_ext.convert

    def convert(model, precision=None, fuse=False):
        asked.append((type(model), fuse))
        return really(model, precision)

    monkeypatch.setattr(convt_ext, "convert", convert)
    return asked


@pytest.fixture(autouse=True)
def quick_rows(monkeypatch):
    """Nothing is compiled or kept on a GPU, so that nothing is to be freed after each row."""
    monkeypatch.setattr(torch.compiler, "reset", lambda: None)
    monkeypatch.setattr(program_rows, "free_memory", lambda device: None)


@pytest.fixture
def few_steps(monkeypatch):
    for name, number in {"_WARM_UP": 1, "_MIN_STEPS": 1, "_LOOPS": 2}.items():
        monkeypatch.setattr(steps, name, number)


def measure(mode, chosen=TINY, timer=None, dtypes=("float32",)):
    cases = [program_rows.Case(program, dtype, mode) for program in chosen for dtype in dtypes]
    return list(program_rows.run(cases, CPU, timer or Timer(), 0.01))


def measure_steps(*chosen):
    return list(steps.run(chosen, CPU, 0.01))


# ---- programs


@pytest.mark.parametrize("program", [*TINY, *DRAWN, *LEVEL2, DECODER], ids=lambda program: program.name)
def test_every_input_of_a_program_counts(program):
    torch.manual_seed(1)
    model = program.make_model().eval()
    is_tiny = program in (*TINY, DECODER)
    shapes = (
        program.inputs if is_tiny else [(2, shape[1], *(min(one, 8) for one in shape[2:])) for shape in program.inputs]
    )
    inputs = [torch.rand(shape) for shape in shapes]
    with torch.no_grad():
        result = model(*inputs)
        for index, given in enumerate(inputs):
            changed = [*inputs[:index], torch.rand_like(given), *inputs[index + 1 :]]
            assert not torch.allclose(model(*changed), result)
    assert result.isfinite().all()
    assert result.std() > 0
    if isinstance(program, LayerProgram):
        assert result.shape == program.layer.output_shape
        assert (layer_of(model).bias is not None) == program.layer.bias


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: f"{one.name} {one.batch} {one.mode}")
def test_every_network_has_layers_to_convert_and_accepts_its_inputs(program):
    with torch.device("meta"):
        model = convt_ext.convert(program.make_model())
        result = model(*(torch.empty(shape) for shape in program.inputs))
    assert any(isinstance(module, steps.LAYERS) for module in model.modules())
    assert (result.shape[0], program.batch) == (program.inputs[0][0],) * 2


def test_a_set_is_chosen_by_its_name():
    cases = program_rows.select_cases(["level 2", "steps", "tanh"], tuple(program_sets.MODES))
    (tanh,) = (program for program in LAYER_PROGRAMS if program.name == "tanh")
    assert {case.program for case in cases} == {*LEVEL2, *program_sets.TRAINING, tanh}


# ---- rows of programs


def test_a_row_contains_the_choices():
    row = {"choices": []}
    with program_rows._logged_choices(row):
        choice._LOG.info("%s: %s", "layer", choice.LayerChoice("fused", True))
        choice._LOG.debug("not this")
    choice._LOG.info("nor this")
    assert row["choices"] == ["layer: fused in channels_last"]


@pytest.mark.parametrize("dtype", program_rows.DTYPES)
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_a_row_of_each_program(mode, dtype, compiled, converted):
    rows = measure(mode, dtypes=(dtype,))
    assert [row["program"] for row in rows] == [program.name for program in LAYER_PROGRAMS]
    for row in rows:
        assert list(row) == ROW_KEYS, row.get("failure")
        assert (row["mode"], row["dtype"], row["batch"]) == (mode, dtype, 2)
        assert (row["ours_us"], row["torch_us"], row["bare_us"]) == (10.0, 30.0, 8.0)
        assert row["ours_wall_us"] is row["torch_wall_us"] is None
        assert row["error"] == row["torch_error"] < {"float32": 1e-5, "bfloat16": 0.05}[dtype]
    assert max(row["torch_error"] for row in rows) > 0
    of_programs = [asked for asked in converted if asked[0] is not nn.ConvTranspose2d]
    assert {fuse for _, fuse in of_programs} == {mode == "eager"}
    if mode == "eager":  # what is not a sequence is traced
        assert compiled == []
        for program, (kind, _) in zip(TINY, of_programs, strict=True):
            is_sequence = isinstance(program.make_model(), nn.Sequential)
            assert issubclass(kind, nn.Sequential if is_sequence else torch.fx.GraphModule)
    else:
        assert [options for _, options in compiled] == [{"dynamic": False}] * 3 * len(TINY)
        ours, theirs, bare = (module for module, _ in compiled[:3])
        assert type(layer_of(ours)) is type(bare) is convt_ext.ConvTranspose2d
        assert type(layer_of(theirs)) is nn.ConvTranspose2d


def test_convt_ext_then_pytorch_then_the_layer_alone_are_timed(converted):
    timer = Timer()
    measure("eager", TINY[:1], timer)
    ((ours, theirs, bare),) = timer.results
    torch.testing.assert_close(ours, theirs)
    assert theirs.abs().max() <= 0.5 < bare.abs().max()  # this program clamps and halves


@pytest.mark.parametrize("dtype", program_rows.DTYPES)
def test_a_row_of_a_training_step_has_wall_time_too(dtype, compiled, few_steps):
    timer = Timer()
    (row,) = measure("train_compiled", (GENERATOR,), timer, (dtype,))
    assert list(row) == ROW_KEYS, row.get("failure")
    assert len(compiled) == 2
    assert type(layer_of(nn.Sequential(compiled[0][0].layers[0]))) is convt_ext.ConvTranspose2d
    assert (row["ours_us"], row["torch_us"], row["bare_us"]) == (10.0, 30.0, None)
    assert min(row["ours_wall_us"], row["torch_wall_us"]) > 0
    assert 0 < row["torch_error"] < 0.2
    assert len(timer.results[0]) == 2


RUNS = {
    "programs": lambda: measure("eager", [program for program in TINY if program.name == "scale"])[0],
    "steps": lambda: measure_steps(DECODER)[0],
}


@pytest.mark.parametrize("wrong", [1.2, float("nan")])
@pytest.mark.parametrize("name", RUNS)
def test_a_converted_model_with_another_result_is_a_failure(monkeypatch, converted, name, wrong):
    right = convt_ext.functional.conv_transpose2d
    functions = convt_ext.modules.FUNCTIONS
    monkeypatch.setitem(functions, 2, lambda *args, **kwargs: wrong * right(*args, **kwargs))
    row = RUNS[name]()
    assert {"programs": "the largest error is", "steps": "the first steps' results differ"}[name] in row["failure"]
    assert [row[key] for key in row if key.startswith(("ours_us", "ours_ms", "torch_us", "torch_ms"))] == [None] * 2


@pytest.mark.parametrize("name", RUNS)
def test_cudnn_searches_among_its_algorithms(monkeypatch, name):
    found = []
    for module in (program_rows, steps):
        monkeypatch.setattr(module, "_measure", lambda *_: found.append(torch.backends.cudnn.benchmark))
    RUNS[name]()
    assert set(found) == {True}
    assert not torch.backends.cudnn.benchmark


# ---- loops of steps


class Clock:
    """A clock that steps advance."""

    def __init__(self):
        self.now = 0.0
        self.order = []

    def __call__(self):
        return self.now

    def step(self, name, seconds):
        self.order.append(name)
        self.now += seconds


def test_loops_alternate_and_so_does_the_first_side():
    clock = Clock()
    sides = [partial(clock.step, "ours", 0.002), partial(clock.step, "torch", 0.001)]
    number, times = steps.times_ms(sides, 21, lambda: None, clock)
    assert number == 10  # the number of steps that fit the budget of the slower side
    assert times == [[pytest.approx(2.0)] * 8, [pytest.approx(1.0)] * 8]
    blocks = [(name, len(list(block))) for name, block in itertools.groupby(clock.order)]
    ordered = [("ours", 10), ("torch", 20), ("ours", 20), ("torch", 20), ("ours", 20), ("torch", 20), ("ours", 20)]
    assert blocks == [*[("ours", 5), ("torch", 5)] * 2, *ordered, ("torch", 20), ("ours", 10)]


@pytest.mark.parametrize(("seconds", "number"), [(1.0, 3), (1e-6, 500)])
def test_a_loop_has_neither_too_few_steps_nor_too_many(seconds, number):
    clock = Clock()
    assert steps.times_ms([partial(clock.step, "ours", seconds)], 100, lambda: None, clock)[0] == number


def test_the_device_is_waited_for_around_a_loop_and_never_within():
    """The host issues steps in zero time here, so their times show where the loop waits for the device."""
    clock, owed, waits = Clock(), [], []

    def synchronize():
        waits.append(len(owed))
        clock.now += sum(owed)
        owed.clear()

    _, (times,) = steps.times_ms([lambda: owed.append(0.002)], 21, synchronize, clock)
    assert times == [pytest.approx(2.0)] * 8
    assert waits == [0, 5, 0, 5, *[0, 10] * 8]


def test_a_row_of_steps_has_the_median_and_the_range(monkeypatch):
    monkeypatch.setattr(steps, "times_ms", lambda sides, *_: (7, [[3.0, 1.0, 2.0], [8.0, 6.0, 4.0]]))
    rows = measure_steps(GENERATOR)
    assert [row["dtype"] for row in rows] == ["float32", "bfloat16"]
    for row in rows:
        assert (row["ours_ms"], row["ours_range_ms"]) == (2.0, [1.0, 3.0])
        assert (row["torch_ms"], row["torch_range_ms"]) == (6.0, [4.0, 8.0])
        assert (row["converted"], row["steps"], row["inputs"]) == (5, 7, "2x100x1x1")


@pytest.mark.parametrize("program", [GENERATOR, DECODER], ids=lambda program: program.name)
def test_steps_are_of_the_converted_copy_and_of_the_same_model(program):
    made = []

    class Seen(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, *inputs):
            ours = any(isinstance(module, convt_ext.ConvTranspose2d) for module in self.modules())
            made.append((ours, self.training, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")))
            return self.model(*inputs)

    wrapped = Program(program.name, lambda: Seen(program.make_model()), program.inputs, program.mode)
    is_trained = program.mode == "train"
    for lowered in (None, torch.bfloat16):
        (ours, theirs), number = steps.make_steps(wrapped, lowered, CPU)
        assert number == (5 if is_trained else 2)
        made.clear()
        torch.testing.assert_close(ours(), theirs())
        expected = (is_trained, is_trained, lowered is not None)
        assert made == [(True, *expected), (False, *expected)]


def test_a_training_step_trains_as_a_users_loop(monkeypatch):
    done = []
    for name in ("zero_grad", "step"):
        really = getattr(torch.optim.SGD, name)
        monkeypatch.setattr(torch.optim.SGD, name, lambda self, n=name, do=really: (done.append(n), do(self)))
    for step in steps.make_steps(GENERATOR, None, CPU)[0]:
        losses = [float(step()) for _ in range(30)]
        assert losses[-1] < losses[0]
    assert done == ["zero_grad", "step"] * 60


# ---- figures


def made_row(program, mode="eager", **values):
    return {**dict.fromkeys(ROW_KEYS), "program": program, "mode": mode, "dtype": "float32", **values}


def test_figures():
    rows = [
        made_row("tanh", ours_us=10.0, torch_us=40.0, bare_us=8.0),
        made_row("scale", ours_us=10.0, torch_us=9.0, bare_us=8.0),
        made_row("sigmoid", failure="RuntimeError"),
        made_row("DCGAN generator", "train_compiled", ours_us=10.0, torch_us=10.5, ours_wall_us=1.0, torch_wall_us=2.0),
        *(made_row("U-Net", "train_compiled", ours_us=10.0, torch_us=10.5, ours_wall_us=2.0, torch_wall_us=wall_us)
          for wall_us in (1.9, 2.1, 1.95)),
    ]  # fmt: skip
    found = program_report.figures(rows)
    eager, trained = found["layers", "eager", "float32"], found["steps", "train_compiled", "float32"]
    assert (eager.num_rows, eager.num_slower, eager.aim, eager.least) == (2, 1, 2.5, 0.9)
    assert eager.mean == pytest.approx(math.sqrt(4 * 0.9))
    assert (eager.over_bare, eager.most_over_bare) == (pytest.approx(1.25), 1.25)
    assert eager.num_over_limit == 1  # a factor may take 1.1 times the layer, tanh 1.3
    assert (trained.num_rows, trained.num_slower, trained.aim, trained.over_bare) == (4, 2, None, None)

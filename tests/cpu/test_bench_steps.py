"""`python -m harness --steps` without a GPU: the programs, the alternating loops, and the file."""

from __future__ import annotations

import itertools
import json
from functools import partial

import bench_cpu
import pytest
import torch
from harness import programs, steps
from harness.programs import PROGRAMS, CLIPSegDecoder, Program
from torch import nn

import convt_ext
from convt_ext.demo.models import DCGANGenerator

CPU = torch.device("cpu")

TINY = (
    Program("generator", partial(DCGANGenerator, width=2), ((2, 100, 1, 1),)),
    Program("decoder", partial(CLIPSegDecoder, 8, 12, 6), (*[(2, 1 + 2 * 2, 12)] * 3, (2, 6)), "infer"),
)
ROW_KEYS = [
    *("program", "dtype", "batch", "mode", "inputs", "converted", "ours_ms", "torch_ms", "ours_range_ms"),
    *("torch_range_ms", "steps"),
]


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


# ---- programs


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: f"{one.name} {one.batch} {one.mode}")
def test_every_program_has_layers_to_convert_and_accepts_its_inputs(program):
    with torch.device("meta"):
        model = convt_ext.convert(program.make_model())
        result = model(*(torch.empty(shape) for shape in program.inputs))
    assert any(isinstance(module, steps.LAYERS) for module in model.modules())
    assert (result.shape[0], program.batch) == (program.inputs[0][0],) * 2


def test_every_input_of_the_decoder_counts():
    torch.manual_seed(0)
    decoder = CLIPSegDecoder(8, 12, 6).eval()
    inputs = [*(torch.randn(1, 5, 12) for _ in range(3)), torch.randn(1, 6)]
    with torch.no_grad():
        before = decoder(*inputs)
        for index, given in enumerate(inputs):
            changed = [*inputs[:index], given + 1, *inputs[index + 1 :]]
            assert not torch.allclose(decoder(*changed), before)


# ---- loops


def test_loops_take_turns_and_the_first_turn_too():
    clock = Clock()
    sides = [partial(clock.step, "ours", 0.002), partial(clock.step, "torch", 0.001)]
    number, times = steps.times_ms(sides, 21, lambda: None, clock)
    assert number == 10  # the number of steps that fit the budget of the slower side
    assert times == [[pytest.approx(2.0)] * 8, [pytest.approx(1.0)] * 8]
    blocks = [(name, len(list(block))) for name, block in itertools.groupby(clock.order)]
    warm_up = [("ours", 5), ("torch", 5)] * 2
    ordered = [("ours", 10), ("torch", 20), ("ours", 20), ("torch", 20), ("ours", 20), ("torch", 20), ("ours", 20)]
    assert blocks == [*warm_up, *ordered, ("torch", 20), ("ours", 10)]


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

    number, (times,) = steps.times_ms([lambda: owed.append(0.002)], 21, synchronize, clock)
    assert number == 10
    assert times == [pytest.approx(2.0)] * 8
    assert waits == [0, 5, 0, 5, *[0, 10] * 8]


# ---- rows


def measure(monkeypatch, program=TINY[0]):
    monkeypatch.setattr(steps, "times_ms", lambda sides, *_: (7, [[3.0, 1.0, 2.0], [8.0, 6.0, 4.0]]))
    return list(steps.run([program], CPU, 1.0))


def test_a_row_has_the_median_and_the_range(monkeypatch):
    rows = measure(monkeypatch)
    assert [list(row) for row in rows] == [ROW_KEYS] * 2
    assert [row["dtype"] for row in rows] == ["float32", "bfloat16"]
    for row in rows:
        assert (row["ours_ms"], row["ours_range_ms"]) == (2.0, [1.0, 3.0])
        assert (row["torch_ms"], row["torch_range_ms"]) == (6.0, [4.0, 8.0])
        assert (row["converted"], row["steps"], row["inputs"]) == (5, 7, "2x100x1x1")


@pytest.mark.parametrize("program", TINY, ids=lambda program: program.name)
def test_ours_is_the_converted_copy_of_the_same_model(monkeypatch, program):
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


def test_a_training_step_trains():
    (ours, theirs), _ = steps.make_steps(TINY[0], None, CPU)
    for step in (ours, theirs):
        losses = [float(step()) for _ in range(30)]
        assert losses[-1] < losses[0]


def test_a_training_step_is_that_of_a_users_loop(monkeypatch):
    done = []
    for name in ("zero_grad", "step"):
        really = getattr(torch.optim.SGD, name)
        monkeypatch.setattr(torch.optim.SGD, name, lambda self, n=name, do=really: (done.append(n), do(self)))
    (ours, _), _ = steps.make_steps(TINY[0], None, CPU)
    ours()
    ours()
    assert done == ["zero_grad", "step"] * 2


def test_cudnn_searches_among_its_algorithms(monkeypatch):
    found = []
    monkeypatch.setattr(steps, "_measure", lambda *_: found.append(torch.backends.cudnn.benchmark))
    list(steps.run(TINY, CPU, 1.0))
    assert found == [True] * 4
    assert not torch.backends.cudnn.benchmark


@pytest.mark.parametrize("wrong", [1.2, float("nan")])
def test_a_converted_model_with_another_result_is_a_failure(monkeypatch, wrong):
    right = convt_ext.functional.conv_transpose2d
    monkeypatch.setattr(convt_ext.modules, "conv_transpose2d", lambda *args, **kwargs: wrong * right(*args, **kwargs))
    first, second = measure(monkeypatch, TINY[1])
    assert "the first steps' results differ by" in first["failure"]
    assert first["ours_ms"] is second["torch_ms"] is None


# ---- the command


run_harness = partial(bench_cpu.run_harness, timer=object())


def test_steps_write_a_file_that_can_be_summed_up(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(programs, "PROGRAMS", TINY)
    out = tmp_path / "steps.json"
    assert run_harness(["--steps", "--budget-ms", "0.01", "--out", str(out)]) == 0
    content = json.loads(out.read_text())
    assert content["complete"] is True
    assert content["argv"] == ["bench", "--steps", "--budget-ms", "0.01", "--out", "steps.json"]
    expected = [(program.name, dtype) for program in TINY for dtype in ("float32", "bfloat16")]
    assert [(row["program"], row["dtype"]) for row in content["rows"]] == expected
    assert all(row["ours_ms"] > 0 and row["torch_ms"] > 0 for row in content["rows"])
    shown = capsys.readouterr().out
    assert shown.count("generator") == 2
    assert run_harness(["--summary", str(out)]) == 0
    assert capsys.readouterr().out.count("generator") == 2


def test_a_program_that_fails_ends_with_status_1(monkeypatch, tmp_path, capsys):
    too_narrow = Program("broken", partial(DCGANGenerator, width=2), ((2, 99, 1, 1),))
    monkeypatch.setattr(programs, "PROGRAMS", (too_narrow, TINY[1]))
    out = tmp_path / "steps.json"
    assert run_harness(["--steps", "--budget-ms", "0.01", "--out", str(out)]) == 1
    assert "failed: broken train float32 2: RuntimeError" in capsys.readouterr().out
    assert [("failure" in row) for row in json.loads(out.read_text())["rows"]] == [True, True, False, False]

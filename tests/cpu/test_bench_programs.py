"""`python -m harness --programs` without a GPU: the programs, the rows, their figures, and the file."""

from __future__ import annotations

import csv
import json
import math
from functools import partial
from pathlib import Path

import bench_cpu
import pytest
import torch
from harness import ahead, drawn_programs, program_report, program_rows, program_sets, steps
from harness.chains import make_chain
from harness.drawn_programs import DRAWN
from harness.layer_programs import LAYER_PROGRAMS, LayerProgram, layer_of
from harness.level2 import LEVEL2
from harness.programs import Program
from torch import nn

import convt_ext
from convt_ext.bench.layers import BUILT_IN, Layer
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
TINY_STEP = Program("generator", partial(DCGANGenerator, width=2), ((2, 100, 1, 1),))


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


@pytest.fixture(autouse=True)
def convert_that_fuses(monkeypatch):
    """Records the arguments of `convert`; other files test fusing."""
    asked = []
    really = convt_ext.convert

    def convert(model, precision=None, fuse=False):
        asked.append((type(model), fuse))
        return really(model, precision)

    monkeypatch.setattr(convt_ext, "convert", convert)
    return asked


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    """Fewer training steps per row: other files test how steps are timed."""
    for name, number in {"_WARM_UP": 1, "_MIN_STEPS": 1, "_LOOPS": 2}.items():
        monkeypatch.setattr(steps, name, number)


def measure(mode, chosen=TINY, timer=None, dtypes=("float32",)):
    cases = [program_rows.Case(program, dtype, mode) for program in chosen for dtype in dtypes]
    return list(program_rows.run(cases, CPU, timer or Timer(), 0.01))


# ---- programs


def test_no_layer_is_one_that_tables_and_fits_are_of():
    folder = Path(__file__).parents[2] / "benchmarks"
    if not folder.is_dir():
        pytest.skip("needs the checkout's benchmarks/")
    known = {(layer.n, layer.c_in, layer.c_out, *layer.k, layer.h, layer.w) for layer in BUILT_IN}
    columns = "N", "Cin", "Cout", "kh", "kw", "H", "W"
    for path in folder.glob("*.csv"):
        with open(path, newline="") as file:
            known |= {tuple(int(row.get(key, 1)) for key in columns) for row in csv.DictReader(file) if "D" not in row}
    for program in LAYER_PROGRAMS:
        layer = program.layer
        assert (layer.n, layer.c_in, layer.c_out, *layer.k, layer.h, layer.w) not in known, program.name


@pytest.mark.parametrize("program", TINY, ids=lambda program: program.name)
def test_a_program_is_its_layer_and_more(program):
    torch.manual_seed(1)
    model = program.make_model()
    inputs = [torch.randn(shape) for shape in program.inputs]
    with torch.no_grad():
        bare, result = layer_of(model)(inputs[0]), model(*inputs)
        for index, given in enumerate(inputs):  # every one counts
            assert not torch.allclose(result, model(*inputs[:index], given + 1, *inputs[index + 1 :]))
    assert result.shape == bare.shape == program.layer.output_shape
    assert not model.training
    assert not torch.allclose(result, bare)
    assert (layer_of(model).bias is not None) == program.layer.bias


def test_a_set_is_chosen_by_its_name():
    cases = program_rows.select_cases(["level 2", "steps", "tanh"], tuple(program_sets.MODES))
    (tanh,) = (program for program in LAYER_PROGRAMS if program.name == "tanh")
    assert {case.program for case in cases} == {*LEVEL2, *program_sets.TRAINING, tanh}


def test_drawn_programs_are_the_same_in_every_process():
    assert [(one.name, one.inputs) for one in drawn_programs._draw()] == [(one.name, one.inputs) for one in DRAWN]


@pytest.mark.parametrize("program", [*DRAWN, *LEVEL2], ids=lambda program: program.name)
def test_a_program_computes_something(program):
    torch.manual_seed(1)
    channels, *size = program.inputs[0][1:]
    model, image = program.make_model(), torch.rand(2, channels, *(min(one, 8) for one in size))
    with torch.no_grad():
        result, other = model(image), model(torch.rand_like(image))
    assert result.isfinite().all()
    assert result.std() > 0
    assert not torch.allclose(result, other)


# ---- rows


def test_a_row_contains_the_choices():
    row = {"choices": []}
    with program_rows._logged_choices(row):
        choice._LOG.info("%s: %s", "layer", choice.LayerChoice("fused", True))
        choice._LOG.debug("not this")
    choice._LOG.info("nor this")
    assert row["choices"] == ["layer: fused in channels_last"]


@pytest.mark.parametrize("norm", [False, True])
def test_chains(norm):
    for channels, between in (((8, 4, 2, 2), False), ((8, 4, 2), True)):
        chain = make_chain(channels, (4, 2, 1), norm, between)
        kinds = [type(module) for module in chain]
        num_layers = len(channels) - 1
        assert (kinds.count(nn.ConvTranspose2d), kinds.count(nn.Conv2d)) == (num_layers, between * (num_layers - 1))
        assert kinds.count(nn.BatchNorm2d) == norm * num_layers
        assert chain(torch.randn(1, channels[0], 3, 3)).shape == (1, channels[-1], 3 << num_layers, 3 << num_layers)


@pytest.mark.parametrize("dtype", program_rows.DTYPES)
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_a_row_of_each_program(mode, dtype, compiled):
    rows = measure(mode, dtypes=(dtype,))
    assert [row["program"] for row in rows] == [program.name for program in LAYER_PROGRAMS]
    for row in rows:
        assert list(row) == ROW_KEYS, row.get("failure")
        assert (row["mode"], row["dtype"], row["batch"]) == (mode, dtype, 2)
        assert (row["ours_us"], row["torch_us"], row["bare_us"]) == (10.0, 30.0, 8.0)
        assert row["ours_wall_us"] is row["torch_wall_us"] is None
        assert row["error"] == row["torch_error"] < {"float32": 1e-5, "bfloat16": 0.05}[dtype]
    assert max(row["torch_error"] for row in rows) > 0


def test_in_eager_mode_ours_is_fused_and_traced_where_it_is_more_than_a_sequence(convert_that_fuses, compiled):
    measure("eager")
    assert compiled == []
    of_programs = [asked for asked in convert_that_fuses if asked[0] is not nn.ConvTranspose2d]
    for program, (kind, fuse) in zip(TINY, of_programs, strict=True):
        is_sequence = isinstance(program.make_model(), nn.Sequential)
        assert fuse
        assert (kind is nn.Sequential) == is_sequence
        assert issubclass(kind, torch.fx.GraphModule) == (not is_sequence)


def test_in_compiled_mode_both_are_compiled_and_so_is_the_layer_alone(convert_that_fuses, compiled):
    measure("compiled", TINY[:1])
    assert [fuse for _, fuse in convert_that_fuses] == [False, False]
    ours, theirs, bare = (module for module, _ in compiled)
    assert [options for _, options in compiled] == [{"dynamic": False}] * 3
    assert type(layer_of(ours)) is type(bare) is convt_ext.ConvTranspose2d
    assert type(layer_of(theirs)) is nn.ConvTranspose2d


def test_convt_ext_then_pytorch_then_the_layer_alone_are_timed():
    timer = Timer()
    measure("eager", TINY[:1], timer)
    ((ours, theirs, bare),) = timer.results
    torch.testing.assert_close(ours, theirs)
    assert theirs.abs().max() <= 0.5 < bare.abs().max()  # this program clamps and halves


@pytest.mark.parametrize("dtype", program_rows.DTYPES)
def test_a_row_of_a_training_step_has_wall_time_too(dtype, compiled):
    timer = Timer()
    (row,) = measure("train_compiled", (TINY_STEP,), timer, (dtype,))
    assert list(row) == ROW_KEYS, row.get("failure")
    assert len(compiled) == 2
    assert type(layer_of(nn.Sequential(compiled[0][0].layers[0]))) is convt_ext.ConvTranspose2d
    assert (row["ours_us"], row["torch_us"], row["bare_us"]) == (10.0, 30.0, None)
    assert row["ours_wall_us"] > 0
    assert row["torch_wall_us"] > 0
    assert 0 < row["torch_error"] < 0.2
    assert len(timer.results[0]) == 2


@pytest.mark.parametrize("wrong", [1.2, float("nan")])
def test_a_converted_model_with_another_result_is_a_failure(monkeypatch, wrong):
    right = convt_ext.functional.conv_transpose2d
    monkeypatch.setattr(convt_ext.modules, "conv_transpose2d", lambda *args, **kwargs: wrong * right(*args, **kwargs))
    (row,) = measure("eager", [program for program in TINY if program.name == "scale"])
    assert "the largest error is" in row["failure"]
    assert row["ours_us"] is row["torch_us"] is None


def test_cudnn_searches_among_its_algorithms(monkeypatch):
    found = []
    monkeypatch.setattr(program_rows, "_measure", lambda *_: found.append(torch.backends.cudnn.benchmark))
    measure("eager")
    assert found == [True] * len(TINY)
    assert not torch.backends.cudnn.benchmark


# ---- summary of the rows


def made_row(program, mode="eager", dtype="float32", **values):
    return {**dict.fromkeys(ROW_KEYS), "program": program, "mode": mode, "dtype": dtype, **values}


def test_figures():
    rows = [
        made_row("tanh", ours_us=10.0, torch_us=40.0, bare_us=8.0),
        made_row("scale", ours_us=10.0, torch_us=9.0, bare_us=8.0),
        made_row("sigmoid", failure="RuntimeError"),
        made_row("DCGAN generator", "train_compiled", ours_us=10.0, torch_us=10.5, ours_wall_us=1.0, torch_wall_us=2.0),
        made_row("U-Net", "train_compiled", ours_us=10.0, torch_us=10.5, ours_wall_us=2.0, torch_wall_us=1.9),
        made_row("U-Net", "train_compiled", ours_us=10.0, torch_us=10.5, ours_wall_us=2.0, torch_wall_us=2.1),
        made_row("U-Net", "train_compiled", ours_us=10.0, torch_us=10.5, ours_wall_us=2.0, torch_wall_us=1.95),
    ]
    found = program_report.figures(rows)
    eager, trained = found["layers", "eager", "float32"], found["steps", "train_compiled", "float32"]
    assert (eager.num_rows, eager.num_slower, eager.aim, eager.least) == (2, 1, 2.5, 0.9)
    assert eager.mean == pytest.approx(math.sqrt(4 * 0.9))
    assert (eager.over_bare, eager.most_over_bare) == (pytest.approx(1.25), 1.25)
    assert eager.num_over_limit == 1  # a factor may take 1.1 times the layer, tanh 1.3
    assert (trained.num_rows, trained.num_slower, trained.aim, trained.over_bare) == (4, 2, None, None)


# ---- the command


run_harness = partial(bench_cpu.run_harness, timer=Timer())


@pytest.fixture
def tiny(monkeypatch, compiled):
    monkeypatch.setattr(program_sets, "MODES", {"eager": TINY, "compiled": TINY, "train_compiled": (TINY_STEP,)})


def test_programs_write_a_file_that_can_be_summed_up(tiny, tmp_path, capsys):
    out = tmp_path / "programs.json"
    words = ["--programs", "tanh", "generator", "--budget-ms", "0.01", "--out", str(out)]
    assert run_harness(words) == 0
    content = json.loads(out.read_text())
    assert content["complete"] is True
    expected = [("tanh", "eager"), ("tanh", "compiled"), ("generator", "train_compiled")]
    assert [(row["program"], row["mode"], row["dtype"]) for row in content["rows"]] == [
        (*names, dtype) for names in expected for dtype in program_rows.DTYPES
    ]
    shown = capsys.readouterr().out
    assert shown.count("3.00x") >= 6
    assert run_harness(["--summary", str(out)]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == shown[: shown.index("written:")].splitlines()[1:]


def test_a_row_is_written_before_the_next_is_measured(tiny, monkeypatch, tmp_path):
    out = tmp_path / "programs.json"
    written = []

    def measured(row, *_):
        written.append(len(json.loads(out.read_text())["rows"]) if out.exists() else 0)

    monkeypatch.setattr(program_rows, "_measure", measured)
    assert run_harness(["--programs", "--modes", "eager", "--out", str(out)]) == 0
    assert written == list(range(2 * len(TINY)))


def test_programs_are_compiled_ahead_in_processes(tiny, monkeypatch, tmp_path):
    started = []

    class Process:
        def __init__(self, words, **named):
            assert named["env"]["TORCHINDUCTOR_COMPILE_THREADS"] == "1"
            started.append(words[words.index("--modes") :])

        def wait(self):
            started.append("waited")

    monkeypatch.setattr(ahead.subprocess, "Popen", Process)
    monkeypatch.setattr(program_rows, "run", lambda *_, benchmarks: started.append(benchmarks) or iter(()))
    words = ["--programs", "tanh", "GELU", "scale", "--modes", "eager,compiled", "--ahead", "2", "--race", "off"]
    assert run_harness([*words, "--out", str(tmp_path / "programs.json")]) == 0
    *processes, first, second, benchmarks = started
    assert (first, second, benchmarks) == ("waited", "waited", False)
    assert [one[one.index("--programs") + 1 :] for one in processes] == [["tanh", "scale"], ["GELU"]]
    assert all(one[:4] == ["--modes", "compiled", "--race", "off"] for one in processes)


def test_a_program_that_fails_ends_with_status_1(tiny, monkeypatch, tmp_path, capsys):
    broken = Program("broken", partial(DCGANGenerator, width=2), ((2, 99, 1, 1),))
    monkeypatch.setitem(program_sets.MODES, "train_compiled", (broken, TINY_STEP))
    out = tmp_path / "programs.json"
    assert run_harness(["--programs", "--modes", "train_compiled", "--budget-ms", "0.01", "--out", str(out)]) == 1
    assert "failed: broken train_compiled float32 2: RuntimeError" in capsys.readouterr().out
    assert [("failure" in row) for row in json.loads(out.read_text())["rows"]] == [True, True, False, False]


def test_a_dry_run_lists_the_programs_and_measures_nothing(monkeypatch, capsys):
    monkeypatch.setattr(program_rows, "run", None)
    assert run_harness(["--programs", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert all(program.name in shown for program in LAYER_PROGRAMS)
    assert shown.count("train_compiled") == len(program_sets.TRAINING) == 3
    assert run_harness(["--programs", "GELU", "--modes", "eager", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert ("GELU" in shown, "tanh" in shown, "compiled" in shown) == (True, False, False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--summary", "/no/such.json"], "No such file"),
        (["--gpu", "A100"], "--gpu requires --dry-run"),
        (["--programs", "--layers", "kb57"], "--programs measures programs and does not support --layers"),
        (["--programs", "--csv", "a.csv"], "--programs measures programs and does not support --csv"),
        (["--programs", "nothing"], "--programs: no program matches 'nothing'"),
        (["--programs", "tanh", "--modes", "train_compiled"], "known programs: DCGAN generator, U-Net, decoder"),
        (["--modes", "eager"], "--modes requires --programs"),
        (["--ahead", "4"], "--ahead requires --programs"),
        (["--neighbours", "--csv", "layers.csv"], "does not support --csv and --default"),
        (["--neighbours", "--default"], "does not support --csv and --default"),
        (["--steps", "--layers", "kb57"], "does not support --layers"),
        (["--steps", "--csv", "a.csv"], "does not support --csv"),
        *((["--steps", word], f"does not support {word}") for word in ("--dry-run", "--neighbours", "--programs")),
    ],
)
def test_wrong_options(words, said, capsys):
    assert run_harness(words) == 2
    assert said in capsys.readouterr().err

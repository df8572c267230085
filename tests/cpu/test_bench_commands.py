"""`python -m harness` without a GPU: files of programs, steps and neighbours, failures, dry runs, and wrong options."""

from __future__ import annotations

import json
from functools import partial

import bench_cpu
import pytest
from cpu.test_bench_harness import DECODER, GENERATOR, TINY, Timer, few_steps, quick_rows
from cpu_kernels import needs_binary
from harness import ahead, neighbours, program_rows, program_sets, programs
from harness.layer_programs import LAYER_PROGRAMS
from harness.programs import Program

from convt_ext.bench import runner
from convt_ext.bench.layers import Layer
from convt_ext.demo.models import DCGANGenerator

__all__ = ["few_steps", "quick_rows"]

run_harness = partial(bench_cpu.run_harness, timer=Timer())
BROKEN = Program("broken", partial(DCGANGenerator, width=2), ((2, 99, 1, 1),))


@pytest.fixture
def out(tmp_path):
    return tmp_path / "run.json"


def rows_of(out):
    return json.loads(out.read_text())["rows"]


@pytest.fixture
def tiny(monkeypatch, compiled, few_steps):
    monkeypatch.setattr(program_sets, "MODES", {"eager": TINY, "compiled": TINY, "train_compiled": (GENERATOR,)})
    monkeypatch.setattr(programs, "PROGRAMS", (GENERATOR, DECODER))


FILES = {
    "--programs": (["tanh", "generator"], [("tanh", "eager"), ("tanh", "compiled"), ("generator", "train_compiled")]),
    "--steps": ([], [("generator", "train"), ("decoder", "infer")]),
}


@pytest.mark.parametrize("option", FILES)
def test_a_file_can_be_summed_up(tiny, out, capsys, option):
    names, expected = FILES[option]
    words = [option, *names, "--budget-ms", "0.01", "--out", str(out)]
    assert run_harness(words) == 0
    content = json.loads(out.read_text())
    assert content["complete"] is True
    assert content["argv"] == ["bench", *words[:-1], out.name]
    assert [(row["program"], row["mode"], row["dtype"]) for row in content["rows"]] == [
        (*names, dtype) for names in expected for dtype in program_rows.DTYPES
    ]
    shown = capsys.readouterr().out
    assert option == "--steps" or shown.count("3.00x") >= 6
    assert run_harness(["--summary", str(out)]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == shown[: shown.index("written:")].splitlines()[1:]


def test_rows_of_neighbours_have_their_base_and_change(monkeypatch, out, capsys):
    small = (Layer("small", 2, 4, 6, 7, 9, (4, 4), (2, 2), (1, 1)),)
    monkeypatch.setattr(neighbours, "BASES", small)
    monkeypatch.setattr(runner, "kernel_of", lambda *_: "patch_bf16")
    words = ["--neighbours", "--layers", "*/w-1", "*/g=2", "--precisions", "bf16", "--layouts", "nhwc", "--no-errors"]
    assert run_harness([*words, "--out", str(out)]) == 0
    found = [(row["base"], row["layer"], row["change"], row["w"], row["g"]) for row in rows_of(out)]
    assert found == [
        ("small", "small", None, 9, 1), ("small", "small/w-1", "w-1", 8, 1), ("small", "small/g=2", "g=2", 9, 2),
    ]  # fmt: skip
    assert "small: 2 x 4 x 7 x 9 to 6 channels, kernel 4 x 4, stride 2 x 2" in capsys.readouterr().out


def test_a_row_is_written_before_the_next_is_measured(tiny, monkeypatch, out):
    written = []
    monkeypatch.setattr(program_rows, "_measure", lambda *_: written.append(len(rows_of(out)) if out.exists() else 0))
    assert run_harness(["--programs", "--modes", "eager", "--out", str(out)]) == 0
    assert written == list(range(2 * len(TINY)))


@pytest.mark.parametrize("option", ["--programs", "--steps"])
def test_a_program_that_fails_ends_with_status_1(tiny, monkeypatch, out, capsys, option):
    monkeypatch.setattr(programs, "PROGRAMS", (BROKEN, DECODER))
    monkeypatch.setattr(program_sets, "MODES", {"train_compiled": (BROKEN, GENERATOR)})
    assert run_harness([option, "--budget-ms", "0.01", "--out", str(out)]) == 1
    assert "failed: broken train" in capsys.readouterr().out
    assert [("failure" in row) for row in rows_of(out)] == [True, True, False, False]


def test_programs_are_compiled_ahead_in_processes(tiny, monkeypatch, out):
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
    assert run_harness([*words, "--out", str(out)]) == 0
    *processes, first, second, benchmarks = started
    assert (first, second, benchmarks) == ("waited", "waited", False)
    assert [one[one.index("--programs") + 1 :] for one in processes] == [["tanh", "scale"], ["GELU"]]
    assert all(one[:4] == ["--modes", "compiled", "--race", "off"] for one in processes)


def test_a_dry_run_lists_the_programs_and_measures_nothing(monkeypatch, capsys):
    monkeypatch.setattr(program_rows, "run", None)
    assert run_harness(["--programs", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert all(program.name in shown for program in LAYER_PROGRAMS)
    assert run_harness(["--programs", "GELU", "--modes", "eager", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert ("GELU" in shown, "tanh" in shown, "compiled" in shown) == (True, False, False)


@needs_binary
def test_a_dry_run_of_neighbours_shows_estimates_over_the_floor(capsys):
    words = ["--layers", "up2/g=2", "--precisions", "tf32,bf16,tf32x3", "--directions", "fwd,dx,dw"]
    assert run_harness(["--neighbours", "--dry-run", *words]) == 0
    text = capsys.readouterr().out
    assert "Estimates for an NVIDIA H200" in text
    (line,) = (line for line in text.splitlines() if line.startswith("│none"))
    assert line.count("│") == 1 + 1 + 3 * 3 * 2
    assert all(1 <= float(cell) < 10 for cell in line.split("│")[2:-1])


def test_a_dry_run_without_a_binary_reports_the_reason(monkeypatch, capsys):
    monkeypatch.setattr("convt_ext.environment._extension.load_error", "it is not there")
    assert run_harness(["--neighbours", "--dry-run", "--layers", "up2"]) == 0
    assert "No plans: it is not there" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
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
        (["--summary", "/no/such.json"], "No such file"),
        (["--gpu", "A100"], "--gpu requires --dry-run"),
        *((["--steps", word], f"does not support {word}") for word in ("--dry-run", "--neighbours", "--programs")),
    ],
)
def test_wrong_options(words, message, capsys):
    assert run_harness(words) == 2
    assert message in capsys.readouterr().err

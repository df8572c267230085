"""`python -m convt_ext`: info, check and bench on a machine without a GPU, and their messages."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from bench_cpu import SMALL, FakeTimer, bench, csv_text

import convt_ext
from convt_ext import __main__ as cli
from convt_ext.bench import command, report
from convt_ext.bench.runner import Skipped
from convt_ext.check import command as check
from convt_ext.check import reference
from convt_ext.environment import _extension, info

CPU = torch.device("cpu")


def run_python(*words, disabled=False):
    environment = {**os.environ, **({"CONVT_EXT_DISABLE": "1"} if disabled else {})}
    return subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True)


def test_module_runs_as_a_program_and_info_reports_how_to_enable():
    text = run_python("-m", "convt_ext", "info", disabled=True).stdout
    assert convt_ext.__version__ in text
    assert re.search(r"^kernels usable +no$", text, re.MULTILINE)
    assert re.search(r"^reason +CONVT_EXT_DISABLE is set: unset it", text, re.MULTILINE)
    assert run_python("-m", "convt_ext").returncode == 2


@pytest.mark.parametrize("name", cli._COMMANDS)
def test_each_commands_help_has_an_example_that_is_legal(name, capsys):
    words, call = cli._COMMANDS[name]
    args = cli.make_parser().parse_args(shlex.split(call))
    assert args.command == name
    assert name != "bench" or command.select(args)  # its layers exist
    with pytest.raises(SystemExit):
        cli.main([name, "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert words[1:] in shown
    assert f"example: python -m convt_ext {call}" in shown


# ---- info and check


def test_info_names_versions_binary_reason_variables_and_switches(no_gpu, monkeypatch, capsys):
    monkeypatch.setenv("CONVT_EXT_REPLAY", "1")
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    assert cli.main(["info"]) == 0
    text = capsys.readouterr().out
    words = convt_ext.__version__, torch.__version__, "driver", "GPU", "kernels usable", "reason", "glibc"
    assert all(one in text for one in (*words, "CONVT_EXT_REPLAY=1", "cudnn.benchmark True")), text
    build = convt_ext.build_info()
    assert "not loaded" in text if build["cuda"] is None else build["sources"] in text


def test_info_reports_whether_the_binary_fits_each_gpu(monkeypatch):
    gpu = SimpleNamespace(name="NVIDIA H200", major=9, minor=0, multi_processor_count=132, total_memory=141 * 2**30)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: gpu)
    monkeypatch.setattr(info._extension, "unsupported_reason", lambda index: "no code for 7.0" if index else None)
    gpus = info._gpus()
    assert gpus["GPU 0"] == "NVIDIA H200, compute capability 9.0, 132 SMs, 141 GiB, the binary fits"
    assert gpus["GPU 1"].endswith("the binary does not fit")


@pytest.mark.parametrize("disabled", [False, True])
def test_check_does_not_claim_kernels_that_it_did_not_run(monkeypatch, capsys, disabled):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: disabled)
    monkeypatch.setattr(_extension, "DISABLED", disabled)
    status = cli.main(["check"])
    text = capsys.readouterr().out
    assert "kernels were not run" in text
    *_, why, result = text.splitlines()
    if convt_ext.build_info()["cuda"] is None:
        assert status == 1
    else:
        assert ("CONVT_EXT_DISABLE is set" if disabled else "PyTorch sees no CUDA GPU") in why
        assert re.fullmatch(r"all \d+ checks passed, and no kernel was checked", result)
        assert status == 0


def test_check_names_numpy_where_it_is_missing():
    script = "import sys; sys.modules['numpy'] = None; from convt_ext.__main__ import main; sys.exit(main(['check']))"
    result = run_python("-c", script)
    assert (result.returncode, result.stdout) == (2, "")
    assert "convt_ext check: needs the package numpy: pip install numpy" in result.stderr


def test_check_reports_a_wrong_result(no_gpu, monkeypatch, capsys):
    right = convt_ext.conv_transpose2d
    monkeypatch.setattr(convt_ext, "conv_transpose2d", lambda *args, **kwargs: right(*args, **kwargs) + 1)
    assert check.run_check() == 1
    assert "FAILED" in capsys.readouterr().out


def correct_kernels(input, weight, bias=None, *, precision, backend, **arguments):
    """Replaces the kernels by the definitions, on the CPU."""
    numpy = [None if tensor is None else tensor.float().contiguous().numpy() for tensor in (input, weight, bias)]
    if input.dtype is torch.float32 and precision in ("exact", "aten"):
        definition = {"exact": reference.forward_ieee, "aten": reference.forward_aten}[precision]
        return torch.from_numpy(definition(*numpy, **arguments))
    wide = [None if tensor is None else tensor.double() for tensor in (input, weight, bias)]
    return torch.nn.functional.conv_transpose2d(*wide, **arguments).to(input.dtype)


def test_check_accepts_kernels_that_keep_their_promises(monkeypatch):
    monkeypatch.setattr(convt_ext, "conv_transpose2d", correct_kernels)
    outcomes = list(check.check_kernels(CPU))
    assert len(outcomes) == 7
    assert all(outcome.passed for outcome in outcomes), outcomes
    assert ["every bit" in outcome.detail for outcome in outcomes] == [True, True] + [False] * 5


def test_check_finds_one_wrong_bit(monkeypatch):
    def one_bit_off(*args, **arguments):
        result = correct_kernels(*args, **arguments)
        result[0, -1, 0, 0] = torch.nextafter(result[0, -1, 0, 0], torch.tensor(9e9, dtype=result.dtype))
        return result

    monkeypatch.setattr(convt_ext, "conv_transpose2d", one_bit_off)
    outcomes = list(itertools.islice(check.check_kernels(CPU), 2))
    assert not any(outcome.passed for outcome in outcomes)
    assert all("1 of" in outcome.detail and "odd sizes" in outcome.detail for outcome in outcomes)


def test_check_reports_a_kernel_that_raises(broken):
    assert {outcome.detail for outcome in check.check_kernels(CPU)} == {"odd sizes, nchw: no such plan"}


# ---- bench


def test_bench_without_gpu_ends_with_one_line(no_gpu, capsys):
    assert cli.main(["bench"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "needs a GPU" in line
    assert "convt_ext.explain" in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--layers", "nothing"], "no layer matches 'nothing'"),
        (["--csv", "/no/such.csv"], "No such file"),
        (["--budget-ms", "0"], "--budget-ms must be positive"),
    ],
)
def test_bench_refuses_wrong_options(words, message, capsys):
    assert bench(words) == 2
    assert message in capsys.readouterr().err


def test_bench_without_rich_ends_with_a_message(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.delitem(sys.modules, "convt_ext.bench.report", raising=False)
    monkeypatch.delattr("convt_ext.bench.report", raising=False)
    assert bench([], FakeTimer(12.5)) == 2
    assert "needs the package rich: pip install rich\n" in capsys.readouterr().err


def small_csv(tmp_path):
    columns = "source,N,Cin,Cout,kh,kw,sh,sw,ph,pw,oph,opw,groups,dh,dw,H,W,bias"
    path = tmp_path / "layers.csv"
    path.write_text(f"{columns}\nup [x2],2,4,4,2,2,2,2,0,0,0,0,1,1,1,5,6,1\nflat,1,3,5,3,3,1,1,1,1,0,0,1,1,1,7,7,0\n")
    return path


def test_bench_writes_a_file_and_shows_a_table(tmp_path, capsys):
    out = tmp_path / "deep" / "run.json"
    words = ["--csv", str(small_csv(tmp_path)), "--out", str(out), "--precisions", "ieee,f64", "--directions", "fwd,dw"]
    assert bench(words, FakeTimer(12.5)) == 0
    content = json.loads(out.read_text())
    assert content["argv"] == ["bench", *("run.json" if word == str(out) else word for word in words)]
    assert content["sources"] == convt_ext.build_info()["sources"]
    assert content["complete"] is True
    assert len(content["rows"]) == 2 * 2 * 2 * 2
    assert {"gpu", "torch", "cudnn", "date", "sources", "argv", "rows"} <= set(content)
    text = capsys.readouterr().out
    assert "up [x2]" in text
    assert "rows run PyTorch's operator" in text
    assert "1.00x" in text


def test_one_dimension_has_no_channels_last(tmp_path, capsys):
    path = tmp_path / "layers.csv"
    path.write_text(csv_text(SMALL[-2]))
    assert bench(["--csv", str(path), "--layouts", "nhwc"], FakeTimer(12.5)) == 2
    assert "one-dimensional layers have no nhwc" in capsys.readouterr().err


def test_bench_fails_when_a_row_fails(tmp_path, broken, capsys):
    out = tmp_path / "run.json"
    assert bench(["--csv", str(small_csv(tmp_path)), "--out", str(out), "--layouts", "nchw"], FakeTimer(12.5)) == 1
    assert "no such plan" in capsys.readouterr().out
    assert all("no such plan" in row["failure"] for row in json.loads(out.read_text())["rows"])


# ---- the summary


def row(layer, ours, theirs, kernel="simt_ieee_f32_8x8", layout="nchw"):
    return {
        **{"layer": layer, "direction": "fwd", "precision": "ieee", "layout": layout, "kernel": kernel},
        **{"ours_us": ours, "torch_us": theirs, "floor_us": 5.0, "error": 1e-7, "torch_error": 1e-7},
    }


def test_summary_names_failures_and_skips(capsys):
    failed = {**row("bad", None, None, kernel=None), "failure": "ours: RuntimeError: [no] plan"}
    skipped = Skipped("huge", "needs about 900.0 GiB", 4)
    report.print_summary(report.make_console(), [row("a", 10.0, 40.0), failed], [skipped])
    text = capsys.readouterr().out
    assert "skipped: huge (4 rows): needs about 900.0 GiB" in text
    assert "failed: bad fwd ieee nchw: ours: RuntimeError: [no] plan" in text
    assert "4.00x" in text

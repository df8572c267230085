"""`python -m convt_ext demo` without a GPU, and what it shows with one: on the CPU, by a fake timer. And its models."""

from __future__ import annotations

import re
import sys

import pytest
import torch
from bench_cpu import FakeTimer
from rich.console import Console

import convt_ext
from convt_ext import __main__ as cli
from convt_ext.bench.layers import Layer
from convt_ext.bench.modes import MODES
from convt_ext.demo import command, comparisons, models, tables
from convt_ext.demo.comparisons import Comparison
from convt_ext.demo.models import DCGANGenerator, Model, UNet

CPU = torch.device("cpu")
TINY = Layer("tiny", 1, 2, 2, 4, 4, (3, 3), (1, 1))
GENERATOR = Model("generator", DCGANGenerator(width=4).eval(), (2, 100, 1, 1))


TIMER = FakeTimer(30.0, 10.0)  # the first call is PyTorch's
LAYER_TIMER = FakeTimer(10.0, 30.0)  # the benchmark of a layer times convt_ext first


@pytest.fixture
def wide():
    """A terminal in which no cell is cut."""
    return Console(width=200)


def steps(modes=("default",), layers=(TINY,), networks=(GENERATOR,), compiles=()):
    modes = [MODES[name] for name in modes]
    with torch.no_grad():
        of_layers = list(comparisons.steps_of_layers(layers, modes, CPU, LAYER_TIMER))
        return of_layers, list(comparisons.steps_of_models(networks, compiles, modes, CPU, TIMER))


@torch.no_grad()
def show(console, **wanted):
    return command.show_speed(console, *steps(**wanted), CPU)


@torch.no_grad()
def compare_model(model=GENERATOR, mode="default", layout="nchw", timer=TIMER):
    return comparisons.compare_model(model, MODES[mode], layout, CPU, timer)


# ---- without a GPU


@pytest.mark.parametrize("words", [[], ["--cpu"]])
def test_on_the_cpu_results_are_equal_and_plans_of_gpus_are_shown(no_gpu, capsys, words):
    cudnn = torch.backends.cudnn
    before = cudnn.enabled, cudnn.benchmark, cudnn.conv.fp32_precision, torch.is_grad_enabled()
    assert cli.main(["demo", *words]) == 0
    assert (cudnn.enabled, cudnn.benchmark, cudnn.conv.fp32_precision, torch.is_grad_enabled()) == before
    text = capsys.readouterr().out
    assert text.count("equal in every bit") == len(models.reduced())
    assert all(model.name in text for model in models.full_size())
    if convt_ext.build_info()["cuda"] is not None:
        words = ("docs/speed.svg", "H200", "A100", "RTX 4090", "4x512x64x64", "backend='convt_ext'", "portable_tf32")
        assert all(one in text for one in (*words, "nothing was timed")), text


def test_a_conversion_that_changes_a_result_fails_on_the_cpu(no_gpu, monkeypatch, capsys):
    def convert(model, **_):
        torch.nn.init.ones_(next(model.parameters()))
        return model

    monkeypatch.setattr(convt_ext, "convert", convert)
    assert cli.main(["demo"]) == 1
    assert capsys.readouterr().out.count("results are different") == len(models.reduced())


def test_a_gpu_that_the_binary_cannot_use_is_a_failure(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(convt_ext, "is_available", lambda: False)
    monkeypatch.setattr(command._extension, "unavailable_reason", lambda: "no code for 7.0")
    monkeypatch.setattr(command, "_demo_on_cpu", lambda console: True)
    assert command.run_demo() == 1
    assert "The kernels cannot run here: no code for 7.0" in capsys.readouterr().out


def test_without_rich_it_ends_with_a_message(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    for name in [name for name in sys.modules if name.startswith("convt_ext.demo.")]:
        monkeypatch.delitem(sys.modules, name)
    assert cli.main(["demo"]) == 2
    assert "needs the package rich: pip install rich\n" in capsys.readouterr().err


# ---- with one


@pytest.fixture
def fake_gpu(monkeypatch):
    """`_demo_on_gpu` runs on the CPU, at reduced size."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    monkeypatch.setattr(command, "KERNELBENCH", (TINY,))
    monkeypatch.setattr(models, "full_size", lambda: [GENERATOR._replace(name="DCGAN generator")])


@torch.no_grad()
def test_on_a_gpu_it_shows_times_and_speedups(fake_gpu, compiled, wide, capsys):
    assert command._demo_on_gpu(wide, CPU, TIMER)
    text = capsys.readouterr().out
    for words in ("on NVIDIA H200", "TF32", "bfloat16", "NCHW", "channels_last", "geometric mean"):
        assert words in text
    for version in ("converted", "fused", "compiled"):
        assert re.search(rf"DCGAN generator, {version} +NCHW +30.0 +10.0 +3.00x", text)
    assert [options for _, options in compiled] == [{"dynamic": False}] * 2


def test_a_wrong_result_fails(monkeypatch, wide, capsys):
    right = convt_ext.conv_transpose2d
    monkeypatch.setattr(convt_ext, "conv_transpose2d", lambda *args, **kwargs: right(*args, **kwargs) * 1.01)
    assert not show(wide, networks=())
    text = capsys.readouterr().out
    assert "wrong: tiny, TF32, NCHW: error 1.0e-02, allowed 5.0e-04" in text
    assert "Not every result" in text


def test_a_model_that_computes_nonsense_fails(monkeypatch):
    def convert(model, fuse=False):
        torch.nn.init.constant_(model.layers[0].weight, float("nan"))
        return model

    monkeypatch.setattr(convt_ext, "convert", convert)
    (found,) = compare_model(mode="bf16", layout="nhwc")
    assert found.error != found.error
    assert not found.holds


@torch.no_grad()
def test_a_model_that_raises_fails(monkeypatch, wide, capsys):
    def broken(model, fuse=False):
        model.forward = lambda input: input[7]
        return model

    monkeypatch.setattr(convt_ext, "convert", broken)
    assert not show(wide, layers=())
    assert "failed: generator, converted, TF32, NCHW: IndexError" in capsys.readouterr().out


def test_a_model_may_be_wrong_by_its_own_error_and_the_limit_of_each_layer():
    found = compare_model()
    assert [one.name for one in found] == ["generator, converted", "generator, fused"]
    for one in found:
        assert 5 * 5e-4 <= one.allowed <= 5 * 5e-4 + 1e-5
        assert one.holds


def test_a_model_without_anything_to_fuse_has_no_fused_row(recwarn):
    found = compare_model(Model("U-Net", UNet(width=2).eval(), (1, 3, 16, 16)))
    assert [one.name for one in found] == ["U-Net, converted"]
    assert not recwarn.list


def test_a_layer_or_a_model_that_runs_out_of_memory_is_skipped(monkeypatch):
    def short(*args, **kwargs):
        raise torch.OutOfMemoryError("CUDA out of memory")

    class Timer(FakeTimer):
        times_us = short

    monkeypatch.setattr(convt_ext, "conv_transpose2d", short)
    (first, second) = comparisons.compare_layer(TINY, MODES["bf16"], CPU, LAYER_TIMER)
    for one in (first, second, *compare_model(mode="bf16", timer=Timer(30.0))):
        assert one.holds
        assert "out of memory" in one.skipped
        assert one.precision == "bfloat16"


def test_the_largest_error_is_the_one_nearest_to_its_own_limit(wide, capsys):
    found = [
        Comparison("kb57", "TF32", "nchw", error=3e-4, allowed=1e-3),
        Comparison("kb58", "bfloat16", "nhwc", error=2.5e-4, allowed=5e-4),
        Comparison("kb69", "TF32", "nchw", skipped="needs more memory"),
    ]
    tables.show_comparisons(wide, "Layers", found)
    words = "Largest error: 0.50 of the allowed one (kb58, bfloat16, channels_last: 2.5e-04 of 5.0e-04)."
    assert words in capsys.readouterr().out
    tables.show_comparisons(wide, "Layers", found[2:])
    assert "Largest" not in capsys.readouterr().out
    found = [Comparison("a", "TF32", "nchw", error=error, allowed=1e-3) for error in (2.0, float("nan"), 3.0)]
    tables.show_comparisons(wide, "Layers", found)
    assert "Largest error: nan of the allowed one (a, TF32, NCHW: nan of 1.0e-03)." in capsys.readouterr().out


def test_a_comparison_without_an_error_does_not_hold():
    assert not Comparison("a", "TF32", "nchw").holds
    assert Comparison("a", "TF32", "nchw", skipped="no memory").holds
    assert not Comparison("a", "TF32", "nchw", failure="raises").holds
    assert Comparison("a", "TF32", "nchw").speedup is None


# ---- models


def test_models_are_the_same_at_both_sizes():
    with torch.device("meta"):
        pairs = list(zip(models.full_size(), models.reduced(), strict=True))
    for full, small in pairs:
        assert (full.name, type(full.module)) == (small.name, type(small.module))
        assert not full.module.training
        assert full.module(torch.empty(full.shape, device="meta")).shape[0] == full.shape[0]

"""Bitwise comparisons of the demo, and its models."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from bench_cpu import FakeTimer
from rich.console import Console

from convt_ext.bench.floors import H200
from convt_ext.bench.layers import Layer
from convt_ext.demo import command, exact, models
from convt_ext.demo.models import DCGANGenerator, Model, UNet, VQVAEDecoder

CPU = torch.device("cpu")
TINY = Layer("tiny", 1, 2, 2, 4, 4, (3, 3), (1, 1))


TIMER = FakeTimer(30.0, 10.0)  # the first call, PyTorch's, and convt_ext's


@pytest.fixture
def wide():
    """A terminal in which no cell is cut."""
    return Console(width=200)


def test_exact_shows_times_and_speedup(wide, capsys):
    generator = Model("generator", DCGANGenerator(width=4).eval(), (2, 100, 1, 1))
    assert exact.show_layers(wide, [TINY], CPU, TIMER, H200)
    with torch.no_grad():
        assert exact.show_models(wide, [generator], CPU, TIMER)
    text = capsys.readouterr().out
    assert text.count("3.00x") == 2


def test_exact_compares_in_float32_without_tf32(monkeypatch, wide, capsys):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    seen = []
    switch = partial(getattr, torch.backends.cudnn.conv, "fp32_precision")
    monkeypatch.setattr(exact, "show_layers", lambda *_: seen.append(switch()) or True)
    monkeypatch.setattr(exact, "show_models", lambda *_: seen.append(switch()) or False)
    assert not command._compare_bits(wide, CPU, TIMER)
    assert seen == ["ieee", "ieee"]


def test_exact_fails_on_a_difference(monkeypatch, wide, capsys):
    monkeypatch.setattr(exact, "compare", lambda ours, theirs: (1, 1.0))
    assert not exact.show_layers(wide, [TINY], CPU, None, None)


def test_compare_counts_elements_and_scales_the_difference():
    theirs = torch.zeros(3, 2, 2)
    theirs[1, 0, 0] = -4.0
    ours = theirs.clone()
    ours[2, 1, 1] = 1.0
    assert exact.compare(ours, theirs) == (1, 0.25)
    assert exact.compare(theirs, theirs) == (0, 0.0)
    ours[0, 0, 0] = float("nan")
    assert exact.compare(ours, theirs)[0] == 2
    assert not exact.compare(ours, theirs)[1] <= 1e-4


# ---- models


def test_models_have_the_sizes_they_state():
    with torch.no_grad():
        assert DCGANGenerator(width=4)(torch.randn(2, 100, 1, 1)).shape == (2, 3, 64, 64)
        assert UNet(width=4)(torch.randn(1, 3, 32, 40)).shape == (1, 2, 32, 40)
        assert VQVAEDecoder(width=4)(torch.randn(2, 64, 5, 6)).shape == (2, 3, 20, 24)


def test_models_are_the_same_at_both_sizes():
    with torch.device("meta"):
        pairs = list(zip(models.full_size(), models.reduced(), strict=True))
    for full, small in pairs:
        assert (full.name, type(full.module)) == (small.name, type(small.module))
        assert not full.module.training
        assert full.module(torch.empty(full.shape, device="meta")).shape[0] == full.shape[0]

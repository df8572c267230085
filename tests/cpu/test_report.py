"""`convt_ext.report`: the lines of a model's calls, as routing decides them. Without a GPU."""

from __future__ import annotations

import pytest
import torch
from cpu_kernels import RAN, needs_binary
from torch import nn

import convt_ext
from convt_ext import conv_transpose2d, report, use_precision
from convt_ext.bench import floors
from convt_ext.bench.layers import Layer
from convt_ext.report import NOT_ASKED

pytestmark = needs_binary


class Model(nn.Module):
    """Two layers, one of them called twice, and calls of functions."""

    def __init__(self):
        super().__init__()
        self.first = nn.ConvTranspose2d(64, 64, 4, 2, 1)
        self.rest = nn.ModuleDict({"norm": nn.BatchNorm2d(64), "last": nn.ConvTranspose2d(64, 3, 2, 2)})

    def forward(self, x):
        y = self.rest["norm"](self.first(x))
        return self.rest["last"](y) + self.rest["last"](y)


def image():
    return torch.randn(4, 64, 16, 16)


def forward_lines(found):
    return [line for line in found.lines if line.direction == "forward"]


def test_a_model_without_numbers():
    """On the device meta, which needs no memory; its buffers have no values to restore."""
    found = report(convt_ext.convert(Model()).to("meta").train(), image().to("meta"), device="A100")
    assert [line.layer for line in forward_lines(found)] == ["first", "rest.last"]
    assert "A100" in found.device


def test_a_converted_model():
    model = convt_ext.convert(Model())
    found = report(model, image())
    first, last = forward_lines(found)
    assert (first.layer, last.layer) == ("first", "rest.last")
    assert (first.number, last.number) == (1, 2)
    assert first.call == "4x64x16x16 * 64x64x4x4 float32"
    assert [line.direction for line in found.lines if line.layer == "first"] == ["forward", "weight"]
    assert [line.direction for line in found.lines if line.layer == "rest.last"] == ["forward", "input", "weight"]
    assert found.device.startswith("an NVIDIA H200")
    for line in found.lines:
        assert line.us > 0
        assert (line.kernel != "") == (line.runs == "convt_ext")
        assert line.other_us is None or line.us <= line.other_us
    assert first.runs == "convt_ext"
    table = str(found).splitlines()
    assert len(table) == 2 + len(found.lines)
    assert "rest.last (2 times)" in str(found)


def test_it_agrees_with_explain():
    layer, x = convt_ext.ConvTranspose2d(64, 64, 4, 2, 1), image()
    for name in ("H200", "A100"):
        for precision in (None, "exact", "tf32"):
            layer.precision = precision
            (line,) = report(layer.requires_grad_(False), x, device=name).lines
            said = convt_ext.explain(x, layer.weight, layer.bias, stride=2, padding=1, precision=precision, device=name)
            assert line.runs == said.served_by
            if line.runs == "convt_ext":
                assert line.kernel == said.plan["plan"]["kernel"]
                assert line.us == pytest.approx(said.plan["plan"]["estimate_us"], rel=0.02)


def test_floors():
    """The floors of the benchmark for the same layer; a column of the table only on request."""
    layer = convt_ext.ConvTranspose2d(64, 32, 4, 2, 1, output_padding=(1, 0), groups=2, dilation=(1, 2))
    same = Layer("", 4, 64, 32, 16, 16, (4, 4), (2, 2), (1, 1), (1, 0), 2, (1, 2), True)
    layer.backend = "convt_ext"
    columns_last = image().to(memory_format=torch.channels_last)
    for dtype, precision, mode in ((torch.float32, "ieee", "ieee"), (torch.float32, "tf32", "tf32"),
                                   (torch.bfloat16, "half", "bf16"), (torch.float64, "ieee", "f64")):  # fmt: skip
        layer.to(dtype).precision = precision
        for x, layout in ((image(), "nchw"), (columns_last, "nhwc")):
            for name in ("H200", "RTX 4090"):
                found = report(layer, x.to(dtype).requires_grad_(), device=name, floors=True)
                for line, direction in zip(found.lines, ("fwd", "grad_input", "grad_weight"), strict=True):
                    rates = floors.BY_GPU[name]
                    assert line.floor_us == floors.floor_us(same, direction, mode, dtype.itemsize, layout, rates)
                    assert 0 < line.floor_us < line.us
    assert "floor us" in str(found).splitlines()[1]
    without = report(layer, image().to(dtype))
    assert {line.floor_us for line in without.lines} == {None}
    assert "floor" not in str(without)
    unknown = report(layer, image().to(dtype), device=(90, 66, 232448, 233472, 1891, 2000), floors=True)
    assert [line.floor_us is None and line.us > 0 for line in unknown.lines] == [True] * 2


def test_floors_of_volumes():
    layer = convt_ext.ConvTranspose3d(8, 4, (1, 2, 2), (1, 2, 2), precision="exact")
    same = Layer("", 2, 8, 4, 4, 5, (1, 2, 2), (1, 2, 2), (0,) * 3, (0,) * 3, 1, (1,) * 3, True, depth=3)
    (line, _) = report(layer, torch.randn(2, 8, 3, 4, 5), device="H200", floors=True).lines
    assert line.floor_us == floors.floor_us(same, "fwd", "ieee", 4, "nchw", floors.H200)


def test_gradients_are_those_that_would_be_recorded():
    model = convt_ext.convert(Model())
    with torch.no_grad():
        assert {line.direction for line in report(model, image()).lines} == {"forward"}
    model.first.requires_grad_(False)
    directions = [line.direction for line in report(model, image().requires_grad_()).lines if line.layer == "first"]
    assert directions == ["forward", "input"]


def test_calls_that_convt_ext_does_not_receive():
    found = report(Model(), image())
    assert {(line.runs, line.reason) for line in found.lines} == {("torch", NOT_ASKED)}
    assert str(found).count(NOT_ASKED) == 1
    with convt_ext.enabled():
        assert {line.runs for line in forward_lines(report(Model(), image()))} >= {"convt_ext"}
    others = nn.Sequential(nn.ConvTranspose1d(2, 3, 3), nn.Unflatten(1, (3, 1, 1)), nn.ConvTranspose3d(3, 1, 1))
    line, other = report(others, torch.ones(1, 2, 5)).lines
    assert line.reason == other.reason == NOT_ASKED
    assert [one.call.split()[0] for one in (line, other)] == ["conv_transpose1d", "conv_transpose3d"]
    assert str(report(nn.ReLU(), image())) == "no transposed convolution was called"


def test_precisions_of_calls_and_blocks():
    x, weight = image(), torch.randn(64, 8, 3, 3)

    def function():
        conv_transpose2d(x, weight, precision="exact")
        with use_precision("tf32x3"):
            conv_transpose2d(x, weight, activation="relu")
        conv_transpose2d(x, weight)

    reasons = [line.reason for line in report(function).lines]
    assert reasons[:2] == ["precision='exact' asks for it", "flags(precision='tf32x3') asks for it"]
    assert reasons[2].startswith("estimated")


def test_a_report_restores_all_state(cpu_is_gpu):
    model, x = convt_ext.convert(Model()).train(), image()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    report(model, x)
    with pytest.raises(RuntimeError):
        report(model, x[:, :3])
    assert RAN == []
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert not nn.modules.module._has_any_global_hook()
    model(x)
    assert RAN == ["forward"] * 3


def test_compiled_and_fused_models(cpu_is_gpu):
    model = convt_ext.convert(nn.Sequential(nn.ConvTranspose2d(64, 8, 2, 2), nn.ReLU()).eval(), fuse=True)
    compiled = torch.compile(convt_ext.convert(Model()), backend="eager")
    with torch.no_grad():
        assert [line.runs for line in report(model, image()).lines] == ["convt_ext"]
        assert len(report(compiled, image()).lines) == 2

"""`enable` and `report` on the GPU: PyTorch's own modules run our kernels, with the results of converted ones."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from served import on_kernels, switch
from torch import nn

import convt_ext
from convt_ext import convert, flags


def model():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.ConvTranspose2d(64, 64, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(64, 3, 2, 2), nn.Tanh()
    ).cuda()


def image():
    return torch.randn(4, 64, 32, 32, device="cuda")


@pytest.fixture
def kernels(monkeypatch):
    """The precision of each call of ours, in order."""
    seen = []
    served = convt_ext.dispatch.directions.NativeConv.forward

    def forward(self, *tensors):
        seen.append(self.arguments[5])
        return served(self, *tensors)

    monkeypatch.setattr(convt_ext.dispatch.directions.NativeConv, "forward", forward)
    return seen


@pytest.mark.parametrize("lowers", [False, True], ids=["float32", "autocast"])
def test_inference_is_that_of_a_converted_model(kernels, lowers):
    plain, x = model(), image()
    lowered = torch.autocast("cuda", torch.bfloat16, enabled=lowers)
    with torch.no_grad(), flags(**on_kernels("half" if lowers else "exact")), lowered:
        expected = convert(copy.deepcopy(plain))(x)
        assert len(kernels) == 2
        with convt_ext.enabled():
            assert torch.equal(plain(x), expected)
        assert len(kernels) == 4
        plain(x)
    assert len(kernels) == 4


@pytest.mark.parametrize("lowers", [False, True], ids=["float32", "autocast"])
def test_training_steps_are_those_of_a_converted_model(lowers):
    losses = []
    for is_enabled in (False, True):
        one = model() if is_enabled else convert(model())
        optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
        torch.manual_seed(1)
        with switch(torch.backends.cudnn, "deterministic", True):
            if is_enabled:
                convt_ext.enable()
            for _ in range(5):
                optimizer.zero_grad()
                with torch.autocast("cuda", torch.bfloat16, enabled=lowers):
                    loss = one(image()).float().square().mean()
                loss.backward()
                optimizer.step()
            if is_enabled:
                convt_ext.disable()
        losses.append(loss.item())
    assert losses[0] == losses[1]


def test_compiled_code_and_graphs(kernels):
    plain, x = model(), image()
    with torch.no_grad():
        expected = plain(x)
        with convt_ext.enabled():
            torch.testing.assert_close(torch.compile(plain)(x), expected, rtol=5e-3, atol=5e-3)
            plain(x)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                result = plain(x)
        result.fill_(float("nan"))
        graph.replay()
        torch.testing.assert_close(result, expected, rtol=5e-3, atol=5e-3)


@pytest.mark.needs_two_gpus
def test_data_parallel():
    layer, x = nn.ConvTranspose2d(64, 32, 4, 2, 1).cuda(), image()
    expected = layer(x)
    with convt_ext.enabled():
        torch.testing.assert_close(nn.DataParallel(layer, [0, 1])(x), expected, rtol=5e-3, atol=5e-3)


def test_report():
    one, x = convert(model()), image()
    found = convt_ext.report(one, x)
    assert {line.layer for line in found.lines} == {"0", "2"}
    assert found.device == torch.cuda.get_device_name()
    for line in found.lines:
        assert (line.kernel != "") == (line.runs == "convt_ext")
    with torch.no_grad():
        said = convt_ext.explain(x, one[0].weight, one[0].bias, stride=2, padding=1)
        assert convt_ext.report(one, x).lines[0].runs == said.served_by
    assert F.conv_transpose2d is torch.conv_transpose2d

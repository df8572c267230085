"""Compiled programs with each alternative, and with the one that is chosen by the cost model or by measuring."""

from __future__ import annotations

import pytest
import torch
from served import allow_tf32, switch
from torch import nn
from torch._inductor import config
from torch._inductor.utils import run_and_get_code

import convt_ext
from convt_ext.compile import measure
from convt_ext.compile import mode as compile_mode

pytestmark = pytest.mark.usefixtures("fresh_compiler")

AFTER = {
    "GELU": nn.GELU, "pooling": lambda: nn.Sequential(nn.Tanh(), nn.MaxPool2d(2)),
    "convolution": lambda: nn.Sequential(nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 32, 3)),
}  # fmt: skip


@pytest.mark.parametrize("measures", [False, True], ids=["estimated", "measured"])
@pytest.mark.parametrize("mode", [compile_mode.AUTO, compile_mode.FUSED, compile_mode.BARE, compile_mode.ORIGINAL])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", AFTER)
def test_results_and_strides_are_those_of_the_original(monkeypatch, name, dtype, mode, measures):
    monkeypatch.setattr(compile_mode, "MODE", mode)
    monkeypatch.setattr(measure, "_known", {})
    torch.manual_seed(0)
    theirs = nn.Sequential(nn.ConvTranspose2d(64, 64, 4, 2, 1), AFTER[name]()).eval().to("cuda", dtype)
    x = torch.randn(8, 64, 32, 32, device="cuda", dtype=dtype)
    with torch.no_grad(), allow_tf32(True), switch(torch.backends.cudnn, "benchmark", measures):
        expected = theirs(x)
        model = convt_ext.convert(theirs)
        with config.patch(force_disable_caches=True):  # in a program from a cache nothing is chosen
            found, (code,) = run_and_get_code(torch.compile(model, fullgraph=True), x)
    assert found.stride() == expected.stride()
    assert (found.double() - expected.double()).norm() <= 2e-2 * expected.double().norm()
    if mode == compile_mode.ORIGINAL:
        assert "convt_ext" not in code
    if mode == compile_mode.AUTO and measures and torch.cuda.get_device_capability() == (9, 0):
        assert measure._known

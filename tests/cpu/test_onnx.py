"""ONNX export of a converted model: ONNX's own ConvTranspose, by both of PyTorch's exporters."""

from __future__ import annotations

import io

import pytest
import torch
from cpu_kernels import RAN
from torch import nn

import convt_ext

onnx = pytest.importorskip("onnx", reason="onnx is not installed")


def exported(dynamo: bool, precision: str | None) -> list[str]:
    """The ops of a small converted model."""
    model = nn.Sequential(nn.ConvTranspose2d(4, 6, 4, stride=2, padding=1), nn.ReLU(), nn.ConvTranspose2d(6, 3, 2, 2))
    convt_ext.convert(model.eval(), precision=precision)
    x = torch.randn(1, 4, 5, 6)
    if dynamo:
        proto = torch.onnx.export(model, (x,), dynamo=True, verbose=False).model_proto
    else:
        file = io.BytesIO()
        torch.onnx.export(model, (x,), file, dynamo=False)
        proto = onnx.load_from_string(file.getvalue())
    onnx.checker.check_model(proto)
    return [node.op_type for node in proto.graph.node]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("precision", [None, "exact"])
@pytest.mark.parametrize("dynamo", [False, True], ids=["torchscript", "dynamo"])
def test_ops(dynamo, precision, server):
    """On the CPU, and for calls that convt_ext's ops would run."""
    if dynamo:
        pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    names = exported(dynamo, precision)
    assert names.count("ConvTranspose") == 2
    assert RAN == []

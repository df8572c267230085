"""A user's program that uses every public name. test_types.py checks its types; nothing runs it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import convt_ext
from convt_ext import (
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    Explanation,
    LazyConvTranspose1d,
    LazyConvTranspose2d,
    LazyConvTranspose3d,
    Report,
    tuning,
)

x, weight, bias = torch.randn(1, 8, 5, 5), torch.randn(8, 4, 4, 4), torch.randn(4)
skip = torch.randn(1, 4, 10, 10)

y: Tensor = convt_ext.conv_transpose2d(x, weight, bias, stride=2, padding=(1, 1), output_padding=[0, 0], dilation=1)
y = convt_ext.conv_transpose2d(x, weight, stride=2, padding=1, residual=skip, activation="relu", precision="ieee")
y = convt_ext.conv_transpose2d(x, weight, stride=2, padding=1, activation=nn.GELU())
y = convt_ext.conv_transpose2d(x, weight, stride=2, padding=1, activation=torch.relu)
y = convt_ext.conv_transpose2d(x, weight, backend="torch")

audio = torch.randn(1, 8, 50)
y = convt_ext.conv_transpose1d(audio, weight[..., 0], bias, stride=(2,), padding=1, activation="relu", precision="ieee")
y = ConvTranspose1d(8, 4, 16, stride=8, padding=(4,), precision="exact")(audio)
y = LazyConvTranspose1d(4, 16, stride=8)(audio)

volume = torch.randn(1, 8, 4, 5, 6)
y = convt_ext.conv_transpose3d(volume, weight[..., None], bias, stride=(2, 2, 1), backend="auto")
y = ConvTranspose3d(8, 4, 2, stride=(1, 2, 2), precision=None)(volume)
y = LazyConvTranspose3d(4, 2, stride=2)(volume)

layer = ConvTranspose2d(8, 4, 4, stride=2, padding=1, precision="exact", backend="auto")
lazy = LazyConvTranspose2d(4, 3, stride=(2, 2), precision=None)
word: str | None = layer.precision
y = layer(x)

model = nn.Sequential(nn.ConvTranspose2d(8, 4, 4), nn.ReLU())
model = convt_ext.convert(
    model, precision="exact", backend=None, fuse=True, filter_fn=lambda module, name: name != "last"
)
first: nn.Module = model[0]
model = convt_ext.unfreeze(convt_ext.freeze(model.eval()))
model = convt_ext.revert(model)

convt_ext.enable()
convt_ext.disable()
with convt_ext.enabled():
    y = nn.functional.conv_transpose2d(x, weight)

with convt_ext.use_precision("exact") as scope, convt_ext.flags(precision="ieee", backend="auto"):
    y = layer(x)


@convt_ext.use_precision(None)
def double(value: Tensor, times: int = 2) -> Tensor:
    return torch.mul(layer(value), times)


y = double(x, times=3)

explanation: Explanation = convt_ext.explain(x, weight, stride=2, padding=1, residual=skip, device="A100", verbose=True)
text: str = explanation.text(verbose=True)
reason: str = explanation.served_by + explanation.reason + explanation.gradients["input"]
plan: dict[str, Any] | None = explanation.plan

found: Report = convt_ext.report(model, x, device="H100")
for line in found.lines:
    print(line.layer, line.direction, line.call, line.number, line.runs, line.kernel, line.us, line.other_us)

if convt_ext.is_available():
    print(convt_ext.__version__, convt_ext.build_info()["cuda"])

measured = tuning.tune(model, x, file="tuning.json", backward=False)
tuning.load("tuning.json")
tuning.unload()
with tuning.replay():
    y = layer(x)
tuning.merge(["a.json", "b.json"], "c.json")
convt_ext.tuning.agree()

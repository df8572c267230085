"""Three-dimensional layers on the host: kernels with a depth axis against PyTorch's sums in float64."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from emulator.calls import CLASSES, H200
from torch.nn import functional as F

# (N, C_in, C_out, D, H, W), kernel = stride, groups.
LAYERS = {
    "k2": ((2, 24, 40, 3, 5, 6), (2, 2, 2), 1),
    "k2_odd_width": ((1, 8, 9, 2, 3, 7), (2, 2, 2), 1),
    "k2_groups": ((2, 16, 24, 3, 4, 4), (2, 2, 2), 2),
    "k2_rows": ((2, 8, 12, 5, 2, 9), (3, 4, 2), 1),
    "k4": ((1, 40, 8, 2, 3, 4), (4, 4, 4), 1),
    "k1_depth": ((3, 16, 16, 4, 3, 8), (1, 2, 2), 1),
}


@dataclasses.dataclass
class Volume:
    """A layer with kernel = stride in one direction, with tensors in one format."""

    x: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None
    y: torch.Tensor
    groups: int
    direction: int
    kind: str

    @classmethod
    def of(cls, layer: str, direction: int, kind: str, channels_last: bool) -> Volume:
        (n, c_in, c_out, *size), kernel, groups = LAYERS[layer]
        generator = torch.Generator().manual_seed(1)

        def integers(*sizes: int) -> torch.Tensor:
            return torch.randint(-2, 3, sizes, generator=generator).to(CLASSES[kind][0])

        memory = torch.channels_last_3d if channels_last else torch.contiguous_format
        x = integers(n, c_in, *size).contiguous(memory_format=memory)
        y = integers(n, c_out, *(a * k for a, k in zip(size, kernel, strict=True))).contiguous(memory_format=memory)
        bias = integers(c_out) if direction == 0 else None
        return cls(x, integers(c_in, c_out // groups, *kernel), bias, y, groups, direction, kind)

    def problem(self) -> dict[str, Any]:
        _, dtype, precision = CLASSES[self.kind]
        sizes, kernel = self.x.shape[2:], self.weight.shape[2:]
        axes = [
            {"in": a, "out": a * k, "kernel": k, "stride": k, "padding": 0, "dilation": 1}
            for a, k in zip(sizes, kernel, strict=True)
        ]
        problem = {
            "direction": self.direction, "batch": self.x.shape[0], "c_in": self.x.shape[1], "c_out": self.y.shape[1],
            "groups": self.groups, "d": axes[0], "h": axes[1], "w": axes[2], "dtype": dtype, "precision": precision,
            "has_bias": self.bias is not None,
        }  # fmt: skip
        for name, tensor in (("x", self.x), ("w", self.weight), ("y", self.y)):
            strides = list(tensor.stride())
            problem[f"{name}_plane"] = strides.pop(2)
            problem[f"{name}_stride"] = strides
        return problem

    def expected(self) -> torch.Tensor:
        x, weight, y = self.x.double().requires_grad_(), self.weight.double(), self.y.double()
        bias = None if self.bias is None else self.bias.double()
        result = F.conv_transpose3d(x, weight, bias, self.weight.shape[2:], groups=self.groups)
        return result.detach() if self.direction == 0 else torch.autograd.grad(result, x, y)[0]


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("direction", [0, 1], ids=["forward", "grad_input"])
@pytest.mark.parametrize("layer", LAYERS)
def test_patches(emulated, layer, direction, channels_last, kind):
    """Every plan without clusters, exactly: sums of small integers are the same in every order."""
    call = Volume.of(layer, direction, kind, channels_last)
    plans = emulated.plans(call.problem(), H200, "patch_sm90a")
    of_kernel = LAYERS[layer][1]
    assert bool(plans) == (direction == 0 or (not channels_last and of_kernel[2] == 2))
    expected, written = call.expected(), (call.y, call.x)[direction]
    for number, (kernel, tile, *_) in enumerate(plans):
        if tile.get("splits", 1) > 1:
            continue
        written.fill_(torch.nan)
        tensors = [call.x.data_ptr(), call.weight.data_ptr(), 0 if call.bias is None else call.bias.data_ptr()]
        emulated.run(call.problem(), H200, "patch_sm90a", number, [*tensors, call.y.data_ptr()], 0, None)
        assert torch.equal(written.double(), expected), (kernel, tile)

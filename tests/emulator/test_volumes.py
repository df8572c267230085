"""Three-dimensional layers on the host: kernels with a depth axis against PyTorch's sums in float64."""

from __future__ import annotations

import dataclasses
from random import Random
from typing import Any

import pytest
import torch
from emulator.calls import CLASSES, EXACT_CLASSES, FEW_CLASSES, H200, KINDS
from oracle.plugin import forward, grad_input
from plan.profile import PROFILE
from raw_ops import assert_same_bits
from torch.nn import functional as F
from volumes import LAYERS, Layer, random_layer

PATCHES = {
    "k2": Layer((2, 24, 40, 3, 5, 6), (2, 2, 2)),
    "k2_odd_width": Layer((1, 8, 9, 2, 3, 7), (2, 2, 2)),
    "k2_groups": Layer((2, 16, 24, 3, 4, 4), (2, 2, 2), groups=2),
    "k2_few": Layer((2, 16, 32, 3, 4, 12), (2, 2, 2)),
    "k2_rows": Layer((2, 8, 12, 5, 2, 9), (3, 4, 2)),
    "k4": Layer((1, 40, 8, 2, 3, 4), (4, 4, 4)),
    "k1_depth": Layer((3, 16, 16, 4, 3, 8), (1, 2, 2)),
}
LAYERS = {**LAYERS, "k2": PATCHES["k2_odd_width"]}
# Layers that patch_direct supports: rows of its weights fill boxes of 128 bytes.
DIRECT = {
    "tf32": {"k2", "k2_few", "k4", "k1_depth", "k2_rows"},
    "f16": {"k2", "k2_few", "k4", "k1_depth"},
    "bf16": {"k2", "k2_few", "k4", "k1_depth"},
}


@dataclasses.dataclass
class Volume:
    """One direction of a three-dimensional layer, with tensors in one format."""

    x: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None
    y: torch.Tensor
    arguments: dict[str, Any]
    direction: int
    kind: str

    @classmethod
    def of(cls, layer: Layer, direction: int, kind: str, channels_last: bool, integers: bool = True) -> Volume:
        n, c_in, c_out, *size = layer.size
        generator = torch.Generator().manual_seed(1)

        def values(*sizes: int) -> torch.Tensor:
            made = torch.randint(-2, 3, sizes, generator=generator) if integers else torch.randn(
                sizes, generator=generator
            )  # fmt: skip
            return made.to(KINDS[kind][0])

        memory = torch.channels_last_3d if channels_last else torch.contiguous_format
        x, weight, y = (
            values(n, c_in, *size),
            values(c_in, c_out // layer.groups, *layer.k),
            values(n, c_out, *layer.output),
        )
        bias = values(c_out) if direction == 0 else None
        x, y = x.contiguous(memory_format=memory), y.contiguous(memory_format=memory)
        return cls(x, weight, bias, y, layer.arguments, direction, kind)

    def problem(self) -> dict[str, Any]:
        _, dtype, precision = KINDS[self.kind]
        kernel, lists = self.weight.shape[2:], (self.arguments[name] for name in ("stride", "padding", "dilation"))
        axes = [
            dict(zip(("in", "out", "kernel", "stride", "padding", "dilation"), axis, strict=True))
            for axis in zip(self.x.shape[2:], self.y.shape[2:], kernel, *lists, strict=True)
        ]
        problem = {
            "direction": self.direction, "batch": self.x.shape[0], "c_in": self.x.shape[1], "c_out": self.y.shape[1],
            "groups": self.arguments["groups"], "d": axes[0], "h": axes[1], "w": axes[2], "dtype": dtype,
            "precision": precision, "has_bias": self.bias is not None,
        }  # fmt: skip
        for name, tensor in (("x", self.x), ("w", self.weight), ("y", self.y)):
            strides = list(tensor.stride())
            problem[f"{name}_plane"] = strides.pop(2)
            problem[f"{name}_stride"] = strides
        return problem

    def expected(self) -> torch.Tensor:
        x, weight, y = (tensor.double().clone().requires_grad_() for tensor in (self.x, self.weight, self.y))
        bias = None if self.bias is None else self.bias.double()
        result = F.conv_transpose3d(x, weight, bias, **self.arguments)
        return torch.autograd.grad(result, (x, weight), y)[self.direction - 1] if self.direction else result.detach()

    def by_oracle(self, oracle) -> torch.Tensor:
        """The forward pass or the gradient of the input in the documented order."""
        if self.direction == 0:
            order = "aten" if self.kind.startswith("aten") else "ieee"
            return forward(oracle, self.x, self.weight, self.bias, **self.arguments, order=order)
        names = {name: value for name, value in self.arguments.items() if name != "output_padding"}
        return grad_input(oracle, self.y, self.weight, self.x.shape[2:], **names)

    def check_bits(self, emulated, oracle) -> None:
        """Compares every plan of `simt`, NaN with NaN of any bits."""
        expected, plans = self.by_oracle(oracle), emulated.plans(self.problem(), H200, "simt")
        assert plans
        for number, (kernel, tile, *_) in enumerate(plans):
            result = self.run(emulated, "simt", number, self.bias)
            assert_same_bits(*(one.nan_to_num(1234.5) for one in (result, expected)), (kernel, tile))

    def run(self, emulated, engine: str, number: int, bias: torch.Tensor | None) -> torch.Tensor:
        """Runs that plan, with NaN in the result before."""
        written = (self.y, self.x, self.weight)[self.direction].fill_(torch.nan)
        tensors = [tensor.data_ptr() if tensor is not None else 0 for tensor in (self.x, self.weight, bias, self.y)]
        emulated.run(self.problem(), H200, engine, number, tensors, 0, None)
        return written

    def check(self, emulated, engine: str, fields: tuple[str, ...] = ()) -> set[str]:
        """Runs every plan without clusters, or with `fields` those that differ in kernel and fields; returns the
        kernels. Sums of small integers are exact."""
        expected, ran, seen = self.expected(), set(), set()
        of_bias = self.y.double().sum((0, 2, 3, 4))
        if self.direction == 2 and self.kind in CLASSES:
            self.weight = self.weight.float()  # the emulator does not round sums of slabs
        for number, (kernel, tile, *_) in enumerate(emulated.plans(self.problem(), H200, engine)):
            way = (kernel, *(tile[field] for field in fields)) if fields else number
            if way in seen or (tile.get("splits", 1) > 1 and engine in ("patch_sm90a", "nhwc_sm90a")):
                continue
            seen.add(way)
            bias = torch.full((self.y.shape[1],), torch.nan) if tile["gives_grad_bias"] else self.bias
            written = self.run(emulated, engine, number, bias)
            assert torch.equal(written.double(), expected), (kernel, tile)
            assert not tile["gives_grad_bias"] or torch.equal(bias.double(), of_bias), (kernel, tile)
            ran.add(kernel)
        return ran


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("direction", [0, 1], ids=["forward", "grad_input"])
@pytest.mark.parametrize("layer", PATCHES)
def test_patches(emulated, layer, direction, channels_last, kind):
    call = Volume.of(PATCHES[layer], direction, kind, channels_last)
    ran = call.check(emulated, "patch_sm90a")
    assert bool(ran) == (direction == 0 or (not channels_last and PATCHES[layer].k[2] == 2))
    is_direct = direction == 0 and not channels_last and layer in DIRECT.get(kind, ())
    assert is_direct == any("direct" in kernel for kernel in ran)


@pytest.mark.parametrize("kind", ["tf32", "tf32x3", "bf16"])
@pytest.mark.parametrize("layer", PATCHES)
def test_gradient_of_the_input_in_channels_last(emulated, layer, kind):
    call = Volume.of(PATCHES[layer], 1, kind, channels_last=True)
    aligned = call.y.shape[1] // call.arguments["groups"] * call.y.element_size() % 16 == 0
    assert bool(call.check(emulated, "nhwc_sm90a", ("staged", "direct"))) == aligned


@pytest.mark.parametrize("kind", [kind for kind in FEW_CLASSES if kind != "tf32x3"])
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("layer", PATCHES)
def test_gradient_of_the_weight(emulated, layer, channels_last, kind):
    assert Volume.of(PATCHES[layer], 2, kind, channels_last).check(emulated, "correlate_sm90a")


@pytest.mark.parametrize("kind", EXACT_CLASSES)
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("layer", LAYERS)
def test_gradient_of_the_weight_of_exact_classes(emulated, layer, channels_last, kind):
    assert Volume.of(LAYERS[layer], 2, kind, channels_last).check(emulated, "simt")


@pytest.mark.parametrize("kind", EXACT_CLASSES)
@pytest.mark.parametrize("direction", [0, 1], ids=["forward", "grad_input"])
@pytest.mark.parametrize("layer", LAYERS)
def test_documented_bits(emulated, oracle, layer, direction, kind):
    for channels_last in (False, True):
        Volume.of(LAYERS[layer], direction, kind, channels_last, integers=False).check_bits(emulated, oracle)


@pytest.mark.parametrize("direction", [0, 1], ids=["forward", "grad_input"])
@pytest.mark.parametrize("layer", ["gaps", "dilated", "far", "one_plane"])
def test_nan_reaches_exactly_its_results(emulated, oracle, layer, direction):
    call = Volume.of(LAYERS[layer], direction, "ieee_f32", direction == 1, integers=False)
    call.weight[0, 0, 0, 0, 0] = torch.nan
    (call.y if direction else call.x)[-1, -1, -1, -1, -1] = torch.nan
    call.check_bits(emulated, oracle)


@pytest.mark.parametrize("direction", [0, 1, 2], ids=["forward", "grad_input", "grad_weight"])
@pytest.mark.parametrize("seed", range(6 if PROFILE == "ci" else 12))
def test_random_problems(emulated, oracle, seed, direction):
    """Results have the documented bits. The order of gradients of the weight depends on the plan: sums of integers."""
    draw = Random(f"{seed} {direction}")
    layer, kind = random_layer(draw, 60_000), draw.choice(list(EXACT_CLASSES))
    call = Volume.of(layer, direction, kind, draw.random() < 0.5, integers=direction == 2)
    if direction == 2:
        assert call.check(emulated, "simt")
    else:
        call.check_bits(emulated, oracle)

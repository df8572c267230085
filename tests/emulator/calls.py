"""Calls of the emulated kernels: a case's tensors in a direction, what comes out, and what should."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

import torch
from cases import Case
from plan.profile import PROFILE
from torch.nn import functional as F

from convt_ext.environment.gpus import GPUS

H200 = GPUS["H200"]
A100, RTX_4090 = GPUS["A100"], GPUS["RTX 4090"]  # with room for many stages, and for few
DIRECTIONS = ("forward", "grad_input", "grad_weight")
CLASSES = {
    "tf32": (torch.float32, 0, 3), "tf32x3": (torch.float32, 0, 2), "f16": (torch.float16, 2, 4),
    "bf16": (torch.bfloat16, 3, 4),
}  # fmt: skip
EXACT_CLASSES = {
    "ieee_f32": (torch.float32, 0, 0), "ieee_f64": (torch.float64, 1, 0), "ieee_f16": (torch.float16, 2, 0),
    "ieee_bf16": (torch.bfloat16, 3, 0), "aten_f32": (torch.float32, 0, 1),
}  # fmt: skip
KINDS = {**CLASSES, **EXACT_CLASSES}
# Kernels in f16 differ from those in bf16 only in conversions: slow tests run them in `make test-all`.
FEW_CLASSES = tuple(kind for kind in CLASSES if kind != "f16" or PROFILE != "ci")


def in_format(tensor: torch.Tensor, channels_last: bool) -> torch.Tensor:
    return tensor.contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)


@dataclasses.dataclass
class Call:
    """One direction of a case: the tensors of the problem, of which one is to be written."""

    case: Case
    direction: str
    kind: str
    x: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None
    y: torch.Tensor  # grad_output of gradients
    grad_bias: torch.Tensor | None = None  # beside the gradient of the weight, if it is to be written too
    engine: str = "portable"

    @classmethod
    def of(cls, case: Case, direction: str, kind: str, channels_last: bool = False, integers: bool = True) -> Call:
        dtype = KINDS[kind][0]
        x, weight, bias = case.tensors(dtype, integers=integers)
        generator = torch.Generator().manual_seed(1)
        y = torch.randint(-2, 3, case.output_size, generator=generator) if integers else torch.randn(
            case.output_size, generator=generator
        )  # fmt: skip
        call = cls(case, direction, kind, x, weight, bias if direction == "forward" else None,
                   in_format(y.to(dtype), channels_last))  # fmt: skip
        if direction == "grad_input":
            call.x = in_format(call.x, channels_last)
        elif direction == "grad_weight":
            call.weight = call.weight.contiguous()
        return call

    @property
    def written(self) -> torch.Tensor:
        return {"forward": self.y, "grad_input": self.x, "grad_weight": self.weight}[self.direction]

    @property
    def is_exact(self) -> bool:
        return self.kind in EXACT_CLASSES

    def problem(self) -> dict[str, Any]:
        case, (_, dtype, precision) = self.case, KINDS[self.kind]

        def axis(i: int) -> dict[str, int]:
            return {
                "in": self.x.shape[2 + i], "out": self.y.shape[2 + i], "kernel": case.k[i], "stride": case.s[i],
                "padding": case.p[i], "dilation": case.d[i],
            }  # fmt: skip

        return {
            "direction": DIRECTIONS.index(self.direction), "batch": case.n, "c_in": case.c_in, "c_out": case.c_out,
            "groups": case.g, "h": axis(0), "w": axis(1), "dtype": dtype, "precision": precision,
            "has_bias": self.bias is not None, "x_stride": list(self.x.stride()),
            "w_stride": list(self.weight.stride()), "y_stride": list(self.y.stride()),
        }  # fmt: skip

    def expected(self) -> torch.Tensor:
        """In float64."""
        x, weight, y = (tensor.double().detach() for tensor in (self.x, self.weight, self.y))
        bias = None if self.bias is None else self.bias.double()
        x.requires_grad_(), weight.requires_grad_()
        result = F.conv_transpose2d(x, weight, bias, **self.case.arguments)
        if self.direction == "forward":
            return result.detach()
        return torch.autograd.grad(result, x if self.direction == "grad_input" else weight, y)[0]

    def plans(self, emulated, device: tuple[int, ...] = A100) -> Iterator[int]:
        """The numbers of those that may run where the tensors begin."""
        others = {"forward": (self.x, self.y), "grad_input": (self.y, self.x), "grad_weight": (self.y, self.x)}
        aligned = [tensor.data_ptr() % 16 == 0 for tensor in others[self.direction]]
        for number, (_, _, *needs) in enumerate(emulated.plans(self.problem(), device, self.engine)):
            if all(begins or not needed for begins, needed in zip(aligned, needs, strict=True)):
                yield number

    def run(self, emulated, number: int, device: tuple[int, ...] = A100, images=0, steps=None) -> torch.Tensor:
        """Runs a plan, with `images` images per launch if given, and returns its result, which was NaN before.

        In tensor-core classes the gradient of the weight is float32. `grad_bias` is None unless the plan gives it.
        """
        if self.direction == "grad_weight":
            if not self.is_exact:
                self.weight = self.weight.float()
            gives = emulated.plans(self.problem(), device, self.engine)[number][1]["gives_grad_bias"]
            self.grad_bias = torch.full((self.case.c_out,), torch.nan) if gives else None
        bias = self.grad_bias if self.direction == "grad_weight" else self.bias
        bias = 0 if bias is None else bias.data_ptr()
        problem, result = self.problem(), self.written.fill_(torch.nan)
        tensors = [self.x.data_ptr(), self.weight.data_ptr(), bias, self.y.data_ptr()]
        emulated.run(problem, device, self.engine, number, tensors, images, steps)
        return result

    def spread_nan(self, operand: str, places: Iterable[tuple[int, ...]]) -> torch.Tensor:
        """Writes NaN to some places of an operand; returns which results read them."""
        marked = torch.zeros_like(getattr(self, operand))
        for place in places:
            getattr(self, operand)[place] = torch.nan
            marked[place] = 1
        ones = {name: torch.ones_like(getattr(self, name)) for name in ("x", "weight", "y")}
        return dataclasses.replace(self, bias=None, **{**ones, operand: marked}).expected() > 0

    def with_epilogue(self) -> tuple[dict[str, Any], torch.Tensor]:
        """Steps of an epilogue (scales, a residual, a clamp), and the result in float64 after them."""
        scales = torch.arange(self.case.c_out).remainder(3).to(self.y.dtype)
        other = torch.empty_like(self.y).copy_(torch.arange(self.y.numel()).remainder(7).view(self.y.shape))
        steps = {"scales": scales.data_ptr(), "results": other.data_ptr(), "low": -5.0, "high": 20.0}
        expected = (self.expected() * scales.double()[:, None, None] + other.double()).clamp(-5, 20)
        return {**steps, "tensors": (scales, other)}, expected


def check(emulated, call: Call, device: tuple[int, ...], draw: int) -> None:
    """One of the plans, exactly: sums of small integers are the same in every order."""
    expected, number = call.expected(), Random(draw).choice(list(call.plans(emulated, device)))
    found = call.run(emulated, number, device)
    words = (call.case, call.direction, call.kind, emulated.plans(call.problem(), device, call.engine)[number])
    assert torch.equal(found.double(), expected), words


def products(case: Case) -> int:
    taps = case.k[0] * case.k[1]
    return case.n * case.c_in * case.c_out // case.g * case.h * case.w * taps

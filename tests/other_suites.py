"""Cases of the transposed convolution from the test suites of ONNX and JAX, as calls of convt_ext.

onnx_cases.json contains tensors and attributes of ONNX's node tests of ConvTranspose (onnx 1.17). The sizes of JAX's
cases are those of `testConvTranspose1D`, `2D` and `2DT` in its lax_test.py; their results follow from JAX's definition:
zeros between the elements of the input, then a correlation.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

ONNX = json.loads((Path(__file__).parent / "onnx_cases.json").read_text())
_CORRELATE: dict[int, Callable[..., torch.Tensor]] = {1: F.conv1d, 2: F.conv2d}


@dataclass
class Case:
    """A call with any padding per side: positive crops the result, negative extends it."""

    x: torch.Tensor
    weight: torch.Tensor
    expected: torch.Tensor
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    output_padding: tuple[int, ...]
    groups: int = 1

    def run(self, function: Callable[..., torch.Tensor], device: str, dtype: torch.dtype, **named: Any) -> torch.Tensor:
        """Returns the result of a function with the arguments of `conv_transpose2d`."""
        extra = tuple(more + max(0, -after) for more, after in zip(self.output_padding, self.after, strict=True))
        padding = tuple(max(0, min(pair)) for pair in zip(self.before, self.after, strict=True))
        operands = (one.to(device, dtype) for one in (self.x, self.weight))
        y = function(*operands, None, self.stride, padding, extra, self.groups, self.dilation, **named)
        for axis, (before, after, cropped) in enumerate(zip(self.before, self.after, padding, strict=True), 2):
            y = y.narrow(axis, before - cropped, y.shape[axis] - (before - cropped) - max(0, after - cropped))
        return y


def onnx_case(name: str) -> Case:
    """Returns a case of ONNX, with the paddings that its operator derives from `auto_pad` and `output_shape`."""
    case = ONNX[name]
    x, weight, y = (
        torch.tensor(case[one]["values"], dtype=torch.float64).view(case[one]["shape"]) for one in ("x", "weight", "y")
    )
    given = case["attributes"]
    dims = x.dim() - 2
    stride, dilation = (tuple(given.get(one, [1] * dims)) for one in ("strides", "dilations"))
    output_padding = tuple(given.get("output_padding", [0] * dims))
    before, after = tuple(given.get("pads", [0] * 2 * dims)[:dims]), tuple(given.get("pads", [0] * 2 * dims)[dims:])
    upper = given.get("auto_pad") == "SAME_UPPER"
    sizes = given.get("output_shape") or ([n * s for n, s in zip(x.shape[2:], stride, strict=True)] if upper else None)
    if sizes is not None:
        whole = [
            (n - 1) * s + d * (k - 1) + 1 + extra
            for n, s, d, k, extra in zip(x.shape[2:], stride, dilation, weight.shape[2:], output_padding, strict=True)
        ]
        total = [one - size for one, size in zip(whole, sizes, strict=True)]
        halves = [(max(one, 0) // 2, one - max(one, 0) // 2) for one in total]
        before, after = zip(*(half if upper or min(half) < 0 else half[::-1] for half in halves), strict=True)
    return Case(x, weight, y, stride, dilation, before, after, output_padding, given.get("group", 1))


def jax_cases(dims: int, stride: tuple[int, ...], padding: str, dilation: int, transposed: bool) -> Iterator[Case]:
    """Yields JAX's cases of these arguments; `transposed`: its `transpose_kernel`, which flips the kernel."""
    for batch, c_in, c_out, k in itertools.product([2, 3], [2, 3], [2, 3], [3, 4, 5]):
        x = torch.randn(batch, c_in, *(9, 10)[2 - dims :], dtype=torch.float64)
        weight = torch.randn(c_in, c_out, *[k] * dims, dtype=torch.float64)
        spread, reach = x, dilation * (k - 1)
        sides = [_jax_padding(reach + 1, s, padding) for s in stride]
        for axis, s in enumerate(stride, 2):
            wide = spread.new_zeros([n if i != axis else (n - 1) * s + 1 for i, n in enumerate(spread.shape)])
            wide[(slice(None),) * axis + (slice(None, None, s),)] = spread
            spread = wide
        padded = F.pad(spread, [side for pair in reversed(sides) for side in pair])
        spatial = tuple(range(2, dims + 2))
        kernel = (weight.flip(spatial) if transposed else weight).transpose(0, 1)
        expected = _CORRELATE[dims](padded, kernel, dilation=dilation)
        before, after = zip(*((reach - first, reach - last) for first, last in sides), strict=True)
        flipped = weight if transposed else weight.flip(spatial)
        yield Case(x, flipped, expected, stride, (dilation,) * dims, before, after, (0,) * dims)


def _jax_padding(reach: int, stride: int, padding: str) -> tuple[int, int]:
    """Returns the zeros on both sides of the spread input; `reach` is the length of the dilated kernel."""
    total = reach + stride - 2 + (max(reach - stride, 0) if padding == "VALID" else 0)
    first = reach - 1 if padding == "VALID" or stride > reach - 1 else math.ceil(total / 2)
    return first, total - first

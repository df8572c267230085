"""The scalar C++ oracle of the exact sums, for every test that compares bits.

A conftest takes the fixture with `from oracle.plugin import oracle`.

    forward(oracle, x, weight, bias, stride=2, padding=1, order="aten")     # CPU tensors, any of the four dtypes
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from plan import build

KERNEL_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@pytest.fixture(scope="session")
def oracle() -> ModuleType:
    return build.load_or_skip("_oracle")


def _triple(value: int | tuple[int, ...], axes: int, depth: int) -> tuple[int, ...]:
    """The values of three spatial axes; the depth's is `depth` if there are two."""
    values = (value,) * axes if isinstance(value, int) else tuple(map(int, value))
    return (depth,) * (3 - axes) + values


def _arrays(*tensors: torch.Tensor | None) -> list[Any]:
    """The tensors in the dtype of their sums, with three spatial axes."""
    sums = torch.float64 if any(t is not None and t.dtype == torch.float64 for t in tensors) else torch.float32
    found = (None if t is None else t.detach().to(sums) for t in tensors)
    return [None if t is None else (t.unsqueeze(2) if t.dim() == 4 else t).numpy() for t in found]


def forward(
    oracle: ModuleType,
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    output_padding: int | tuple[int, ...] = 0,
    groups: int = 1,
    dilation: int | tuple[int, ...] = 1,
    *,
    order: str = "ieee",
) -> torch.Tensor:
    """conv_transpose2d or 3d of CPU tensors with the sums in `order`; the arguments of the functional.

    float16 and bfloat16 are summed in float32 and rounded once, as the kernels do. The result is contiguous.
    """
    if input.dtype not in KERNEL_DTYPES:
        raise TypeError(f"input: got {input.dtype}, expected one of {KERNEL_DTYPES}")
    axes = input.dim() - 2
    lists = _triple(stride, axes, 1), _triple(padding, axes, 0), _triple(output_padding, axes, 0)
    result = oracle.forward(*_arrays(input, weight, bias), *lists, groups, _triple(dilation, axes, 1), order)
    return torch.from_numpy(result if axes == 3 else result[:, :, 0]).to(input.dtype)


def grad_input(
    oracle: ModuleType,
    grad_output: torch.Tensor,
    weight: torch.Tensor,
    input_size: tuple[int, ...],
    stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    groups: int = 1,
    dilation: int | tuple[int, ...] = 1,
) -> torch.Tensor:
    """The gradient of the input of CPU tensors in the documented order, rounded once to their dtype."""
    axes = grad_output.dim() - 2
    lists = _triple(input_size, axes, 1), _triple(stride, axes, 1), _triple(padding, axes, 0)
    result = oracle.grad_input(*_arrays(grad_output, weight), *lists, groups, _triple(dilation, axes, 1))
    return torch.from_numpy(result if axes == 3 else result[:, :, 0]).to(grad_output.dtype)

"""The scalar C++ oracle of the exact sums, for every test that compares bits.

A conftest takes the fixture with `from oracle.plugin import oracle`.

    forward(oracle, x, weight, bias, stride=2, padding=1, order="aten")     # CPU tensors, any of the four dtypes
"""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from plan import build

KERNEL_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@pytest.fixture(scope="session")
def oracle() -> ModuleType:
    return build.load_or_skip("_oracle")


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))


def forward(
    oracle: ModuleType,
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    output_padding: int | tuple[int, int] = 0,
    groups: int = 1,
    dilation: int | tuple[int, int] = 1,
    *,
    order: str = "ieee",
) -> torch.Tensor:
    """conv_transpose2d of 4-D CPU tensors with the sums in `order`; the arguments of the functional.

    float16 and bfloat16 are summed in float32 and rounded once, as the kernels do. The result is contiguous.
    """
    if input.dtype not in KERNEL_DTYPES:
        raise TypeError(f"input: got {input.dtype}, expected one of {KERNEL_DTYPES}")
    sum_dtype = torch.float64 if input.dtype == torch.float64 else torch.float32
    x, w, b = (None if t is None else t.detach().to(sum_dtype).numpy() for t in (input, weight, bias))
    result = oracle.forward(
        x, w, b, _pair(stride), _pair(padding), _pair(output_padding), groups, _pair(dilation), order
    )
    return torch.from_numpy(result).to(input.dtype)


def grad_input(
    oracle: ModuleType,
    grad_output: torch.Tensor,
    weight: torch.Tensor,
    input_size: tuple[int, int],
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    groups: int = 1,
    dilation: int | tuple[int, int] = 1,
) -> torch.Tensor:
    """The gradient of the input of 4-D CPU tensors in the documented order, rounded once to their dtype."""
    sum_dtype = torch.float64 if grad_output.dtype == torch.float64 else torch.float32
    gy, w = (tensor.detach().to(sum_dtype).numpy() for tensor in (grad_output, weight))
    result = oracle.grad_input(gy, w, input_size, _pair(stride), _pair(padding), groups, _pair(dilation))
    return torch.from_numpy(result).to(grad_output.dtype)

"""Data whose sums are exact in float64, and PyTorch's result for it."""

from __future__ import annotations

import torch
from plan.problems import Problem, output_padding_of, sizes_of


def exact_data(problem: Problem, seed: int, dtype: torch.dtype = torch.float64):
    """Random integers so small that every sum of products is exact in float64."""
    generator = torch.Generator().manual_seed(seed)
    x_size, w_size, _ = sizes_of(problem)
    x, weight = (torch.randint(-8, 9, size, generator=generator).to(dtype) for size in (x_size, w_size))
    bias = torch.randint(-8, 9, (problem["c_out"],), generator=generator).to(dtype)
    return x, weight, bias if problem["has_bias"] else None


def expected_output(problem: Problem, x, weight, bias) -> torch.Tensor:
    """PyTorch's result for CPU tensors."""
    h, w = problem["h"], problem["w"]
    pair = {key: (h[key], w[key]) for key in ("stride", "padding", "dilation")}
    output_padding = (output_padding_of(h), output_padding_of(w))
    return torch.nn.functional.conv_transpose2d(
        x, weight, bias, output_padding=output_padding, groups=problem["groups"], **pair
    )

"""Data whose sums are exact in float64, PyTorch's results for them, and plans judged by both: equal in every bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from plan.problems import GRAD_INPUT, Problem, output_padding_of, sizes_of

Written = tuple[np.ndarray, np.ndarray]  # results, and how often each of them was written


def exact_data(problem: Problem, seed: int, dtype: torch.dtype = torch.float64):
    """Random integers so small that every sum of products is exact in float64."""
    generator = torch.Generator().manual_seed(seed)
    x_size, w_size, _ = sizes_of(problem)
    x, weight = (torch.randint(-8, 9, size, generator=generator).to(dtype) for size in (x_size, w_size))
    bias = torch.randint(-8, 9, (problem["c_out"],), generator=generator).to(dtype)
    return x, weight, bias if problem["has_bias"] else None


def exact_grad_output(problem: Problem, seed: int) -> torch.Tensor:
    """As exact_data: a gradient of the output."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-8, 9, sizes_of(problem)[2], generator=generator).to(torch.float64)


def expected_output(problem: Problem, x, weight, bias) -> torch.Tensor:
    """PyTorch's result for CPU tensors."""
    h, w = problem["h"], problem["w"]
    pair = {key: (h[key], w[key]) for key in ("stride", "padding", "dilation")}
    output_padding = (output_padding_of(h), output_padding_of(w))
    return torch.nn.functional.conv_transpose2d(
        x, weight, bias, output_padding=output_padding, groups=problem["groups"], **pair
    )


def expected_gradient(problem: Problem, grad_output, x, weight, of_input: bool) -> torch.Tensor:
    """PyTorch's for CPU tensors: of the input, or of the weight."""
    h, w = problem["h"], problem["w"]
    pairs = ([h[key], w[key]] for key in ("stride", "padding", "dilation"))
    padding = [output_padding_of(h), output_padding_of(w)]
    results = torch.ops.aten.convolution_backward(
        grad_output, x, weight, None, *pairs, True, padding, problem["groups"], [of_input, not of_input, False]
    )
    return results[0 if of_input else 1]


def operands_and_result(problem: Problem, seed: int) -> tuple[list[torch.Tensor | None], torch.Tensor]:
    """Input, weight and bias, and PyTorch's output; or the output's gradient and the weight, and PyTorch's gradient of
    the input."""
    x, weight, bias = exact_data(problem, seed)
    if problem["direction"] != GRAD_INPUT:
        return [x, weight, bias], expected_output(problem, x, weight, bias)
    grad_output = exact_grad_output(problem, seed)
    return [grad_output, weight], expected_gradient(problem, grad_output, x, weight, True)


def assert_exact(problem: Problem, run: Callable[..., Written], seed: int = 0) -> None:
    """Every result of run(*operands) is written once, and is PyTorch's in every bit."""
    operands, expected = operands_and_result(problem, seed)
    assert_written_once(*run(*(None if operand is None else operand.numpy() for operand in operands)), expected)


def assert_exact_grad_weight(problem: Problem, run: Callable[..., Written], seed: int = 0) -> None:
    """As assert_exact, for the slabs, which add up to the gradient of the weight, of run(grad_output, x)."""
    x, weight, _ = exact_data(problem, seed)
    grad_output = exact_grad_output(problem, seed)
    slabs, writes = run(grad_output.numpy(), x.numpy())
    assert_written_once(slabs.sum(0), writes, expected_gradient(problem, grad_output, x, weight, False))


def assert_written_once(result: np.ndarray, writes: np.ndarray, expected: torch.Tensor) -> None:
    assert (writes == 1).all(), f"{(writes == 0).sum()} results never written, {(writes > 1).sum()} more than once"
    np.testing.assert_array_equal(result, expected.numpy())

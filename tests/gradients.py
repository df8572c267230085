"""Gradients for tests on the CPU and on the GPU: leaves of a case, their gradients, and what error they may have.

The error budget follows from the sums: a gradient of K products, in any order, differs from the exact one by at
most (K + 2) u S, where S is the sum of the products' magnitudes, and once by half a unit of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

Tensors = Sequence["torch.Tensor | None"]

# Half of the smallest number: results below the normal range are rounded to multiples of it.
_SUBNORMAL = {torch.float16: 2.0**-25, torch.bfloat16: 2.0**-134, torch.float32: 2.0**-150, torch.float64: 0.0}
_UNIT = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24, torch.float64: 2.0**-53}


def leaves(case, dtype=torch.float64, device="cpu", requires=(True, True, True), seed=0) -> list[Any]:
    """Input, weight and bias of a case as leaves, in the case's layout."""
    tensors = case.tensors(dtype, device=device, seed=seed)
    return [
        None if tensor is None else tensor.detach().requires_grad_(needed)
        for tensor, needed in zip(tensors, requires, strict=True)
    ]


def ramp(result: torch.Tensor) -> torch.Tensor:
    """A gradient of the result that is different everywhere, and the same for every dtype."""
    values = torch.linspace(-1, 1, result.numel(), dtype=torch.float64, device=result.device)
    return values.view(result.shape).bfloat16().to(result.dtype)


def gradients(call: Callable[..., torch.Tensor], case, operands: Tensors, **named: Any) -> tuple[torch.Tensor, ...]:
    """Computes the gradients of the operands that require one, for `ramp` as the gradient of the result."""
    result = call(*operands, **case.arguments, **named)
    wanted = [tensor for tensor in operands if tensor is not None and tensor.requires_grad]
    return torch.autograd.grad(result, wanted, ramp(result))


def with_gradients(function: Callable[..., torch.Tensor], operands: Tensors) -> list[torch.Tensor]:
    """Returns a function's result, and the gradients of the sum of its squares for copies of the operands."""
    leaves = [tensor if tensor is None else tensor.detach().clone().requires_grad_() for tensor in operands]
    result = function(*leaves)
    return [result, *torch.autograd.grad(result.square().sum(), [leaf for leaf in leaves if leaf is not None])]


def _exact(case, operands: Tensors, change: Callable[[torch.Tensor], torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """float64 gradients on the CPU, of changed operands and a changed gradient of the result."""
    changed = [
        None if tensor is None else change(tensor.detach().cpu().double()).requires_grad_() for tensor in operands
    ]
    result = F.conv_transpose2d(*changed, **case.arguments)
    return torch.autograd.grad(result, [tensor for tensor in changed if tensor is not None], change(ramp(result)))


def assert_within_budget(found: Sequence[torch.Tensor], case, operands: Tensors) -> None:
    """Every element of every gradient against float64. A failure names the worst element."""
    exact = _exact(case, operands, lambda tensor: tensor)
    magnitude = _exact(case, operands, torch.abs)
    count = _exact(case, operands, torch.ones_like)
    for name, mine, right, size, terms in zip(
        ("input", "weight", "bias"), found, exact, magnitude, count, strict=False
    ):
        rounding = _UNIT[torch.float64 if mine.dtype is torch.float64 else torch.float32]
        # float64 is compared with float64, which has the same error in its own order
        budget = 2 * (terms + 2) * rounding * size + 2 * _UNIT[mine.dtype] * right.abs()
        budget += _SUBNORMAL[mine.dtype] + 1e-30
        excess = (mine.detach().cpu().double() - right).abs() / budget
        worst = excess.argmax().item()
        assert excess.max() <= 1, (
            f"gradient of the {name}, element {worst}: got {mine.flatten()[worst].item()!r}, "
            f"exact {right.flatten()[worst].item()!r}, {excess.max().item():.1f} times the budget; {case}"
        )

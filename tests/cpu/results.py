"""Results of a call together with its gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch


def with_gradients(
    function: Callable[..., torch.Tensor], operands: Sequence[torch.Tensor | None]
) -> list[torch.Tensor]:
    """Returns a function's result, and the gradients of the sum of its squares for copies of the operands."""
    leaves = [tensor if tensor is None else tensor.detach().clone().requires_grad_() for tensor in operands]
    result = function(*leaves)
    return [result, *torch.autograd.grad(result.square().sum(), [leaf for leaf in leaves if leaf is not None])]

"""Results of a call together with its gradients, and outcomes of calls with bad arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import bad_input
import torch
import torch.nn.functional as F

import convt_ext


def with_gradients(
    function: Callable[..., torch.Tensor], operands: Sequence[torch.Tensor | None]
) -> list[torch.Tensor]:
    """Returns a function's result, and the gradients of the sum of its squares for copies of the operands."""
    leaves = [tensor if tensor is None else tensor.detach().clone().requires_grad_() for tensor in operands]
    result = function(*leaves)
    return [result, *torch.autograd.grad(result.square().sum(), [leaf for leaf in leaves if leaf is not None])]


def outcomes(function: Callable[..., torch.Tensor], tensors: Sequence[Any], named: dict[str, Any]) -> tuple[Any, ...]:
    """Returns results or errors (bad_input.py) of PyTorch's function, of ours, and of PyTorch's name with `enable`."""
    values = {"stride": 1, "padding": 0, "output_padding": 0, "groups": 1, "dilation": 1, **named}
    args = (*tensors, None)[:3] + tuple(values.values())
    expected = bad_input.outcome(getattr(F, function.__name__), *args)
    found = bad_input.outcome(function, *args)
    with convt_ext.enabled():
        return expected, found, bad_input.outcome(getattr(F, function.__name__), *args)

"""Packed copies of one module's weight, for inference: what the tensor-core kernels otherwise pack on every call.

Called by modules.py. Nothing is packed unasked: no version counter tells of `p.data.copy_()`, and allocators use an
address again. So a user says that the weight will not change, and the module forgets the copies when it does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import ops, planner, routing

# Copies kept, one for each problem (size and layout of the input, precision); the oldest goes first.
_MAX_COPIES = 8


class FrozenWeight:
    """One weight, and what kernels packed it into.

    Args:
        weight: held alive; must not change.
    """

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        self._packed: dict[tuple[Any, ...], Tensor | None] = {}

    def forward(self, input: Tensor, bias: Tensor | None, *arguments: Any) -> Tensor | None:
        """The result without packing; None where that is not for a call that packs, which the caller makes instead.

        Args:
            arguments: stride, padding, output_padding, groups, dilation, precision.
        """
        if torch.is_grad_enabled() and torch._C._any_requires_grad(input, self.weight, bias):
            return None
        decision = routing.route(input, self.weight, bias, *arguments)
        if isinstance(decision, routing.Reason):
            return None
        batched, weight, bias, directions = decision
        if weight is not self.weight:  # autocast made a copy of another dtype
            return None
        key = (batched.shape, batched.stride(), batched.dtype, batched.get_device(), bias is None, directions.arguments)
        is_packed = key in self._packed
        if is_packed:
            packed = self._packed[key]
        elif batched.is_cuda and torch.cuda.is_current_stream_capturing():  # a copy must have been written to be used
            return None
        else:
            packed = self._memory(batched, bias is not None, directions.arguments)
        result = None
        if packed is not None:
            with torch._C._AutoDispatchBelowAutograd():
                result = ops.forward_packed(batched, weight, bias, *directions.arguments, packed, is_packed)
        if not is_packed:
            self._keep(key, packed)
        return result.squeeze(0) if result is not None and input.dim() == 3 else result

    def _memory(self, input: Tensor, has_bias: bool, arguments: tuple[Any, ...]) -> Tensor | None:
        """Memory for the planner's choice to pack into; None where that packs nothing."""
        device = planner.device_numbers(input.get_device())
        answer = planner.plan_of_call(input, self.weight, has_bias, arguments, device)
        if answer is None or answer["plan"]["packed_bytes"] == 0:
            return None
        return torch.empty(answer["plan"]["packed_bytes"], dtype=torch.uint8, device=input.device)

    def _keep(self, key: tuple[Any, ...], packed: Tensor | None) -> None:
        if packed is not None and packed.is_cuda:
            torch.cuda.current_stream(packed.device).synchronize()  # other streams may read it from now on
        while len(self._packed) >= _MAX_COPIES:
            del self._packed[next(iter(self._packed))]
        self._packed[key] = packed

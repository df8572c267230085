"""Packed copies of one module's weight, for inference: what the tensor-core kernels otherwise pack on every call.

Called by modules.py. Nothing is packed unasked: no version counter tells of `p.data.copy_()`, and allocators use an
address again. So a user says that the weight will not change, and the module forgets the copies when it does.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from . import ops, planner, routing

# Copies kept, one for each problem (size and layout of the input, precision); the oldest goes first.
_MAX_COPIES = 8

# Bytes on which kernels that pack may want their operands to begin.
_ALIGNMENT = 16

# Copies by weight that a CUDA graph was captured with. Each replay reads them and nothing tells when the graph is gone,
# so they live as long as their weight, which a graph of PyTorch's operator needs as well.
_captured = WeakTensorKeyDictionary()


class _Copy(NamedTuple):
    packed: Tensor | None  # None where the problem's kernel does not pack
    stream: int  # that the memory belongs to; 0 on the CPU


class FrozenWeight:
    """One weight, and what kernels packed it into.

    Args:
        weight: held alive; must not change.
    """

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        self._copies: dict[tuple[Any, ...], _Copy] = {}
        self._lock = threading.Lock()

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
        # Of operands between vectors another kernel may serve, which packs otherwise or nothing.
        if (batched.data_ptr() | weight.data_ptr()) % _ALIGNMENT != 0:
            return None
        key = (batched.shape, batched.stride(), batched.dtype, batched.get_device(), bias is None, directions.arguments)
        capturing = batched.is_cuda and torch.cuda.is_current_stream_capturing()
        copy = self._copies.get(key)
        is_packed = copy is not None
        if copy is None:
            if capturing:  # a copy must have been written to be used
                return None
            copy = self._new_copy(batched, bias is not None, directions.arguments)
        result = None
        if copy.packed is not None:
            if is_packed and copy.packed.is_cuda:
                self._lend(copy.packed, copy.stream, capturing)
            with torch._C._AutoDispatchBelowAutograd():
                result = ops.forward_packed(batched, weight, bias, *directions.arguments, copy.packed, is_packed)
        if not is_packed:
            self._keep(key, copy)
        return result.squeeze(0) if result is not None and input.dim() == 3 else result

    def _new_copy(self, input: Tensor, has_bias: bool, arguments: tuple[Any, ...]) -> _Copy:
        """Memory for the planner's choice to pack into, where that packs."""
        device = planner.device_numbers(input.get_device())
        answer = planner.plan_of_call(input, self.weight, has_bias, arguments, device)
        if answer is None or answer["plan"]["packed_bytes"] == 0:
            return _Copy(None, 0)
        packed = torch.empty(answer["plan"]["packed_bytes"], dtype=torch.uint8, device=input.device)
        return _Copy(packed, torch.cuda.current_stream(packed.device).cuda_stream if packed.is_cuda else 0)

    def _lend(self, packed: Tensor, stream: int, capturing: bool) -> None:
        """Has the memory wait for a reader whom the allocator does not know of: a graph, or a stream not its own."""
        if capturing:
            copies = _captured.setdefault(self.weight, [])
            if not any(one is packed for one in copies):
                copies.append(packed)
            return
        # Asked on every call: a `torch.cuda.Stream` is made where there is something to tell the allocator.
        if torch._C._cuda_getCurrentRawStream(packed.get_device()) != stream:
            packed.record_stream(torch.cuda.current_stream(packed.device))

    def _keep(self, key: tuple[Any, ...], copy: _Copy) -> None:
        if copy.packed is not None and copy.packed.is_cuda:
            torch.cuda.current_stream(copy.packed.device).synchronize()  # other streams may read it from now on
        with self._lock:
            while len(self._copies) >= _MAX_COPIES:
                del self._copies[next(iter(self._copies))]
            self._copies[key] = copy

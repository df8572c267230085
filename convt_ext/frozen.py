"""Packed copies of one module's weight, for inference: tensor-core kernels otherwise pack the weight on every call.

Called by modules.py. A copy contains the weight at the time of packing. Each use checks whether the weight has changed
since: PyTorch counts the writes to a tensor, and other memory has another address. Some writes, such as
`weight.data.mul_(2)`, change neither, so packing is opt-in; `convt_ext.freeze` lists them.
"""

from __future__ import annotations

import functools
import threading
import weakref
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from . import _torch, autocast, ops, planner, routing
from .directions import Directions

# Maximum number of copies, one per problem (size and layout of the input, precision); the oldest is dropped first.
_MAX_COPIES = 8

# Maximum size of a copy: _MAX_TIMES the weight plus _MAX_MORE bytes. Kernels round up the channels of each group.
_MAX_TIMES, _MAX_MORE = 4, 4 << 20

# Alignment in bytes that kernels that pack may require of their operands.
_ALIGNMENT = 16


@dataclass(slots=True)
class _Copy:
    packed: Tensor | None  # None if the problem's kernel does not pack, or packs too much
    stream: int  # the stream that owns the memory; 0 on the CPU
    is_captured: bool = False  # whether a CUDA graph reads it


class _Uncounted:
    """The number of PyTorch's writes to parameters that it does not count; which parameters is unknown."""

    number = 0


@functools.cache
def see_uncounted_writes() -> None:
    """Registers hooks for them: fused optimizers' steps and, before torch 2.13, averages by `torch._foreach_lerp_`."""
    from torch.nn.modules.module import register_module_buffer_registration_hook
    from torch.optim.optimizer import register_optimizer_step_post_hook
    from torch.optim.swa_utils import AveragedModel

    def count() -> None:
        if not torch.compiler.is_compiling():  # a compiled step counts its writes; this would break its graph
            _Uncounted.number += 1

    def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        count()

    def when_set(module: Any, name: str, buffer: Any) -> None:
        if name == "n_averaged" and isinstance(module, AveragedModel):  # the last statement of update_parameters()
            count()

    register_optimizer_step_post_hook(after_step)
    register_module_buffer_registration_hook(when_set)


def num_uncounted_writes() -> int:
    """Returns the number of writes that `see_uncounted_writes` has counted."""
    return _Uncounted.number


class _Weight(NamedTuple):
    """Identifies a state of a weight."""

    writes: int
    uncounted: int
    address: int
    strides: tuple[int, ...]


class FrozenWeight:
    """One weight and its packed copies.

    Args:
        weight: kept alive. Its memory is also kept alive until a call finds that the weight has other memory, so that
            no new memory has the address of the packed one.
    """

    fold: Any = None  # set by fusing/folding.py

    def __init__(self, weight: Tensor) -> None:
        see_uncounted_writes()
        self.weight = weight
        self._state: _Weight | None = None
        self._memory: torch.UntypedStorage | None = None
        self._copies: dict[tuple[Any, ...], _Copy] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        """Copies and pickles to None: copied modules are not frozen, and parametrized modules copy all attributes."""
        return type(None), ()

    def forward(self, input: Tensor, bias: Tensor | None, *arguments: Any) -> Tensor | None:
        """Returns the result from a packed copy; None if the caller must make an ordinary call, which packs.

        Args:
            arguments: stride, padding, output_padding, groups, dilation, and the word of the keywords (request.py).
        """
        if F.conv_transpose2d is not _torch.conv_transpose2d:  # a tool has replaced it: functional.py calls that
            return None
        if torch.is_grad_enabled() and _torch.any_requires_grad(input, self.weight, bias):
            return None
        lowers = torch.is_autocast_enabled(routing.DEVICE_TYPE)
        if lowers and autocast.dtype_of(self.weight, routing.DEVICE_TYPE) is not self.weight.dtype:
            return None  # the caller casts
        decision = routing.route(input, self.weight, bias, *arguments)
        if isinstance(decision, routing.Reason):
            return None
        batched, weight, bias, directions = decision
        if not directions.serves(batched, weight, bias, 0):
            return None
        if weight.is_inference():  # writes to it are not counted
            return None
        # Misaligned operands may run another kernel, which packs differently or not at all.
        if (batched.data_ptr() | weight.data_ptr()) % _ALIGNMENT != 0:
            return None
        capturing = batched.is_cuda and torch.cuda.is_current_stream_capturing()
        state = _Weight(weight._version, _Uncounted.number, weight.data_ptr(), weight.stride())
        if state != self._state:
            if capturing:  # a captured call can only use an existing copy
                return None
            self._begin_again(state)
        key = (
            state, batched.shape, batched.stride(), batched.dtype, batched.get_device(), bias is None,
            directions.arguments, directions.candidates[0],
        )  # fmt: skip
        copy = self._copies.get(key)
        is_packed = copy is not None
        if copy is None:
            if capturing:
                return None
            copy = self._new_copy(batched, bias is not None, directions)
        result = None
        if copy.packed is not None:
            if is_packed and copy.packed.is_cuda:
                self._lend(copy, copy.packed, capturing)
            try:
                with _torch.AutoDispatchBelowAutograd():
                    result = ops.forward_packed(
                        batched, weight, bias, *directions.arguments, directions.candidates[0], copy.packed, is_packed
                    )
            except torch.OutOfMemoryError:  # an ordinary call may need less
                return None
        if not is_packed:
            self._keep(key, copy)
        return result.squeeze(0) if result is not None and input.dim() == 3 else result

    def _begin_again(self, state: _Weight) -> None:
        with self._lock:
            self._copies.clear()
            self._memory = self.weight.untyped_storage()
            self._state = state

    def _new_copy(self, input: Tensor, has_bias: bool, directions: Directions) -> _Copy:
        """Allocates memory for the packed weight, if the plan of the call packs."""
        device = planner.device_numbers(input.get_device())
        choice = planner.choice(
            planner.Problem.of_call(input, self.weight, has_bias, directions.arguments, device),
            preferred=directions.candidates[0],
        )
        if choice is None or not 0 < choice.packed_bytes <= _MAX_TIMES * self.weight.nbytes + _MAX_MORE:
            return _Copy(None, 0)
        try:
            packed = torch.empty(choice.packed_bytes, dtype=torch.uint8, device=input.device)
        except torch.OutOfMemoryError:
            return _Copy(None, 0)
        return _Copy(packed, torch.cuda.current_stream(packed.device).cuda_stream if packed.is_cuda else 0)

    def _lend(self, copy: _Copy, packed: Tensor, capturing: bool) -> None:
        """Keeps the memory for a reader that the allocator does not track: a graph, or another stream."""
        if capturing:
            if not copy.is_captured:
                copy.is_captured = True
                _keep_as_long_as(self.weight.untyped_storage(), packed)
            return
        # Runs on every call, so a `torch.cuda.Stream` is constructed only for another stream.
        if _torch.current_raw_stream(packed.get_device()) != copy.stream:
            packed.record_stream(torch.cuda.current_stream(packed.device))

    def _keep(self, key: tuple[Any, ...], copy: _Copy) -> None:
        """Keeps the copy that the op has packed; the op has waited for it, since other streams may now read it."""
        with self._lock:
            if key[0] != self._state:  # another thread's call has seen a newer weight
                return
            while len(self._copies) >= _MAX_COPIES:
                del self._copies[next(iter(self._copies))]
            self._copies[key] = copy


def _keep_as_long_as(memory: torch.UntypedStorage, packed: Tensor) -> None:
    """Keeps a copy that a captured CUDA graph reads until the weight's memory is freed.

    Each replay reads the copy, and nothing reports the end of the graph; a graph of PyTorch's operator reads the
    weight's memory itself. The finalizer is on the memory and not on the weight's tensor, because
    torch.utils.swap_tensors rejects a tensor with a weak reference.
    """
    weakref.finalize(memory, _release, packed).atexit = False


def _release(packed: Tensor) -> None:
    """Does nothing: the finalizer held the last reference to `packed`."""

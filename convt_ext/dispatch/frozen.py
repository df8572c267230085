"""Copies of a frozen weight for inference: packed for a kernel, or cast to autocast's dtype.

Without them, tensor-core kernels pack the weight on every call, and autocast casts it. functional.py,
epilogue/fused.py and compiled programs find the copies of a weight by the tensor itself (`find`). A copy contains the
weight at the time of copying. Each use checks whether the weight has changed since: PyTorch counts the writes to a
tensor, and other memory has another address. Some writes, such as `weight.data.mul_(2)`, change neither, so freezing is
opt-in; `convt_ext.freeze` lists them.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..environment import _torch
from ..epilogue.steps import Step, lists_of
from . import autocast, ops, planner, routing
from .directions import NativeConv

# Maximum number of packed copies, one per problem (size and layout of the input, precision); the oldest is dropped.
_MAX_COPIES = 8

# Maximum size of a packed copy: _MAX_TIMES the weight plus _MAX_MORE bytes. Kernels round up channels per group.
_MAX_TIMES, _MAX_MORE = 4, 4 << 20

_NO_STEPS: tuple[list[int], list[float], list[Tensor]] = [], [], []

# Alignment in bytes that kernels that pack may require of their operands.
_ALIGNMENT = 16


@dataclass(slots=True)
class _Copy:
    memory: Tensor | None  # None if the problem's kernel does not pack, or packs too much
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

    def when_set(module: Any, name: str, buffer: Any) -> None:
        if name == "n_averaged" and isinstance(module, AveragedModel):  # the last statement of update_parameters()
            count()

    register_optimizer_step_post_hook(lambda *_: count())
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


# The frozen weights by the id of their tensors, which they keep alive.
registry: dict[int, weakref.ref[FrozenWeight]] = {}


def find(weight: Any) -> FrozenWeight | None:
    """Returns the copies of this tensor; None if it is not frozen."""
    found = registry.get(id(weight))
    return None if found is None else found()


def copies_for(input: Any, weight: Any, bias: Any) -> FrozenWeight | None:
    """Returns the copies for a call with this weight, in the dtype that autocast gives it; None if the weight is not
    frozen or the call records gradients."""
    found = find(weight)
    if found is None or (torch.is_grad_enabled() and _torch.any_requires_grad(input, weight, bias)):
        return None
    if not torch.is_autocast_enabled(routing.DEVICE_TYPE):
        return found
    return found.cast(autocast.dtype_of(weight, routing.DEVICE_TYPE))


def freeze(weight: Tensor) -> FrozenWeight:
    """Returns the copies of this tensor, without those of an earlier `freeze`."""
    found = find(weight)
    if found is None:
        return FrozenWeight(weight)
    found.begin_again(None)
    found.fold = None
    return found


class FrozenWeight:
    """One weight and its copies.

    Args:
        weight: kept alive. Its memory is also kept alive until a call finds that the weight has other memory, so that
            no new memory has the address of the packed one.
        is_copy: nothing writes to `weight`, because it is a copy itself.
    """

    fold: Any = None  # set by epilogue/folding.py

    def __init__(self, weight: Tensor, is_copy: bool = False) -> None:
        see_uncounted_writes()
        self.weight = weight
        self.is_copy = is_copy
        self._own = _Copy(weight, stream_of(weight))
        self._state: _Weight | None = None
        self._memory: torch.UntypedStorage | None = None
        self._copies: dict[tuple[Any, ...], _Copy] = {}
        self._casts: dict[torch.dtype, FrozenWeight] = {}
        self._lock = threading.Lock()
        number = id(weight)
        registry[number] = weakref.ref(self, lambda _: registry.pop(number, None))

    def __reduce__(self) -> Any:
        """Copies and pickles to None: copied modules are not frozen, and parametrized modules copy all attributes."""
        return type(None), ()

    def cast(self, dtype: torch.dtype) -> FrozenWeight | None:
        """Returns this weight in another dtype; None if writes to it are not counted or memory for it is missing."""
        if dtype is self.weight.dtype:
            return self
        state = self._now()
        if state is None:
            return None
        found = self._casts.get(dtype)
        if found is None:
            if _is_capturing(self.weight):
                return None
            try:
                with torch.inference_mode(False), torch.no_grad():
                    found = FrozenWeight(self.weight.detach().to(dtype), is_copy=True)
            except torch.OutOfMemoryError:
                return None
            if found.weight.is_cuda:  # other streams may read it from now on
                torch.cuda.current_stream(found.weight.device).synchronize()
            with self._lock:
                if state is self._state:
                    self._casts[dtype] = found
        found._lend(found._own, self.weight)
        return found

    def call(self, input: Tensor, weight: Tensor, bias: Tensor | None, directions: NativeConv) -> Tensor:
        """As `autograd.call`, for a call that records no gradient."""
        if directions.serves(input, weight, bias, 0):
            return self.run(input, weight, bias, directions)
        return _torch.conv_transpose2d(input, weight, bias, *directions.arguments[:5])

    def run(
        self, input: Tensor, weight: Tensor, bias: Tensor | None, directions: NativeConv, steps: Sequence[Step] = ()
    ) -> Tensor:
        """Computes as `directions.forward_then`, from a packed copy if one can be used, for a call that records no
        gradient and that convt_ext computes. `weight`: this weight, on the axes of the problem."""
        result = self._run_packed(input, weight, bias, directions, steps)
        if result is not None:
            return result
        if steps:
            return directions.forward_then(input, weight, bias, steps)
        return directions.forward(input, weight, bias)

    def _run_packed(
        self, input: Tensor, weight: Tensor, bias: Tensor | None, directions: NativeConv, steps: Sequence[Step]
    ) -> Tensor | None:
        """Runs on every call with a frozen weight, so the host time of each line counts."""
        state = self._now()
        # Misaligned operands may run another kernel, which packs differently or not at all.
        if state is None or (input.data_ptr() | state.address) % _ALIGNMENT != 0:
            return None
        # Another plan may be faster with such a step (kernels/binding/call.cpp).
        if steps:
            num_channels = weight.shape[1] * directions.arguments[3]
            if any(one.tensor is not None and one.tensor.numel() > num_channels for one in steps):
                return None
        key = directions.call, input.shape, input.stride(), bias is None
        copy = self._copies.get(key)
        is_packed = copy is not None
        if copy is None:
            if _is_capturing(input):  # a captured call can only use an existing copy
                return None
            copy = self._new_copy(input, weight, bias is not None, directions)
        if copy.memory is not None:
            if is_packed:
                self._lend(copy, self.weight)
            lists = lists_of(steps) if steps else _NO_STEPS
            try:
                result = ops.run_forward_packed(input, weight, bias, directions.call, copy.memory, is_packed, *lists)
            except torch.OutOfMemoryError:  # an ordinary call may need less
                return None
        else:
            result = None
        if not is_packed:
            self._keep(key, copy, state)
        return result

    def _now(self) -> _Weight | None:
        """Returns the state of the weight, and drops the copies of another one; None if writes to it are not counted
        or, during a capture, if there are no copies of this state."""
        weight = self.weight
        try:
            writes = 0 if self.is_copy else weight._version
        except RuntimeError:  # of a tensor that was made under torch.inference_mode
            return None
        state = self._state
        if (
            state is None
            or writes != state.writes
            or weight.data_ptr() != state.address
            or weight.stride() != state.strides
            or (_Uncounted.number != state.uncounted and not self.is_copy)
        ):
            if _is_capturing(weight):
                return None
            state = _Weight(writes, _Uncounted.number, weight.data_ptr(), weight.stride())
            self.begin_again(state)
        return state

    def begin_again(self, state: _Weight | None) -> None:
        """Drops all copies."""
        with self._lock:
            self._copies.clear()
            self._casts.clear()
            self._memory = self.weight.untyped_storage()
            self._state = state

    def _new_copy(self, input: Tensor, weight: Tensor, has_bias: bool, directions: NativeConv) -> _Copy:
        """Allocates memory for the packed weight, if the plan of the call packs."""
        device = planner.device_numbers(input.get_device())
        best = planner.best_plan(
            planner.Problem.of_call(input, weight, has_bias, directions.arguments, device),
            preferred=directions.candidates[0],
        )
        if best is None or not 0 < best.packed_bytes <= _MAX_TIMES * weight.nbytes + _MAX_MORE:
            return _Copy(None, 0)
        try:
            packed = torch.empty(best.packed_bytes, dtype=torch.uint8, device=input.device)
        except torch.OutOfMemoryError:
            return _Copy(None, 0)
        return _Copy(packed, stream_of(packed))

    def _lend(self, copy: _Copy, weight: Tensor) -> None:
        """Keeps the memory of a copy for a reader that the allocator does not track: a graph, or another stream. The
        memory of `weight` outlives all graphs that read the copy."""
        memory = copy.memory
        if memory is None or not memory.is_cuda:
            return
        if torch.cuda.is_current_stream_capturing():
            if not copy.is_captured:
                copy.is_captured = True
                _keep_as_long_as(weight.untyped_storage(), memory)
        # Runs on every call, so a `torch.cuda.Stream` is constructed only for another stream.
        elif _torch.current_raw_stream(memory.get_device()) != copy.stream:
            memory.record_stream(torch.cuda.current_stream(memory.device))

    def _keep(self, key: tuple[Any, ...], copy: _Copy, state: _Weight) -> None:
        """Keeps the copy that the op has packed; the op has waited for it, since other streams may now read it."""
        with self._lock:
            if state is not self._state:  # another thread's call has seen a newer weight
                return
            while len(self._copies) >= _MAX_COPIES:
                del self._copies[next(iter(self._copies))]
            self._copies[key] = copy


def _is_capturing(tensor: Tensor) -> bool:
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def stream_of(tensor: Tensor) -> int:
    return _torch.current_raw_stream(tensor.get_device()) if tensor.is_cuda else 0


def _keep_as_long_as(memory: torch.UntypedStorage, packed: Tensor) -> None:
    """Keeps a copy that a captured CUDA graph reads until the weight's memory is freed.

    Each replay reads the copy, and nothing reports the end of the graph; a graph of PyTorch's operator reads the
    weight's memory itself. The finalizer is on the memory and not on the weight's tensor, because
    torch.utils.swap_tensors rejects a tensor with a weak reference. Its function does nothing: the finalizer holds the
    last reference to `packed`.
    """
    weakref.finalize(memory, lambda packed: None, packed).atexit = False

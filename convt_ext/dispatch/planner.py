"""Interface to the planner in the binary: the numbers of a GPU, and the plan of a problem on such a GPU.

Called by tuning/ (estimates, candidates), frozen.py (packed bytes) and explain.py (whole plans). A plan is a pure
function of problem and GPU. Must not choose between convt_ext and PyTorch.
"""

from __future__ import annotations

import ctypes
import functools
import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from ..environment import _extension
from ..environment._torch import disable_current_modes
from ..environment.gpus import GPUS
from . import ops, precision
from .geometry import output_size

# The GPU to plan for on a machine without one.
H200 = GPUS["H200"]

# The codes of the classes with a documented order of accumulation.
EXACT_CODES = tuple(precision.CODES[word] for word in precision.EXACT_CLASSES)

# Keys of every plan; the other keys are its threads and its tile.
OF_EVERY_PLAN = frozenset(
    ("kernel", "engine", "family", "fuses", "requested_precision", "served_precision", "shared_bytes", "num_blocks",
     "workspace_bytes", "packed_bytes", "compute_us", "memory_us", "estimate_us", "gives_grad_bias")
)  # fmt: skip

_DTYPE_CODES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}


@functools.cache
def device_numbers(device_index: int) -> tuple[int, ...]:
    """Returns the six numbers of an installed GPU (see `gpus.GPUS`); only the first if the binary cannot run on it,
    because the binary's runtime may then fail to query it."""
    if ops.device is None or _extension.unsupported_reason(device_index) is not None:
        major, minor = _extension.capability(device_index)
        return (10 * major + minor,)
    with disable_current_modes():  # the query is not part of the user's computation
        return tuple(ops.device(device_index))


def capability(device: Sequence[int]) -> tuple[int, int]:
    """Returns the compute capability (major, minor) of a GPU with these numbers."""
    return divmod(device[0], 10)


class BestPlan(NamedTuple):
    """The properties of a plan that a call needs."""

    estimate_us: float  # time of the kernel, estimated or measured
    torch_us: float  # time of PyTorch's operator in that precision; 0 if unknown
    packed_bytes: int  # memory for the packed weight; 0 if the kernel does not pack


class Contender(NamedTuple):
    """A plan that is worth a measurement."""

    number: int  # its number among the problem's candidates; 0 is the planner's choice
    estimate_us: float  # the planner's estimate of its time
    workspace_bytes: int  # memory that it needs besides the result


class Problem(NamedTuple):
    """The input of the planner; sizes are always those of the forward pass."""

    input_size: Any
    input_stride: Any
    weight_size: Any
    weight_stride: Any
    has_bias: bool
    stride: Any
    padding: Any
    output_padding: Any
    groups: int
    dilation: Any
    dtype: torch.dtype
    code: int  # the precision, as in `precision.CODES`
    channels_last: bool  # memory format of the result; the strides of a gradient follow from it
    device: Sequence[int]  # the six numbers of the GPU to plan for

    @classmethod
    def of_call(
        cls, input: torch.Tensor, weight: torch.Tensor, has_bias: bool, arguments: tuple[Any, ...],
        device: Sequence[int],
    ) -> Problem:  # fmt: skip
        """Returns the problem of an op's tensors and `arguments`: stride to dilation, precision code, channels_last."""
        layouts = input.shape, input.stride(), weight.shape, weight.stride()
        return cls(*layouts, has_bias, *arguments[:5], input.dtype, *arguments[5:], device)  # type: ignore[call-arg]

    def tensor_bytes(self) -> int:
        """Returns the bytes of input, weight and result."""
        result = output_size(self.input_size, self.weight_size, *self[5:10])
        return self.dtype.itemsize * sum(math.prod(size) for size in (self.input_size, self.weight_size, result))

    def _question(self, direction: int) -> tuple[Any, ...]:
        """Returns the arguments of the ops."""
        return (*self[:10], _DTYPE_CODES[self.dtype], *self[11:], direction)


def best_plan(problem: Problem, direction: int = 0, preferred: int = 0) -> BestPlan | None:
    """Returns the planner's choice, which the binary caches for a launch; None if no kernel can run the problem.

    Args:
        direction: 0 forward pass, 1 gradient of the input, 2 gradient of the weight.
        preferred: the number of the candidate that is preferred to the planner's choice.
    """
    with disable_current_modes():
        answer = ops.plan(*problem._question(direction), preferred)
    return BestPlan(answer[0] * 1e-3, answer[1] * 1e-3, answer[2]) if answer else None


def plan_ahead(problem: Problem, directions: Sequence[int]) -> None:
    """Makes the binary plan these directions in parallel, so that `best_plan` finds them cached."""
    if ops.plan is None or len(directions) < 2:
        return
    with disable_current_modes():
        ops.plan_ahead(*problem._question(directions[0]), directions[1:])


def contenders(problem: Problem, direction: int = 0) -> list[Contender]:
    """Returns the few plans that may be the fastest, the planner's choice first; empty if no kernel fits."""
    with disable_current_modes():
        answer = ops.contenders(*problem._question(direction))
    found = [Contender(answer[i], answer[i + 1] * 1e-3, answer[i + 2]) for i in range(0, len(answer), 3)]
    # The plan of the weight's gradient determines the order of accumulation of the exact classes.
    return found[:1] if direction == 2 and problem.code in EXACT_CODES else found


def plan(problem: Problem, direction: int = 0) -> dict[str, Any] | None:
    """Returns the planner's whole answer (see `explain.Explanation`); None without a binary.

    Raises:
        ValueError, RuntimeError: a problem or GPU without any plan.
    """
    if ops.plan is None:
        return None
    with disable_current_modes():
        text = ops.explain(*problem._question(direction))
    return json.loads(ctypes.string_at(text.data_ptr(), text.numel()))

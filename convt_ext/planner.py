"""Questions to the planner inside the binary: a GPU's numbers, and the plan of a problem on such a GPU.

Called by directions.py (is our plan slower than PyTorch?), frozen.py (what does it pack?) and explain.py (what is it?).
The binary computes; this only asks, so a plan is still a pure function of problem and GPU. Must not decide who serves.
"""

from __future__ import annotations

import ctypes
import functools
import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from . import _extension, ops, precision
from ._torch import disable_current_modes
from .geometry import output_size
from .gpus import GPUS

# The GPU that is planned for where there is none.
H200 = GPUS["H200"]

# The codes of the classes whose sums have a documented order.
EXACT_CODES = tuple(precision.CODES[word] for word in precision.EXACT_CLASSES)

# What the planner says of every plan; the rest of its answer is what was chosen: its threads and its tile.
OF_EVERY_PLAN = frozenset(
    ("kernel", "engine", "family", "fuses", "requested_precision", "served_precision", "shared_bytes", "num_blocks",
     "workspace_bytes", "packed_bytes", "compute_us", "memory_us", "estimate_us", "gives_grad_bias")
)  # fmt: skip

_DTYPE_CODES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}


@functools.cache
def device_numbers(device_index: int) -> tuple[int, ...]:
    """The six numbers of an installed GPU (see `gpus.GPUS`); the first alone where the binary cannot run on it, whose
    runtime may then fail to query it."""
    if ops.device is None or _extension.unsupported_reason(device_index) is not None:
        major, minor = _extension.capability(device_index)
        return (10 * major + minor,)
    with disable_current_modes():  # asking is no part of the user's computation
        return tuple(ops.device(device_index))


def capability(device: Sequence[int]) -> tuple[int, int]:
    """Compute capability of a GPU given by its numbers, as (major, minor)."""
    return divmod(device[0], 10)


class Choice(NamedTuple):
    """What a call needs to know of its plan.

    Attributes:
        estimate_us: how long our kernel takes, estimated or measured.
        torch_us: how long PyTorch's operator takes in that precision; 0 where nothing is known.
        packed_bytes: memory that the kernel packs the weight into; 0 where it packs nothing.
    """

    estimate_us: float
    torch_us: float
    packed_bytes: int


class Contender(NamedTuple):
    """One of our plans that is worth a measurement.

    Attributes:
        number: among the problem's candidates; 0 is the planner's choice.
        estimate_us: how long it takes by the planner's estimate.
        workspace_bytes: memory that it needs besides the result.
    """

    number: int
    estimate_us: float
    workspace_bytes: int


class Problem(NamedTuple):
    """What the planner is asked about; sizes are always those of the forward pass.

    Attributes:
        code: the precision, as in `precision.CODES`.
        channels_last: memory format of the result; the strides of a gradient follow from it.
        device: the six numbers of the GPU to plan for.
    """

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
    code: int
    channels_last: bool
    device: Sequence[int]

    @classmethod
    def of_call(
        cls, input: torch.Tensor, weight: torch.Tensor, has_bias: bool, arguments: tuple[Any, ...],
        device: Sequence[int],
    ) -> Problem:  # fmt: skip
        """Of an op's tensors and `arguments`: stride to dilation, the precision's code, channels_last."""
        stride, padding, output_padding, groups, dilation, code, channels_last = arguments
        return cls(
            input.shape, input.stride(), weight.shape, weight.stride(), has_bias, stride, padding, output_padding,
            groups, dilation, input.dtype, code, channels_last, device,
        )  # fmt: skip

    def tensor_bytes(self) -> int:
        """What input, weight and result take in memory."""
        result = output_size(
            self.input_size, self.weight_size, self.stride, self.padding, self.output_padding, self.groups,
            self.dilation,
        )  # fmt: skip
        return self.dtype.itemsize * sum(math.prod(size) for size in (self.input_size, self.weight_size, result))

    def _question(self, direction: int) -> tuple[Any, ...]:
        """The arguments of the ops."""
        return (*self[:10], _DTYPE_CODES[self.dtype], *self[11:], direction)


def choice(problem: Problem, direction: int = 0, preferred: int = 0) -> Choice | None:
    """The planner's choice, which a launch of that problem finds remembered; None where no kernel of ours serves it.

    Args:
        direction: 0 the forward pass, 1 the gradient of the input, 2 the gradient of the weight.
        preferred: the number of the candidate that is preferred to the planner's choice.

    Raises:
        RuntimeError: sizes or arguments that no call can have.
    """
    with disable_current_modes():
        answer = ops.plan(*problem._question(direction), preferred)
    return Choice(answer[0] * 1e-3, answer[1] * 1e-3, answer[2]) if answer else None


def plan_ahead(problem: Problem, directions: Sequence[int]) -> None:
    """Has the binary plan these directions at the same time, so that `choice` finds them remembered."""
    if ops.plan is None or len(directions) < 2:
        return
    with disable_current_modes():
        ops.plan_ahead(*problem._question(directions[0]), directions[1:])


def contenders(problem: Problem, direction: int = 0) -> list[Contender]:
    """The few plans of ours that may be the fastest, the planner's choice first; none where no kernel of ours serves.

    Of the gradient of the weight in the exact classes the planner's choice alone: it decides the order of the sums.
    """
    with disable_current_modes():
        answer = ops.contenders(*problem._question(direction))
    found = [Contender(answer[i], answer[i + 1] * 1e-3, answer[i + 2]) for i in range(0, len(answer), 3)]
    return found[:1] if direction == 2 and problem.code in EXACT_CODES else found


def plan(problem: Problem, direction: int = 0) -> dict[str, Any] | None:
    """The planner's whole answer, in words; None where there is no binary. Nothing is launched.

    Returns:
        A dict with "problem", "device", "plan", "candidates", "phases_h", "phases_w", "floor_us" and "torch_us"
        (PyTorch's time in that precision: a cautious estimate, 0 where nothing is known).

    Raises:
        ValueError, RuntimeError: a problem or GPU that nothing can be planned for.
    """
    if ops.plan is None:
        return None
    with disable_current_modes():
        text = ops.explain(*problem._question(direction))
    return json.loads(ctypes.string_at(text.data_ptr(), text.numel()))

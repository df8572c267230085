"""Questions to the planner inside the binary: a GPU's numbers, and the plan of a problem on such a GPU.

Called by routing.py (is our plan slower than PyTorch?) and explain.py (what is it?). The binary computes;
this only asks, so a plan is still a pure function of problem and GPU. Must not decide who serves.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from . import _extension, ops

# compute capability, multiprocessors, shared memory per block and per multiprocessor (bytes), MHz, copy GB/s:
# what an H200 reports of itself
H200 = (90, 132, 232448, 233472, 1891, 4213)

_DTYPE_CODES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}


@functools.cache
def device_numbers(device_index: int) -> tuple[int, ...]:
    """The six numbers of an installed GPU (see `H200`); the first alone where there is no binary to plan for it."""
    if ops.device is None:
        major, minor = _extension.capability(device_index)
        return (10 * major + minor,)
    with _disable_current_modes():  # asking is no part of the user's computation
        return tuple(ops.device(device_index))


def capability(device: Sequence[int]) -> tuple[int, int]:
    """Compute capability of a GPU given by its numbers, as (major, minor)."""
    return divmod(device[0], 10)


def plan(
    input_size,
    input_stride,
    weight_size,
    weight_stride,
    has_bias: bool,
    stride,
    padding,
    output_padding,
    groups: int,
    dilation,
    dtype: torch.dtype,
    code: int,
    channels_last: bool,
    device: Sequence[int],
    direction: int = 0,
) -> dict[str, Any] | None:
    """The planner's answer; None where there is no binary. Nothing is launched.

    Args:
        code: the precision, as in `precision.CODES`.
        channels_last: memory format of the result.
        device: the six numbers of the GPU to plan for.
        direction: 0 the forward pass, 1 the gradient of the input, 2 the gradient of the weight. Sizes are always
            those of the forward pass; strides of a gradient follow from `channels_last`.

    Returns:
        A dict with "problem", "device", "plan", "candidates", "phases_h", "phases_w", "floor_us", "torch_us" (PyTorch's
        time in that precision: measured, or a cautious estimate, 0 where nothing is known) and "torch_estimate_us" (the
        estimate).

    Raises:
        RuntimeError: a problem or GPU that nothing can be planned for.
    """
    if ops.plan is None:
        return None
    with _disable_current_modes():
        answer = ops.plan(
            input_size, input_stride, weight_size, weight_stride, has_bias, stride, padding, output_padding, groups,
            dilation, _DTYPE_CODES[dtype], code, channels_last, device, direction,
        )  # fmt: skip
    return json.loads(answer)


def plan_of_call(
    input: torch.Tensor, weight: torch.Tensor, has_bias: bool, arguments: tuple[Any, ...], device: Sequence[int],
    direction: int = 0,
) -> dict[str, Any] | None:  # fmt: skip
    """`plan` of an op's tensors and `arguments`: stride to dilation, the precision's code, channels_last."""
    stride, padding, output_padding, groups, dilation, code, channels_last = arguments
    return plan(
        input.shape, input.stride(), weight.shape, weight.stride(), has_bias, stride, padding, output_padding, groups,
        dilation, input.dtype, code, channels_last, device, direction,
    )  # fmt: skip

"""Handles of the compiled ops, and what PyTorch must know about them: fake kernel and FLOP count.

Called by functional.py (forward) and planner.py (plan, device). Without a binary the handles are
None and nothing is registered. Must not decide anything: routing.py has done so.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.flop_counter import conv_flop_count, register_flop_formula

from . import _extension
from .geometry import output_size

forward: Any = None
plan: Any = None
device: Any = None


def fake_forward(
    input, weight, bias, stride, padding, output_padding, groups, dilation, precision, channels_last
) -> torch.Tensor:
    """An empty result with exactly the size and strides that the CUDA kernel's has; holds for symbolic sizes."""
    size = output_size(input.shape, weight.shape, stride, padding, output_padding, groups, dilation)
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    return torch.empty(size, dtype=input.dtype, device=input.device, memory_format=memory_format)


def flop_count(input_shape, weight_shape, *args, out_shape=None, **kwargs) -> int:
    """The count that PyTorch gives its own transposed convolution: two per input element and weight it meets."""
    return conv_flop_count(input_shape, weight_shape, out_shape, transposed=True)


if _extension.load_error is None:
    forward = torch.ops.convt_ext.forward.default
    plan = torch.ops.convt_ext.plan.default
    device = torch.ops.convt_ext.device.default
    torch.library.register_fake("convt_ext::forward", fake_forward)
    register_flop_formula(torch.ops.convt_ext.forward)(flop_count)

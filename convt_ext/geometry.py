"""Shape and memory-format arithmetic of the operator.

Called by arguments.py (output size), routing.py (memory format of the result), ops.py (fake kernel)
and explain.py. Pure functions of sizes and strides, independent of tensors and the GPU. Those that the
fake kernel uses support SymInts.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch.compiler import is_compiling

Int = TypeVar("Int", int, torch.SymInt)

Size2 = tuple[int, int]
Size4 = tuple[int, int, int, int]


def surely(condition: bool | torch.SymBool) -> bool:
    """Returns `condition`; False if it depends on a size that is unknown to a tracer, such as that of `x[mask]`."""
    if not is_compiling() and not isinstance(condition, torch.SymBool):
        return condition
    from torch.fx.experimental.symbolic_shapes import guard_or_false  # slow to import; a tracer has imported it

    return guard_or_false(condition)


def output_length(size: Int, kernel: Int, stride: int, padding: int, output_padding: int, dilation: int) -> Int:
    """OH = (H - 1) * stride - 2 * padding + dilation * (kH - 1) + output_padding + 1, for one dimension.

    (PyTorch, `conv_input_size` in ATen/native/ConvUtils.h.)
    """
    return (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1


def input_length(output: Int, kernel: Int, stride: int, padding: int, output_padding: int, dilation: int) -> Int:
    """Returns the input's length from the output's: `output_length` solved for H, without remainder."""
    return (output - 1 - output_padding - dilation * (kernel - 1) + 2 * padding) // stride + 1


def kernel_length(output: Int, size: Int, stride: int, padding: int, output_padding: int, dilation: int) -> Int:
    """Returns the weight's length from output and input: `output_length` solved for kH, without remainder."""
    return (output - 1 - output_padding - (size - 1) * stride + 2 * padding) // dilation + 1


def output_size(input_size, weight_size, stride, padding, output_padding, groups, dilation) -> Size4:
    """Returns the size (N, C_out, OH, OW) for an input (N, C_in, H, W) and a weight (C_in, C_out/groups, kH, kW)."""
    batch, _, height, width = input_size
    _, c_out_per_group, k_h, k_w = weight_size
    return (
        batch,
        c_out_per_group * groups,
        output_length(height, k_h, stride[0], padding[0], output_padding[0], dilation[0]),
        output_length(width, k_w, stride[1], padding[1], output_padding[1], dilation[1]),
    )


def memory_format(channels_last: bool) -> torch.memory_format:
    return torch.channels_last if channels_last else torch.contiguous_format


def suggests_channels_last(size, stride) -> bool:
    """Returns whether PyTorch's suggested memory format of a 4-D strided tensor is channels_last.

    Compares strides in the order C, W, H, N; density does not matter, so a channel slice of a
    channels_last tensor is channels_last. Ambiguous tensors ([N, 1, 1, 1]) are contiguous.
    (PyTorch, `is_channels_last_strides_2d_s4` in c10/core/MemoryFormat.h.)
    """
    batch, channels, height, width = size
    stride_n, stride_c, stride_h, stride_w = stride
    if any(surely(size == 0) for size in (stride_c, batch, channels, height, width)):
        return False
    least = stride_c * channels if surely(channels > 1) else stride_c
    if not surely(stride_w >= least):
        return False
    least = stride_w * width if surely(width > 1) else stride_w
    if not surely(stride_h >= least):
        return False
    least = stride_h * height if surely(height > 1) else stride_h
    return surely(stride_n >= least) and surely(least != stride_c)


def result_is_channels_last(
    input_size, input_stride, weight_size, weight_stride, dtype, stride, output_padding, cudnn_enabled
) -> bool:
    """Returns the memory format of PyTorch's result on CUDA, which convt_ext also uses.

    channels_last if PyTorch would run cuDNN and the input's or the weight's strides suggest it;
    contiguous for float64, for an empty batch, with cuDNN disabled and if an output_padding
    reaches its stride, because PyTorch then runs an algorithm that supports no other layout.
    (PyTorch, `cudnn_conv_suggest_memory_format` in ATen/native/ConvUtils.h, `use_cudnn` in Convolution.cpp.)
    """
    if dtype is torch.float64 or not cudnn_enabled or surely(input_size[0] == 0):
        return False
    if output_padding[0] >= stride[0] or output_padding[1] >= stride[1]:
        return False
    if suggests_channels_last(weight_size, weight_stride):
        return True
    # PyTorch makes the input dense before this check. A dense [N > 1, 1, 1, 1] is always ambiguous.
    batch, channels, height, width = input_size
    if surely(channels == 1) and surely(height == 1) and surely(width == 1) and surely(batch > 1):
        return False
    return suggests_channels_last(input_size, input_stride)


def grad_weight_is_channels_last(channels_last: bool, input_size, input_stride) -> bool:
    """Returns the memory format of PyTorch's weight gradient; `channels_last` is the format of the result.

    PyTorch makes the input dense in the result's format and then checks its format. An input of one channel that is
    already dense is not copied, and counts as contiguous if its strides are those of a contiguous tensor.
    (PyTorch, `cudnn_convolution_transpose_backward` in ATen/native/cudnn/ConvShared.cpp.)
    """
    batch, channels, height, width = input_size
    if not channels_last or not surely(channels == 1):
        return channels_last
    dense = (height * width, width, 1)
    strides = (input_stride[0], input_stride[2], input_stride[3])
    if all(
        surely(size == 1) or surely(have == want)
        for size, have, want in zip((batch, height, width), strides, dense, strict=True)
    ):
        return suggests_channels_last(input_size, input_stride)
    return not (surely(height == 1) and surely(width == 1))  # a dense copy of 1 x 1 is ambiguous, so contiguous

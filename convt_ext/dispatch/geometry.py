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

Sizes = tuple[int, ...]


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


def output_size(input_size, weight_size, stride, padding, output_padding, groups, dilation) -> Sizes:
    """Returns the size (N, C_out, ..., OH, OW) for an input (N, C_in, ..., H, W) and a weight (C_in, C_out/groups, ...,
    kH, kW) of two or three dimensions."""
    batch, _, *lengths = input_size
    _, c_out_per_group, *kernel = weight_size
    axes = zip(lengths, kernel, stride, padding, output_padding, dilation, strict=True)
    return (batch, c_out_per_group * groups, *(output_length(*axis) for axis in axes))


def memory_format(channels_last: bool, dims: int = 2) -> torch.memory_format:
    if not channels_last:
        return torch.contiguous_format
    return torch.channels_last if dims == 2 else torch.channels_last_3d


def suggests_channels_last(size, stride) -> bool:
    """Returns whether PyTorch's suggested memory format of a 4-D or 5-D strided tensor is channels_last.

    Compares strides in the order C, W, H, D, N; density does not matter, so a channel slice of a
    channels_last tensor is channels_last. Ambiguous tensors ([N, 1, 1, 1]) are contiguous.
    (PyTorch, `is_channels_last_strides_2d_s4` and `_3d_s5` in c10/core/MemoryFormat.h.)
    """
    if surely(stride[1] == 0) or any(surely(length == 0) for length in size):
        return False
    least = stride[1] * size[1] if surely(size[1] > 1) else stride[1]
    for axis in range(len(size) - 1, 1, -1):
        if not surely(stride[axis] >= least):
            return False
        least = stride[axis] * size[axis] if surely(size[axis] > 1) else stride[axis]
    return surely(stride[0] >= least) and surely(least != stride[1])


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
    if any(extra >= step for extra, step in zip(output_padding, stride, strict=True)):
        return False
    if suggests_channels_last(weight_size, weight_stride):
        return True
    # PyTorch makes the input dense before this check. A dense [N > 1, 1, 1, 1] is always ambiguous.
    if surely(input_size[0] > 1) and all(surely(length == 1) for length in input_size[1:]):
        return False
    return suggests_channels_last(input_size, input_stride)


def grad_weight_is_channels_last(channels_last: bool, input_size, input_stride) -> bool:
    """Returns the memory format of PyTorch's weight gradient; `channels_last` is the format of the result.

    PyTorch makes the input dense in the result's format and then checks its format. An input of one channel that is
    already dense is not copied, and counts as contiguous if its strides are those of a contiguous tensor.
    (PyTorch, `cudnn_convolution_transpose_backward` in ATen/native/cudnn/ConvShared.cpp.)
    """
    batch, channels, *lengths = input_size
    if not channels_last or not surely(channels == 1):
        return channels_last
    dense = [1]  # strides from the last axis to the batch, without the channel
    for length in reversed(lengths):
        dense.append(dense[-1] * length)
    if all(
        surely(size == 1) or surely(have == want)
        for size, have, want in zip(
            (batch, *lengths), (input_stride[0], *input_stride[2:]), reversed(dense), strict=True
        )
    ):
        return suggests_channels_last(input_size, input_stride)
    return not all(surely(length == 1) for length in lengths)  # a dense copy of 1 x 1 is ambiguous, so contiguous

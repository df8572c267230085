"""Sizes along an axis: each of the three follows from the other two, as for PyTorch's operator."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

from convt_ext import ops
from convt_ext.geometry import input_length, kernel_length, output_length, result_is_channels_last

AXES = [
    (size, kernel, stride, padding, output_padding, dilation)
    for size, kernel, stride, padding, output_padding, dilation in itertools.product(
        (1, 2, 5), (1, 2, 4), (1, 2, 3), (0, 1, 2), (0, 1, 2), (1, 2, 3)
    )
    if output_padding < max(stride, dilation)
    and output_length(size, kernel, stride, padding, output_padding, dilation) > 0
]


def test_the_length_of_the_output_is_pytorchs():
    for size, kernel, stride, padding, output_padding, dilation in AXES:
        x, weight = torch.empty(1, 1, size, 3, device="meta"), torch.empty(1, 1, kernel, 1, device="meta")
        pairs = {"stride": (stride, 1), "padding": (padding, 0), "dilation": (dilation, 1)}
        found = F.conv_transpose2d(x, weight, **pairs, output_padding=(output_padding, 0)).shape[2]
        assert output_length(size, kernel, stride, padding, output_padding, dilation) == found


def test_input_and_kernel_follow_from_the_output():
    assert len(AXES) > 300
    for size, kernel, *arguments in AXES:
        output = output_length(size, kernel, *arguments)
        assert input_length(output, kernel, *arguments) == size
        assert kernel_length(output, size, *arguments) == kernel


@pytest.mark.parametrize("channels_last", [False, True])
def test_fake_gradients_have_the_sizes_of_what_they_are_gradients_of(channels_last):
    """Different along H and W, so that no axis is taken for the other."""
    x, weight = torch.empty(2, 6, 5, 4, device="meta"), torch.empty(6, 4, 4, 3, device="meta")
    arguments = ((3, 2), (1, 2), (2, 1), 2, (2, 3))
    stride, padding, output_padding, groups, dilation = arguments
    grad_output = F.conv_transpose2d(x, weight, None, stride, padding, output_padding, groups, dilation)
    format_of = torch.channels_last if channels_last else torch.contiguous_format
    assert ops.fake_forward(x, weight, None, *arguments, 0, channels_last).shape == grad_output.shape
    for found, expected in (
        (ops.fake_grad_input(grad_output, weight, *arguments, 0, channels_last), x),
        (ops.fake_grad_weight(grad_output, x, *arguments, 0, channels_last), weight),
    ):
        assert found.shape == expected.shape
        assert found.is_contiguous(memory_format=format_of)


@pytest.mark.parametrize(
    ("output_padding", "stride"), [((2, 0), (2, 2)), ((0, 2), (2, 2)), ((3, 0), (2, 4)), ((0, 3), (4, 2))]
)
def test_an_output_padding_that_reaches_its_stride_ends_channels_last(output_padding, stride):
    """PyTorch then runs an algorithm that supports only contiguous tensors; a smaller output_padding does not."""
    of = ((1, 8, 5, 5), (200, 1, 40, 8), (8, 8, 3, 3), (72, 9, 3, 1), torch.float32, stride)
    assert not result_is_channels_last(*of, output_padding, True)
    assert result_is_channels_last(*of, (1, 1), True)

"""Sizes along an axis: each of the three follows from the other two, as for PyTorch's operator."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

from convt_ext.dispatch import ops
from convt_ext.dispatch.geometry import input_length, kernel_length, output_length

AXES = [
    (size, kernel, stride, padding, output_padding, dilation)
    for size, kernel, stride, padding, output_padding, dilation in itertools.product(
        (1, 2, 5), (1, 2, 4), (1, 2, 3), (0, 1, 2), (0, 1, 2), (1, 2, 3)
    )
    if output_padding < max(stride, dilation)
    and output_length(size, kernel, stride, padding, output_padding, dilation) > 0
]


def test_lengths_are_pytorchs_and_follow_from_one_another():
    assert len(AXES) > 300
    for size, kernel, stride, padding, output_padding, dilation in AXES:
        x, weight = torch.empty(1, 1, size, 3, device="meta"), torch.empty(1, 1, kernel, 1, device="meta")
        pairs = {"stride": (stride, 1), "padding": (padding, 0), "dilation": (dilation, 1)}
        output = F.conv_transpose2d(x, weight, **pairs, output_padding=(output_padding, 0)).shape[2]
        arguments = stride, padding, output_padding, dilation
        assert output_length(size, kernel, *arguments) == output
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

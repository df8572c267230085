"""geometry.py: sizes along an axis and the memory format of results, against PyTorch."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from convt_ext.dispatch import ops
from convt_ext.dispatch.geometry import (
    grad_weight_is_channels_last,
    input_length,
    kernel_length,
    output_length,
    result_is_channels_last,
    suggests_channels_last,
    surely,
)

_C = torch._C
sizes = st.tuples(*[st.integers(1, 3)] * 4)
strides = st.one_of(
    st.tuples(*[st.sampled_from([0, 1, 2, 3, 4, 6, 8, 9, 12, 18, 24, 27, 36])] * 4),
    st.permutations([1, 3, 9, 27]).map(tuple),
)


def test_conditions_on_unknown_sizes_are_not_sure():
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    shapes = ShapeEnv()
    unknown, one = shapes.create_unbacked_symint(), shapes.create_unbacked_symint()
    torch._check(one == 1)
    assert surely(unknown == 1) is False
    assert surely(unknown != 1) is False
    assert surely(one == 1) is True
    assert surely(one != 1) is False


@settings(max_examples=1000, deadline=None)
@given(st.tuples(*[st.integers(0, 3)] * 4), strides)
def test_suggested_memory_format_is_pytorchs(size, stride):
    tensor = torch.empty_strided(size, stride)
    weight = torch.empty(2, 2, 2, 2)
    theirs = _C._conv_determine_backend_memory_format(tensor, weight, _C._ConvBackend.Slow2d)
    assert suggests_channels_last(size, stride) == (theirs is torch.channels_last)


@pytest.mark.parametrize("unknown", [1, 2, 3], ids=["channels", "height", "width"])
def test_an_unknown_length_that_is_not_zero_keeps_channels_last(unknown):
    """Such as a slice of data-dependent length: it has the strides of the sliced tensor."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    size, stride = [2, 8, 5, 6], (240, 1, 48, 8)
    size[unknown] = ShapeEnv().create_unbacked_symint()
    torch._check(size[unknown] >= 1)
    assert suggests_channels_last(size, stride) is True


def _result(x, weight, dtype=torch.float32, stride=(2, 2), output_padding=(0, 0), cudnn=True):
    return result_is_channels_last(
        x.shape, x.stride(), weight.shape, weight.stride(), dtype, stride, output_padding, cudnn
    )


def test_result_format_table():
    x, weight = torch.empty(2, 4, 5, 6), torch.empty(4, 6, 3, 3)
    x_last, weight_last = (tensor.to(memory_format=torch.channels_last) for tensor in (x, weight))
    for one, other, is_last in ((x, weight, False), (x_last, weight, True), (x, weight_last, True),
                                (x_last[:, 1:3], weight, True), (x_last[:0], weight_last, False)):  # fmt: skip
        assert _result(one, other) is is_last
    assert _result(x_last, weight, torch.float16)
    assert not _result(x_last, weight_last, torch.float64)
    assert not _result(x_last, weight_last, cudnn=False)
    # An output_padding that reaches its stride: PyTorch runs an algorithm that supports only contiguous tensors.
    for stride, output_padding in (((2, 2), (2, 0)), ((2, 2), (0, 2)), ((2, 4), (3, 0)), ((4, 2), (0, 3))):
        assert not _result(x_last, weight_last, stride=stride, output_padding=output_padding)
        assert _result(x_last, weight_last, stride=stride, output_padding=(1, 1))


@pytest.mark.parametrize("batch", [2, 3])
def test_dense_copy_of_one_value_per_image_is_contiguous(batch):
    """[N, 1, 1, 1] sliced from an NHWC tensor suggests channels_last, but PyTorch makes it dense before the check."""
    x = torch.empty(batch, 4, 5, 6).to(memory_format=torch.channels_last)[:, :1, :1, :1]
    assert suggests_channels_last(x.shape, x.stride())
    assert not _result(x, torch.empty(1, 6, 3, 3))
    assert _result(x[:1], torch.empty(1, 6, 3, 3))


@pytest.mark.skipif(not torch._C._has_cudnn, reason="this PyTorch is built without cuDNN")
@settings(max_examples=300, deadline=None)
@given(sizes, strides, sizes, strides, st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]))
def test_result_format_is_pytorchs_for_cudnn(x_size, x_stride, weight_size, weight_stride, dtype):
    if x_size[0] > 1 and x_size[1:] == (1, 1, 1):
        return  # PyTorch decides after a dense copy, see above
    with FakeTensorMode():
        x = torch.empty_strided(x_size, x_stride, dtype=dtype, device="cuda")
        weight = torch.empty_strided(weight_size, weight_stride, dtype=dtype, device="cuda")
        theirs = _C._conv_determine_backend_memory_format(x, weight, _C._ConvBackend.CudnnTranspose)
    assert _result(x, weight, dtype) == (theirs is torch.channels_last)


@pytest.mark.parametrize(
    ("size", "stride", "expected"),
    [
        ((2, 1, 5, 6), (30, 30, 6, 1), False),  # one channel: each stride of a dense input matters
        ((2, 1, 5, 6), (30, 1, 6, 1), True),  # converted to channels_last
        ((2, 1, 5, 6), (30, 30, 6, 2), True),  # every second column, and so on: not dense, so a copy is made
        ((2, 1, 5, 6), (30, 30, 6, 0), True),
        ((2, 1, 5, 6), (30, 30, 5, 1), True),
        ((2, 1, 5, 6), (30, 30, 1, 5), True),
        ((2, 1, 5, 6), (60, 30, 6, 1), True),
        ((1, 1, 1, 6), (6, 6, 6, 1), False),
        ((1, 1, 1, 6), (12, 12, 12, 2), True),
        ((1, 1, 5, 1), (5, 5, 1, 7), False),  # one column: its stride has no effect
        ((1, 1, 5, 6), (7, 30, 6, 1), False),  # one image
        ((3, 1, 1, 1), (120, 1, 24, 4), False),  # one value each, cut from channels_last: a dense copy is ambiguous
        ((2, 3, 5, 6), (90, 30, 6, 1), True),  # the strides of several channels do not count
    ],
)
def test_weight_gradient_format_table(size, stride, expected):
    assert grad_weight_is_channels_last(True, size, stride) is expected
    assert not grad_weight_is_channels_last(False, size, stride)


@settings(max_examples=1000, deadline=None)
@given(sizes, st.integers(1, 3), strides, st.booleans())
def test_weight_gradient_format_is_that_of_pytorchs_dense_input(size, channels, stride, is_dense):
    size = (size[0], channels, size[2], size[3])
    if is_dense:
        stride = torch.empty(size).stride()
    copy = torch.empty_strided(size, stride).contiguous(memory_format=torch.channels_last)
    expected = channels > 1 or suggests_channels_last(size, copy.stride())
    assert grad_weight_is_channels_last(True, size, stride) == expected


# ---- lengths: each of the three follows from the other two


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

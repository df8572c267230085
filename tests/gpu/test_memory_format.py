"""Strides of results: exactly those that PyTorch gives on the same GPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from cases import each_case
from served import cudnn, tf32

from convt_ext import conv_transpose2d as ours

LAST = torch.channels_last
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def values(*size, dtype=torch.float32):
    return torch.ones(size, device="cuda", dtype=dtype)


def last(*size):
    return values(*size).contiguous(memory_format=LAST)


# Inputs and weights with a layout that decides something; sizes fit each other within a row.
LAYOUTS = {
    "contiguous": lambda: (values(2, 4, 5, 6), values(4, 6, 3, 3)),
    "input_last": lambda: (last(2, 4, 5, 6), values(4, 6, 3, 3)),
    "weight_last": lambda: (values(2, 4, 5, 6), last(4, 6, 3, 3)),
    "both_last": lambda: (last(2, 4, 5, 6), last(4, 6, 3, 3)),
    "channel_slice": lambda: (last(2, 7, 5, 6)[:, 1:5], values(4, 6, 3, 3)),
    "column_slice": lambda: (last(2, 4, 5, 9)[..., 2:8], values(4, 6, 3, 3)),
    "column_step": lambda: (last(2, 4, 5, 12)[..., ::2], values(4, 6, 3, 3)),
    "batch_slice": lambda: (last(5, 4, 5, 6)[1:3], values(4, 6, 3, 3)),
    "transposed": lambda: (values(2, 4, 6, 5).transpose(2, 3), values(4, 6, 3, 3)),
    "permuted": lambda: (values(5, 6, 2, 4).permute(2, 3, 0, 1), values(4, 6, 3, 3)),
    "expanded_channels": lambda: (values(2, 1, 5, 6).expand(2, 4, 5, 6), values(4, 6, 3, 3)),
    "expanded_batch": lambda: (last(1, 4, 5, 6).expand(2, 4, 5, 6), values(4, 6, 3, 3)),
    "one_channel": lambda: (values(2, 1, 5, 6), values(1, 6, 3, 3)),
    "one_channel_last": lambda: (last(2, 1, 5, 6), values(1, 6, 3, 3)),
    "one_position": lambda: (values(2, 4, 1, 1), values(4, 6, 3, 3)),
    "one_position_last": lambda: (last(2, 4, 1, 1), values(4, 6, 3, 3)),
    "one_column_last": lambda: (last(2, 4, 5, 1), values(4, 6, 3, 3)),
    "one_value_each": lambda: (values(3, 1, 1, 1), values(1, 6, 3, 3)),
    "one_value_each_cut": lambda: (last(3, 4, 5, 6)[:, :1, :1, :1], values(1, 6, 3, 3)),
    "one_value_cut": lambda: (last(1, 4, 5, 6)[:, :1, :1, :1], values(1, 6, 3, 3)),
    "one_value_cut_weight_last": lambda: (last(3, 4, 5, 6)[:, :1, :1, :1], last(1, 6, 3, 3)),
    "kernel_1x1": lambda: (values(2, 4, 5, 6), values(4, 6, 1, 1)),
    "kernel_1x1_last": lambda: (values(2, 4, 5, 6), last(4, 6, 1, 1)),
    "kernel_1x1_transposed": lambda: (values(2, 4, 5, 6), values(6, 4, 1, 1).transpose(0, 1)),
    "one_channel_out": lambda: (values(2, 4, 5, 6), values(4, 1, 3, 3)),
    "one_channel_out_last": lambda: (values(2, 4, 5, 6), last(4, 1, 3, 3)),
    # What `module.to(memory_format=torch.channels_last)` makes of one channel, and `contiguous` does not.
    "one_channel_converted": lambda: (values(2, 1, 5, 6).to(memory_format=LAST), values(1, 6, 3, 3)),
    "one_channel_out_converted": lambda: (values(2, 4, 5, 6), values(4, 1, 3, 3).to(memory_format=LAST)),
    "one_channel_out_both_converted": lambda: (last(2, 4, 5, 6), values(4, 1, 3, 3).to(memory_format=LAST)),
    "unbatched": lambda: (values(4, 5, 6), values(4, 6, 3, 3)),
    "unbatched_cut_of_last": lambda: (last(2, 4, 5, 6)[0], values(4, 6, 3, 3)),
    "unbatched_weight_last": lambda: (values(4, 5, 6), last(4, 6, 3, 3)),
    "empty_batch": lambda: (values(0, 4, 5, 6), values(4, 6, 3, 3)),
    "empty_batch_last": lambda: (last(2, 4, 5, 6)[:0], last(4, 6, 3, 3)),
}
ARGUMENTS = {
    "stride_1": {},
    "stride_2": {"stride": 2, "padding": 1, "output_padding": 1},
    "output_padding_reaches_stride": {"stride": 2, "dilation": 3, "output_padding": (0, 2)},
    "output_padding_1_at_stride_1": {"dilation": 2, "output_padding": 1},
}


def assert_same_strides(x, weight, bias=None, precision="exact", **arguments):
    with tf32(False):
        theirs = F.conv_transpose2d(x, weight, bias, **arguments)
        mine = ours(x, weight, bias, **arguments, precision=precision)
    assert mine.shape == theirs.shape
    assert mine.stride() == theirs.stride()


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_table(layout, name):
    x, weight = LAYOUTS[layout]()
    assert_same_strides(x, weight, **ARGUMENTS[name])
    assert_same_strides(x, weight, precision=None, **ARGUMENTS[name])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "layout", ["contiguous", "input_last", "weight_last", "channel_slice", "unbatched_weight_last"]
)
def test_dtypes(layout, dtype):
    x, weight = (tensor.to(dtype) for tensor in LAYOUTS[layout]())
    assert_same_strides(x, weight, stride=2)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_without_cudnn(layout):
    x, weight = LAYOUTS[layout]()
    with cudnn(False):
        for precision in (None, "exact", "aten"):
            assert_same_strides(x, weight, precision=precision, stride=2)


@each_case()
@pytest.mark.parametrize("precision", ["exact", "aten"])
def test_cases(case, precision):
    assert_same_strides(*case.tensors(device="cuda"), precision=precision, **case.arguments)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, LAST])
def test_empty_result(memory_format):
    """One position, kernel 2, padding 1 leaves nothing."""
    x = values(2, 4, 1, 5).contiguous(memory_format=memory_format)
    weight = values(4, 6, 2, 2)
    assert_same_strides(x, weight, padding=(1, 0))
    assert ours(x, weight, padding=(1, 0), precision="exact").shape == (2, 6, 0, 6)


@pytest.mark.parametrize("layout", ["input_last", "weight_last", "both_last"])
def test_values_are_right_in_channels_last(layout):
    torch.manual_seed(0)
    x, weight = (torch.randint(-3, 4, t.shape, device="cuda").float() for t in LAYOUTS[layout]())
    plain = ours(x, weight, stride=2, precision="exact")
    other = [t.contiguous(memory_format=LAST) for t in (x, weight)]
    for pair in ((other[0], weight), (x, other[1]), other):
        assert torch.equal(ours(*pair, stride=2, precision="exact"), plain)

"""arguments.py: what PyTorch accepts becomes a pair of ints, and what it rejects becomes None."""

from __future__ import annotations

import bad_input
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from convt_ext.arguments import NO_LIMIT, integer, legal_output_size, pair

FORMS = {
    "int": 2,
    "tuple_1": (2,),
    "tuple_2": (2, 3),
    "list_1": [2],
    "list_2": [2, 3],
    "size": torch.Size([2, 3]),
    "tensor": torch.tensor(2),
    "tensor_int32": torch.tensor(2, dtype=torch.int32),
    "numpy_int64": np.int64(2),
    "numpy_uint8": np.uint8(2),
    "tuple_of_numpy": (np.int32(2), np.int64(3)),
    "tuple_of_tensors": (torch.tensor(2), torch.tensor(3)),
    "list_mixed": [2, np.int64(3)],
    "float": 2.0,
    "bool": True,
    "none": None,
    "str": "2",
    "empty": (),
    "tuple_3": (2, 2, 2),
    "tuple_float": (2.0, 2),
    "tuple_str": ("2", 2),
    "tensor_float": torch.tensor(2.0),
    "tensor_bool": torch.tensor(True),
    "tensor_1d_of_2": torch.tensor([2, 3]),
    "numpy_float": np.float64(2),
    "numpy_bool": np.bool_(True),
    "numpy_array": np.array([2, 3]),
    "range": range(2, 4),
}


@pytest.mark.parametrize("form", FORMS)
def test_pair_accepts_no_more_than_pytorch(form):
    """What becomes a pair is what PyTorch computes with; what does not is left to PyTorch."""
    value = FORMS[form]
    x, weight = torch.randn(1, 2, 3, 3), torch.randn(2, 2, 2, 2)
    theirs = bad_input.outcome(F.conv_transpose2d, x, weight, None, value)
    ours = pair(value)
    if ours is not None:
        assert all(type(part) is int for part in ours)
        assert isinstance(theirs, torch.Tensor), theirs
        assert torch.equal(theirs, F.conv_transpose2d(x, weight, None, ours))


@pytest.mark.parametrize("form", list(FORMS)[: list(FORMS).index("float")])
def test_forms_of_the_documentation_become_pairs(form):
    assert pair(FORMS[form]) in ((2, 2), (2, 3))


def test_bool_inside_a_tuple_is_left_to_pytorch():
    assert pair((True, 2)) is None
    assert integer(True) is None


def test_symbolic_sizes_are_left_to_pytorch():
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    symbol = ShapeEnv().create_unbacked_symint()
    assert pair(symbol) is None
    assert pair((symbol, 2)) is None


@bad_input.each_bad_input(
    "weight_2d", "weight_3d", "weight_5d", "bias_length", "bias_2d", "bias_0d", "channels", "groups_do_not_divide",
    "groups_over_channels", "groups_0", "groups_negative", "stride_0", "stride_negative", "padding_negative",
    "output_padding_negative", "output_padding_too_large", "output_padding_too_large_w", "dilation_0",
    "dilation_negative", "output_negative", "height_0", "width_0", "stride_too_large", "padding_too_large",
)  # fmt: skip
def test_illegal_problems_have_no_size(row):
    x, weight, bias, stride, padding, output_padding, groups, dilation = bad_input.arguments(row, "cpu")
    bias_size = None if bias is None else bias.shape
    pairs = [pair(value) for value in (stride, padding, output_padding)]
    assert legal_output_size(x.shape, weight.shape, bias_size, *pairs, groups, pair(dilation)) is None


axis = st.tuples(
    st.integers(0, 4), st.integers(0, 3), st.integers(0, 4), st.integers(-1, 4), st.integers(-1, 4), st.integers(0, 4)
)


@settings(max_examples=300, deadline=None)
@given(axis, axis, st.integers(0, 2), st.integers(0, 6), st.integers(0, 2), st.integers(0, 3), st.booleans())
def test_a_size_means_that_pytorch_computes_it(h, w, batch, c_in, c_out, groups, has_bias):
    x, weight = torch.zeros(batch, c_in, h[0], w[0]), torch.zeros(c_in, c_out, h[1], w[1])
    bias = torch.zeros(c_out * groups) if has_bias else None
    stride, padding, output_padding, dilation = zip(h[2:], w[2:], strict=True)
    bias_size = None if bias is None else bias.shape
    size = legal_output_size(x.shape, weight.shape, bias_size, stride, padding, output_padding, groups, dilation)
    theirs = bad_input.outcome(F.conv_transpose2d, x, weight, bias, stride, padding, output_padding, groups, dilation)
    if size is None:
        # PyTorch's CPU operator lets a dilation of 0 pass now and then.
        assert isinstance(theirs, tuple) or theirs.numel() == 0 or 0 in (*x.shape, *weight.shape, *dilation)
    else:
        assert isinstance(theirs, torch.Tensor), theirs
        assert tuple(theirs.shape) == size


def test_limits():
    def size(limit, stride=1, padding=0, dilation=1, batch=1, kernel=1):
        pairs = [(value, value) for value in (stride, padding, 0, dilation)]
        stride, padding, output_padding, dilation = pairs
        kernel_size = (1, 1, kernel, kernel)
        return legal_output_size(
            (batch, 1, 2, 2), kernel_size, None, stride, padding, output_padding, 1, dilation, limit
        )  # fmt: skip

    for options in ({"stride": 2**29}, {"padding": 2**29, "stride": 2**30 + 1}, {"dilation": 2**29}, {"batch": 2**29}):
        assert size(NO_LIMIT, **options) is not None
        assert size(2**29, **options) is None
        assert size(2**40, **options) is not None
    assert size(NO_LIMIT, stride=2**31) is None  # more elements than any storage
    assert size(2**29, dilation=2**27, kernel=9) is None

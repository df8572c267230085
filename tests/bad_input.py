"""Calls that PyTorch rejects, one per row of its error table, for the tests on the CPU and on the GPU.

Each row has a name and returns the arguments of one call on a device. The tests compare exception type and
message with those of `torch.nn.functional.conv_transpose2d` for the same arguments.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

# Rows that differ between devices, or that only a device rejects, are left to the GPU tests.
_ROWS: dict[str, Any] = {
    "input_2d": lambda t: ((t(5, 6), t(4, 6, 3, 3)), {}),
    "input_5d": lambda t: ((t(1, 2, 4, 5, 6), t(4, 6, 3, 3)), {}),
    "weight_2d": lambda t: ((t(2, 4, 5, 6), t(4, 6)), {}),
    "weight_3d": lambda t: ((t(2, 4, 5, 6), t(4, 6, 3)), {}),
    "weight_5d": lambda t: ((t(2, 4, 5, 6), t(4, 6, 3, 3, 3)), {}),
    "stride_of_3": lambda t: (_ok(t), {"stride": (2, 2, 2)}),
    "stride_empty": lambda t: (_ok(t), {"stride": ()}),
    "padding_of_3": lambda t: (_ok(t), {"padding": (2, 2, 2)}),
    "output_padding_of_3": lambda t: (_ok(t), {"stride": 3, "output_padding": [1, 1, 1]}),
    "dilation_of_3": lambda t: (_ok(t), {"dilation": (2, 2, 2)}),
    "bias_length": lambda t: ((*_ok(t), t(5)), {}),
    "bias_2d": lambda t: ((*_ok(t), t(6, 1)), {}),
    "bias_0d": lambda t: ((*_ok(t), t()), {}),
    "channels": lambda t: ((t(2, 5, 5, 6), t(4, 6, 3, 3)), {}),
    "channels_unbatched": lambda t: ((t(5, 5, 6), t(4, 6, 3, 3)), {}),
    "groups_do_not_divide": lambda t: (_ok(t), {"groups": 3}),
    "groups_over_channels": lambda t: (_ok(t), {"groups": 5}),
    "groups_0": lambda t: (_ok(t), {"groups": 0}),
    "groups_negative": lambda t: (_ok(t), {"groups": -1}),
    "stride_0": lambda t: (_ok(t), {"stride": 0}),
    "stride_negative": lambda t: (_ok(t), {"stride": (2, -1)}),
    "padding_negative": lambda t: (_ok(t), {"padding": -1}),
    "output_padding_negative": lambda t: (_ok(t), {"stride": 2, "output_padding": (0, -1)}),
    "output_padding_too_large": lambda t: (_ok(t), {"stride": 2, "output_padding": 2}),
    "output_padding_too_large_w": lambda t: (_ok(t), {"stride": (4, 2), "output_padding": (3, 2), "dilation": (1, 2)}),
    "dilation_0": lambda t: (_ok(t), {"dilation": 0}),
    "dilation_negative": lambda t: (_ok(t), {"dilation": (1, -2)}),
    "output_negative": lambda t: ((t(1, 4, 2, 2), t(4, 6, 1, 1)), {"padding": 1}),
    "height_0": lambda t: ((t(2, 4, 0, 5), t(4, 6, 3, 3)), {}),
    "width_0": lambda t: ((t(2, 4, 5, 0), t(4, 6, 3, 3)), {}),
    "weight_float64": lambda t: ((t(2, 4, 5, 6), t(4, 6, 3, 3).double()), {}),
    "weight_float16": lambda t: ((t(2, 4, 5, 6), t(4, 6, 3, 3).half()), {}),
    "bias_float64": lambda t: ((*_ok(t), t(6).double()), {}),
    "input_integer": lambda t: ((t(2, 4, 5, 6).int(), t(4, 6, 3, 3)), {}),
    "stride_float": lambda t: (_ok(t), {"stride": 2.0}),
    "stride_bool": lambda t: (_ok(t), {"stride": True}),
    "stride_none": lambda t: (_ok(t), {"stride": None}),
    "stride_str": lambda t: (_ok(t), {"stride": "2"}),
    "stride_tuple_of_float": lambda t: (_ok(t), {"stride": (2.0, 2)}),
    "stride_tuple_of_none": lambda t: (_ok(t), {"stride": (2, None)}),
    "stride_float_tensor": lambda t: (_ok(t), {"stride": torch.tensor(2.0)}),
    "groups_tuple": lambda t: (_ok(t), {"groups": (1,)}),
    "groups_list": lambda t: (_ok(t), {"groups": [1]}),
    "groups_float": lambda t: (_ok(t), {"groups": 2.0}),
    "groups_none": lambda t: (_ok(t), {"groups": None}),
    "weight_none": lambda t: ((t(2, 4, 5, 6), None), {}),
    "input_none": lambda t: ((None, t(4, 6, 3, 3)), {}),
    "input_list": lambda t: (([1.0], t(4, 6, 3, 3)), {}),
    "bias_list": lambda t: ((*_ok(t), [0.0] * 6), {}),
    "stride_too_large": lambda t: (_ok(t), {"stride": 2**63}),
    "padding_too_large": lambda t: (_ok(t), {"padding": (0, 2**63)}),
}

# For each row a part of PyTorch's message, which proves that the row causes the intended error. The rest has
# no fixed words across releases.
WORDS = {
    "input_2d": "Expected 3D (unbatched) or 4D (batched) input to conv_transpose2d",
    "weight_2d": "weight should have at least three dimensions",
    "stride_of_3": "expected stride to be a single integer value or a list of 2 values",
    "bias_length": "expected bias to be 1-dimensional with 6 elements, but got bias of size [5]",
    "channels": "to have 4 channels, but got 5 channels instead",
    "groups_do_not_divide": "expected weight to be divisible by 3 at dimension 0",
    "groups_over_channels": "expected weight to be at least 5 at dimension 0",
    "groups_0": "non-positive groups is not supported",
    "stride_0": "non-positive stride is not supported",
    "padding_negative": "negative padding is not supported",
    "output_padding_negative": "negative output_padding is not supported",
    "stride_float": "argument 'stride' (position 4) must be tuple of ints, not float",
    "stride_bool": "argument 'stride' (position 4) must be tuple of ints, not bool",
    "stride_too_large": "Overflow when unpacking long",
}


def _ok(t: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns a valid input and weight."""
    return t(2, 4, 5, 6), t(4, 6, 3, 3)


def each_bad_input(*names: str):
    """Parametrize a test by `row`: by those named, or by all."""
    return pytest.mark.parametrize("row", names or list(_ROWS))


def arguments(row: str, device: str, dtype: torch.dtype = torch.float32) -> tuple[Any, ...]:
    """The eight positional arguments of the row's call, with tensors on `device`."""
    tensors, named = _ROWS[row](lambda *size: torch.ones(size, device=device, dtype=dtype))
    values = {"stride": 1, "padding": 0, "output_padding": 0, "groups": 1, "dilation": 1, **named}
    bias = tensors[2] if len(tensors) == 3 else None
    return (*tensors[:2], bias, *values.values())


def outcome(call: Any, *args: Any, **named: Any) -> tuple[type, str] | torch.Tensor:
    """Returns the exception of a call as (type, message without a C++ stack), or its result."""
    try:
        return call(*args, **named)
    except Exception as error:
        return type(error), str(error).split("\nException raised from")[0]

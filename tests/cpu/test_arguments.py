"""arguments.py: what PyTorch accepts becomes a tuple of ints, and what it rejects becomes None."""

from __future__ import annotations

import dataclasses
from typing import Any

import bad_input
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from plan.problems import axes, output_padding_of
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from convt_ext.dispatch.arguments import NO_LIMIT, integer, legal_output_size, sequence

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
    "tuple_of_int_and_numpy": (2, np.int64(3)),
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
    "tensor_meta": torch.tensor(2, device="meta"),
    "tensor_1d_of_2": torch.tensor([2, 3]),
    "numpy_float": np.float64(2),
    "numpy_bool": np.bool_(True),
    "numpy_array": np.array([2, 3]),
    "range": range(2, 4),
}


@pytest.mark.parametrize("form", FORMS)
def test_pair_accepts_no_more_than_pytorch(form):
    """PyTorch computes with the values of each pair. Forms of its documentation, all before "float", become pairs."""
    value = FORMS[form]
    x, weight = torch.randn(1, 2, 3, 3), torch.randn(2, 2, 2, 2)
    theirs = bad_input.outcome(F.conv_transpose2d, x, weight, None, value)
    ours = sequence(value, 2)
    assert ours in ((2, 2), (2, 3)) or list(FORMS).index(form) >= list(FORMS).index("float")
    if ours is not None:
        assert all(type(part) is int for part in ours)
        assert isinstance(theirs, torch.Tensor), theirs
        assert torch.equal(theirs, F.conv_transpose2d(x, weight, None, ours))


def test_bools_and_symbolic_sizes_are_left_to_pytorch():
    symbol = ShapeEnv().create_unbacked_symint()
    for value in ((True, 2), (2, True), symbol, (symbol, 2)):
        assert sequence(value, 2) is None
    assert integer(True) is None


@bad_input.each_bad_input(
    "weight_2d", "weight_3d", "weight_5d", "bias_length", "bias_2d", "bias_0d", "channels", "groups_do_not_divide",
    "groups_over_channels", "groups_0", "groups_negative", "stride_0", "stride_negative", "padding_negative",
    "output_padding_negative", "output_padding_too_large", "output_padding_too_large_w", "dilation_0",
    "dilation_negative", "output_negative", "height_0", "width_0", "stride_too_large", "padding_too_large",
)  # fmt: skip
def test_illegal_problems_have_no_size(row):
    x, weight, bias, stride, padding, output_padding, groups, dilation = bad_input.arguments(row, "cpu")
    bias_size = None if bias is None else bias.shape
    pairs = [sequence(value, 2) for value in (stride, padding, output_padding)]
    assert legal_output_size(x.shape, weight.shape, bias_size, *pairs, groups, sequence(dilation, 2)) is None


@dataclasses.dataclass(frozen=True)
class Problem:
    """The arguments of one call; `channels` are the weight's, of the input and of one group of the result."""

    batch: int
    c_in: int
    size: tuple[int, int]
    channels: tuple[int, int]
    kernel: tuple[int, int]
    bias: int | None
    stride: tuple[int, int]
    padding: tuple[int, int]
    output_padding: tuple[int, int]
    groups: int
    dilation: tuple[int, int]

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...] | None]:
        """Returns the sizes of input, weight and bias."""
        bias = None if self.bias is None else (self.bias,)
        return (self.batch, self.c_in, *self.size), (*self.channels, *self.kernel), bias

    @property
    def arguments(self) -> tuple[Any, ...]:
        return (self.stride, self.padding, self.output_padding, self.groups, self.dilation)

    def our_size(self) -> tuple[int, ...] | None:
        return legal_output_size(*self.shapes, *self.arguments)

    def theirs(self) -> tuple[type, str] | torch.Tensor:
        """PyTorch's result, or its error."""
        tensors = [None if shape is None else torch.zeros(shape) for shape in self.shapes]
        return bad_input.outcome(F.conv_transpose2d, *tensors, *self.arguments)


@st.composite
def legal_problems(draw) -> tuple[Problem, tuple[int, ...]]:
    """A problem and the size of its result."""
    h, w = draw(axes()), draw(axes())
    batch, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    c_in, c_out = groups * draw(st.integers(1, 3)), draw(st.integers(1, 3))
    stride, padding, dilation = ((h[key], w[key]) for key in ("stride", "padding", "dilation"))
    problem = Problem(
        batch, c_in, (h["in"], w["in"]), (c_in, c_out), (h["kernel"], w["kernel"]),
        draw(st.sampled_from([None, groups * c_out])), stride, padding, (output_padding_of(h), output_padding_of(w)),
        groups, dilation,
    )  # fmt: skip
    return problem, (batch, groups * c_out, h["out"], w["out"])


def with_axis(pair: tuple[int, int], axis: int, value: int) -> tuple[int, int]:
    return (value, pair[1]) if axis == 0 else (pair[0], value)


@st.composite
def illegal_problems(draw) -> tuple[str, Problem]:
    """A legal problem with one argument, or one size, changed to an illegal value; and which."""
    problem, size = draw(legal_problems())
    axis = draw(st.integers(0, 1))
    steps = max(problem.stride[axis], problem.dilation[axis])
    unpadded = size[2 + axis] + 2 * problem.padding[axis]
    values = {
        "stride": [0, -1],
        "padding": [-1, (unpadded + 1) // 2, unpadded],  # nothing is left of the result, or less
        "output_padding": [-1, steps, steps + 3],
        "dilation": [0, -1],
        "size": [0],
        "kernel": [0],
        "channels": [0, problem.channels[axis] + 1] if axis == 0 else [0],
        "groups": [0, -1, problem.c_in + 1],
        "batch": [0],
        "c_in": [0, problem.c_in + 1],
        "bias": [0, size[1] + 1],
    }
    name = draw(st.sampled_from(sorted(values)))
    value = draw(st.sampled_from(values[name]))
    before = getattr(problem, name)
    after = with_axis(before, axis, value) if isinstance(before, tuple) else value
    return name, dataclasses.replace(problem, **{name: after})


@settings(max_examples=300, deadline=None)
@given(legal_problems())
def test_a_legal_problem_has_the_size_that_pytorch_computes(drawn):
    problem, size = drawn
    assert problem.our_size() == size
    theirs = problem.theirs()
    assert isinstance(theirs, torch.Tensor), theirs
    assert tuple(theirs.shape) == size


@settings(max_examples=300, deadline=None)
@given(illegal_problems())
def test_one_illegal_argument_leaves_a_problem_to_pytorch(drawn):
    name, problem = drawn
    assert problem.our_size() is None
    theirs = problem.theirs()
    # PyTorch's CPU operator lets a dilation or a size of 0 pass now and then.
    assert isinstance(theirs, tuple) or theirs.numel() == 0 or 0 in (*problem.dilation, *problem.shapes[1]), name


LIMIT = 2**29
ONE = Problem(1, 1, (1, 1), (1, 1), (1, 1), None, (1, 1), (0, 0), (0, 0), 1, (1, 1))


def along(axis: int, **values: int) -> Problem:
    """`ONE` with these values along one axis of the image."""
    return dataclasses.replace(
        ONE, **{name: with_axis(getattr(ONE, name), axis, value) for name, value in values.items()}
    )


def test_the_most_elements_of_a_result():
    for height, is_legal in ((16, True), (17, False), (32, False)):
        problem = dataclasses.replace(ONE, batch=2**28, channels=(1, 2**28), size=(height, 1))
        for limit in (LIMIT, NO_LIMIT):
            size = legal_output_size(*problem.shapes, *problem.arguments, limit)
            assert (size == (2**28, 2**28, height, 1)) == is_legal


# The distance of first and last tap.
TAPS = {LIMIT - 1: {"kernel": 234, "dilation": (LIMIT - 1) // 233}, LIMIT: {"kernel": 257, "dilation": LIMIT // 256}}

# For each quantity that is compared with the limit: a problem in which only this quantity is that large. With an axis,
# the other axis holds one pixel.
LARGE = {
    "stride": lambda value, axis: along(axis, stride=value),
    "padding": lambda value, axis: along(
        axis, padding=value, size=2, kernel=2, stride=LIMIT - 1, dilation=LIMIT - 1, output_padding=2
    ),
    "dilation": lambda value, axis: along(axis, dilation=value),
    "size": lambda value, axis: along(axis, size=value, padding=1),
    "size_of_the_result": lambda value, axis: along(axis, size=2, stride=value - 1),
    "extent_of_the_kernel": lambda value, axis: along(axis, padding=1, **TAPS[value]),
    "batch": lambda value, axis: dataclasses.replace(ONE, batch=value),
    "c_in": lambda value, axis: dataclasses.replace(ONE, c_in=value, channels=(value, 1)),
    "c_out": lambda value, axis: dataclasses.replace(ONE, channels=(1, value)),
}  # fmt: skip


@pytest.mark.parametrize("axis", [0, 1], ids=["height", "width"])
@pytest.mark.parametrize("quantity", LARGE)
def test_the_limit_itself_is_too_large_and_one_less_is_not(quantity, axis):
    within, beyond = (LARGE[quantity](value, axis) for value in (LIMIT - 1, LIMIT))
    assert within.our_size() is not None
    assert beyond.our_size() is None
    for limit in (LIMIT + 1, NO_LIMIT):
        assert legal_output_size(*beyond.shapes, *beyond.arguments, limit) is not None

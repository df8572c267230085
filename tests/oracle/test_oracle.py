"""The oracle against float64, against the order written out term by term, and against the Python reference."""

from __future__ import annotations

import importlib
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.plugin import forward, grad_input
from plan.exact import exact_data, expected_output
from plan.problems import axes, from_row, make_axis, output_padding_of, problems
from plan.profile import many_problems


def axes_of(problem):
    return [problem[name] for name in "dhw" if name in problem]


def sizes(problem):
    """Input and weight, with two or three spatial axes."""
    size, kernel = ([axis[key] for axis in axes_of(problem)] for key in ("in", "kernel"))
    c_in, c_out = problem["c_in"], problem["c_out"] // problem["groups"]
    return (problem["batch"], c_in, *size), (c_in, c_out, *kernel)


def arguments(problem):
    spatial = axes_of(problem)
    lists = {key: tuple(axis[key] for axis in spatial) for key in ("stride", "padding", "dilation")}
    return {**lists, "output_padding": tuple(map(output_padding_of, spatial)), "groups": problem["groups"]}


def random_data(problem, seed, dtype):
    generator = torch.Generator().manual_seed(seed)
    shapes = [*sizes(problem), (problem["c_out"],)]
    tensors = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    return tensors if problem["has_bias"] else [*tensors[:2], None]


@many_problems
@given(problem=problems(), seed=st.integers(0, 2**31), order=st.sampled_from(["ieee", "aten"]))
def test_integers_are_exact(oracle, problem, seed, order):
    x, weight, bias = exact_data(problem, seed)
    expected = expected_output(problem, x, weight, bias)
    for dtype in (torch.float64, torch.float32):
        operands = [None if t is None else t.to(dtype) for t in (x, weight, bias)]
        assert torch.equal(forward(oracle, *operands, **arguments(problem), order=order), expected.to(dtype))


@many_problems
@given(problem=problems(), d=axes(max_in=4), seed=st.integers(0, 2**31), order=st.sampled_from(["ieee", "aten"]))
def test_volumes_of_integers_are_exact(oracle, problem, d, seed, order):
    """Forward pass and gradient of the input, in the layouts of PyTorch."""
    problem = problem | {"d": d}
    generator = torch.Generator().manual_seed(seed)
    x, weight = (torch.randint(-8, 9, size, generator=generator).double().requires_grad_() for size in sizes(problem))
    bias = torch.randint(-8, 9, (problem["c_out"],), generator=generator).double() if problem["has_bias"] else None
    expected = torch.nn.functional.conv_transpose3d(x, weight, bias, **arguments(problem))
    gy = torch.randint(-8, 9, expected.shape, generator=generator).double()
    of_input = torch.autograd.grad(expected, x, gy)[0]
    names = {name: value for name, value in arguments(problem).items() if name != "output_padding"}
    for memory in (torch.contiguous_format, torch.channels_last_3d):
        x, gy = x.contiguous(memory_format=memory), gy.contiguous(memory_format=memory)
        assert torch.equal(forward(oracle, x, weight, bias, **arguments(problem), order=order), expected)
        assert torch.equal(grad_input(oracle, gy, weight, x.shape[2:], **names), of_input)


def fma32(a: np.float32, b: np.float32, c: np.float32) -> np.float32:
    """Exact: the product of two floats fits a double, and long double holds this sum for the data used here."""
    exact = np.longdouble(a) * np.longdouble(b) + np.longdouble(c)
    return np.float32(exact)


def one_output(problem, x, weight, bias, order, n, co, *output):
    """One output as kernels/ORDER.md words it."""
    c_in, c_out = problem["c_in"] // problem["groups"], problem["c_out"] // problem["groups"]
    taps = []
    for tap in itertools.product(*(range(axis["kernel"]) for axis in axes_of(problem))):
        places = [
            divmod(o + axis["padding"] - k * axis["dilation"], axis["stride"])
            for o, k, axis in zip(output, tap, axes_of(problem), strict=True)
        ]
        if all(rest == 0 and 0 <= i < axis["in"] for (i, rest), axis in zip(places, axes_of(problem), strict=True)):
            taps.append((tuple(i for i, _ in places), tap))
    channels = range(co // c_out * c_in, co // c_out * c_in + c_in)
    total = np.float32(0)
    if order == "ieee":
        for ci in channels:
            for source, tap in taps:
                total = fma32(x[(n, ci, *source)], weight[(ci, co % c_out, *tap)], total)
    else:
        for source, tap in sorted(taps):  # ascending input plane, row, column
            tap_sum = np.float32(0)
            for ci in channels:
                tap_sum = fma32(x[(n, ci, *source)], weight[(ci, co % c_out, *tap)], tap_sum)
            total = np.float32(total + tap_sum)
    return total if bias is None else np.float32(total + bias[co])


def one_grad_input(problem, gy, weight, n, ci, *source):
    """One element of the gradient of the input, likewise."""
    c_in, c_out = problem["c_in"] // problem["groups"], problem["c_out"] // problem["groups"]
    total = np.float32(0)
    for co in range(c_out):
        for tap in itertools.product(*(range(axis["kernel"]) for axis in axes_of(problem))):
            output = tuple(
                i * axis["stride"] - axis["padding"] + k * axis["dilation"]
                for i, k, axis in zip(source, tap, axes_of(problem), strict=True)
            )
            if all(0 <= o < axis["out"] for o, axis in zip(output, axes_of(problem), strict=True)):
                total = fma32(gy[(n, ci // c_in * c_out + co, *output)], weight[(ci, co, *tap)], total)
    return total


ORDER_CASES = {
    "two_groups_dilated": from_row(1, 6, 4, (4, 5), (3, 4), (2, 1), (1, 2), (1, 0), 2, (2, 3), has_bias=True),
    "stride_one": from_row(1, 7, 2, (5, 4), (3, 5), 1, 1),
    "output_padding": from_row(2, 5, 2, (3, 4), 3, 2, 1, 1, has_bias=True),
    "volume": from_row(1, 6, 4, (3, 2), (2, 3), 1, (0, 1), groups=2, has_bias=True) | {"d": make_axis(4, 3, 1, 1)},
    "strided_volume": from_row(1, 3, 2, (2, 3), 3, 2, 1, 1) | {"d": make_axis(3, 4, 2, 1, 1, dilation=3)},
}


@pytest.mark.parametrize("order", ["ieee", "aten"])
@pytest.mark.parametrize("name", ORDER_CASES)
def test_order_of_the_sums(oracle, name, order):
    """Bits, on random data whose operands have 12 significant bits so that the Python fma above is exact."""
    problem = ORDER_CASES[name]
    tensors = [None if t is None else torch.round(t * 512) / 512 for t in random_data(problem, 7, torch.float32)]
    x, weight, bias = (None if t is None else t.numpy() for t in tensors)
    result = forward(oracle, *tensors, **arguments(problem), order=order).numpy()
    expected = np.empty_like(result)
    for place in np.ndindex(*result.shape):
        expected[place] = one_output(problem, x, weight, bias, order, *place)
    np.testing.assert_array_equal(result.view(np.int32), expected.view(np.int32))


@pytest.mark.parametrize("name", ORDER_CASES)
def test_order_of_the_gradient_of_the_input(oracle, name):
    problem = ORDER_CASES[name]
    x, weight, _ = (None if t is None else torch.round(t * 512) / 512 for t in random_data(problem, 7, torch.float32))
    names = arguments(problem)
    gy = torch.round(torch.randn_like(forward(oracle, x, weight, **names)) * 512) / 512
    del names["output_padding"]
    result = grad_input(oracle, gy, weight, x.shape[2:], **names).numpy()
    expected = np.empty_like(result)
    for place in np.ndindex(*result.shape):
        expected[place] = one_grad_input(problem, gy.numpy(), weight.numpy(), *place)
    np.testing.assert_array_equal(result.view(np.int32), expected.view(np.int32))


def test_the_orders_differ(oracle):
    """Otherwise the tests above could not tell one from the other."""
    problem = from_row(1, 32, 2, (6, 6), 3, 1, 1)
    x, weight, _ = random_data(problem, 1, torch.float32)
    assert not torch.equal(
        forward(oracle, x, weight, padding=1, order="ieee"), forward(oracle, x, weight, padding=1, order="aten")
    )


@pytest.mark.parametrize("order", ["ieee", "aten"])
def test_strides_do_not_matter(oracle, order):
    problem = from_row(2, 6, 4, (5, 4), (3, 2), 2, 1, has_bias=True)
    x, weight, bias = random_data(problem, 3, torch.float32)
    expected = forward(oracle, x, weight, bias, 2, 1, order=order)
    strange = (
        x.to(memory_format=torch.channels_last),
        weight.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0),
        torch.stack([bias, bias], dim=1)[:, 0],
    )
    assert torch.equal(forward(oracle, *strange, 2, 1, order=order), expected)
    offset = torch.randn(3, 8, 9, 7)[1:, 1:7, 2:7, 1:5].copy_(x)
    assert torch.equal(forward(oracle, offset, weight, bias, 2, 1, order=order), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_is_rounded_once(oracle, dtype):
    problem = from_row(1, 16, 3, (5, 5), 3, 2)
    x, weight, _ = random_data(problem, 5, dtype)
    assert torch.equal(
        forward(oracle, x, weight, stride=2), forward(oracle, x.float(), weight.float(), stride=2).to(dtype)
    )


@pytest.mark.parametrize("order", ["ieee", "aten"])
def test_a_nan_reaches_exactly_its_outputs(oracle, order):
    """Taps outside the input are not multiplied: an infinite weight cannot make NaN of a padding zero."""
    weight = torch.full((1, 1, 3, 3), float("inf"))
    x = torch.ones(1, 1, 2, 2)
    assert not forward(oracle, x, weight, stride=2, order=order).isnan().any()
    x[0, 0, 0, 0] = float("nan")
    assert forward(oracle, x, weight, stride=2, order=order).isnan().sum() == 9


def test_wrong_arguments_are_errors(oracle):
    x, weight = torch.ones(1, 2, 3, 3), torch.ones(2, 2, 3, 3)
    with pytest.raises(ValueError, match="order: got 'cudnn', expected 'ieee' or 'aten'"):
        forward(oracle, x, weight, order="cudnn")
    with pytest.raises(ValueError, match="weight"):
        forward(oracle, x, torch.ones(3, 2, 3, 3))
    with pytest.raises(ValueError, match="bias"):
        forward(oracle, x, weight, torch.ones(3))
    with pytest.raises(TypeError, match="input"):
        forward(oracle, x.int(), weight)


@pytest.mark.parametrize("order", ["ieee", "aten"])
@settings(many_problems, max_examples=100)  # its fma is exact and slow
@given(problem=problems(), seed=st.integers(0, 2**31))
def test_python_reference_agrees(oracle, order, problem, seed):
    """convt_ext.check.reference, the same orders written a second time and independently: every bit."""
    try:
        reference = importlib.import_module("convt_ext.check.reference")
    except ImportError as error:
        pytest.skip(f"convt_ext is not installed ({error})")
    operands = random_data(problem, seed, torch.float32)
    arrays = [None if t is None else t.numpy() for t in operands]
    expected = getattr(reference, f"forward_{order}")(*arrays, **arguments(problem))
    result = forward(oracle, *operands, **arguments(problem), order=order).numpy()
    np.testing.assert_array_equal(result.view(np.int32), expected.view(np.int32))

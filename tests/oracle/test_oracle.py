"""The oracle against float64, against the order written out term by term, and against the Python reference."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.plugin import forward
from plan.exact import exact_data, expected_output
from plan.problems import from_row, output_padding_of, problems
from plan.profile import many_problems


def arguments(problem):
    h, w = problem["h"], problem["w"]
    pairs = {key: (h[key], w[key]) for key in ("stride", "padding", "dilation")}
    return {**pairs, "output_padding": (output_padding_of(h), output_padding_of(w)), "groups": problem["groups"]}


def random_data(problem, seed, dtype):
    generator = torch.Generator().manual_seed(seed)
    x, weight, bias = exact_data(problem, seed)
    return [None if t is None else torch.randn(t.shape, generator=generator).to(dtype) for t in (x, weight, bias)]


@many_problems
@given(problem=problems(), seed=st.integers(0, 2**31), order=st.sampled_from(["ieee", "aten"]))
def test_integers_are_exact(oracle, problem, seed, order):
    x, weight, bias = exact_data(problem, seed)
    expected = expected_output(problem, x, weight, bias)
    for dtype in (torch.float64, torch.float32):
        operands = [None if t is None else t.to(dtype) for t in (x, weight, bias)]
        assert torch.equal(forward(oracle, *operands, **arguments(problem), order=order), expected.to(dtype))


def fma32(a: np.float32, b: np.float32, c: np.float32) -> np.float32:
    """Exact: the product of two floats fits a double, and long double holds this sum for the data used here."""
    exact = np.longdouble(a) * np.longdouble(b) + np.longdouble(c)
    return np.float32(exact)


def one_output(problem, x, weight, bias, order, n, co, oh, ow):
    """One output as kernels/ORDER.md words it."""
    h, w = problem["h"], problem["w"]
    c_in, c_out = problem["c_in"] // problem["groups"], problem["c_out"] // problem["groups"]
    taps = []
    for kh in range(h["kernel"]):
        for kw in range(w["kernel"]):
            ih, rest_h = divmod(oh + h["padding"] - kh * h["dilation"], h["stride"])
            iw, rest_w = divmod(ow + w["padding"] - kw * w["dilation"], w["stride"])
            if rest_h == rest_w == 0 and 0 <= ih < h["in"] and 0 <= iw < w["in"]:
                taps.append((ih, iw, kh, kw))
    channels = range(co // c_out * c_in, co // c_out * c_in + c_in)
    total = np.float32(0)
    if order == "ieee":
        for ci in channels:
            for ih, iw, kh, kw in taps:
                total = fma32(x[n, ci, ih, iw], weight[ci, co % c_out, kh, kw], total)
    else:
        for ih, iw, kh, kw in sorted(taps):  # ascending input row, then column
            tap_sum = np.float32(0)
            for ci in channels:
                tap_sum = fma32(x[n, ci, ih, iw], weight[ci, co % c_out, kh, kw], tap_sum)
            total = np.float32(total + tap_sum)
    return total if bias is None else np.float32(total + bias[co])


ORDER_CASES = {
    "two_groups_dilated": from_row(1, 6, 4, (4, 5), (3, 4), (2, 1), (1, 2), (1, 0), 2, (2, 3), has_bias=True),
    "stride_one": from_row(1, 7, 2, (5, 4), (3, 5), 1, 1),
    "output_padding": from_row(2, 5, 2, (3, 4), 3, 2, 1, 1, has_bias=True),
}


@pytest.mark.parametrize("order", ["ieee", "aten"])
@pytest.mark.parametrize("name", ORDER_CASES)
def test_order_of_the_sums(oracle, name, order):
    """Bits, on random data whose operands have 12 significant bits so that the Python fma above is exact."""
    problem = ORDER_CASES[name]
    x, weight, bias = (
        None if t is None else (torch.round(t * 512) / 512).numpy() for t in random_data(problem, 7, torch.float32)
    )
    tensors = [None if t is None else torch.from_numpy(t) for t in (x, weight, bias)]
    result = forward(oracle, *tensors, **arguments(problem), order=order).numpy()
    expected = np.empty_like(result)
    for place in np.ndindex(*result.shape):
        expected[place] = one_output(problem, x, weight, bias, order, *place)
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

"""reference.py: the definitions themselves, against PyTorch on exact data and against rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cases import Case, each_case
from hypothesis import given, settings
from hypothesis import strategies as st

from convt_ext.check import reference

ORDERS = [reference.forward_float64, reference.forward_ieee, reference.forward_aten]


def arrays(case: Case, **options):
    return [None if tensor is None else tensor.numpy() for tensor in case.tensors(**options)]


@each_case()
@pytest.mark.parametrize("forward", ORDERS, ids=lambda order: order.__name__)
def test_exact_data(case, forward):
    x, weight, bias = case.tensors(torch.float64, integers=True)
    expected = F.conv_transpose2d(x, weight, bias, **case.arguments).numpy()
    assert np.array_equal(forward(*arrays(case, dtype=torch.float64, integers=True), **case.arguments), expected)


@each_case("kb75", "many_channels_in", "k4s2p1")
def test_orders_differ_and_stay_close(case):
    x, weight, bias = arrays(case)
    exact, ieee, aten = (forward(x, weight, bias, **case.arguments) for forward in ORDERS)
    assert ieee.dtype == aten.dtype == np.float32
    assert not np.array_equal(ieee, aten)
    for result in (ieee, aten):
        assert np.linalg.norm(result - exact) / np.linalg.norm(exact) < 1e-6


def test_ieee_order_by_hand():
    """Two channels, one output: the chain starts with channel 0; starting with channel 1 would round differently."""
    x = np.array([2.0**24, 1.0], np.float32).reshape(1, 2, 1, 1)
    weight = np.ones((2, 1, 1, 1), np.float32)
    assert reference.forward_ieee(x, weight, np.float32([1.0])).item() == 2.0**24
    assert reference.forward_ieee(x[:, ::-1], weight, np.float32([1.0])).item() == 2.0**24
    assert reference.forward_float64(x, weight, np.float32([1.0])).item() == 2.0**24 + 2


def test_aten_adds_the_taps_from_the_last():
    x = np.ones((1, 1, 1, 3), np.float32)
    weight = np.array([2.0**24, 1.0, 1.0], np.float32).reshape(1, 1, 1, 3)
    padding = (0, 2)  # one output that sees all three taps
    assert reference.forward_ieee(x, weight, padding=padding).item() == 2.0**24
    assert reference.forward_aten(x, weight, padding=padding).item() == 2.0**24 + 2


def test_nothing_outside_of_the_input_is_multiplied():
    x = np.ones((1, 1, 2, 2), np.float32)
    weight = np.ones((1, 1, 3, 3), np.float32)
    weight[0, 0, 0, 0] = np.inf
    result = reference.forward_ieee(x, weight)
    assert not np.isnan(result).any()
    assert np.isinf(result).sum() == 4


floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
near = st.integers(-(2**24), 2**24).flatmap(
    lambda mantissa: st.integers(-60, 60).map(lambda exponent: float(np.float32(np.ldexp(mantissa, exponent))))
)


@settings(max_examples=500, deadline=None)
@given(st.one_of(floats, near), st.one_of(floats, near), st.one_of(floats, near))
def test_fma_rounds_once(a, b, c):
    got = reference.fma(np.float32([a]), np.float32([b]), np.float32([c]))[0]
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if not np.isfinite(got):
        assert abs(exact) >= Fraction(2) ** 128 - Fraction(2) ** 103
        return
    error = abs(Fraction(float(got)) - exact)
    for neighbour in (np.nextafter(got, np.float32(np.inf)), np.nextafter(got, np.float32(-np.inf))):
        if np.isfinite(neighbour):
            other = abs(Fraction(float(neighbour)) - exact)
            assert error <= other
            if error == other:  # a tie goes to the even mantissa
                assert got.view(np.int32) % 2 == 0


def test_fma_where_double_rounding_would_err():
    one = np.float32([1.0])
    tiny = np.float32([2.0**-80])
    half_ulp = np.float32([2.0**-24])
    # 1 + 2^-24 is a tie and goes to 1; a little more must go up, a little less down.
    assert reference.fma(one, one, half_ulp)[0] == 1
    a = np.float32([1 + 2.0**-12])
    assert Fraction(float(reference.fma(a, a, tiny)[0])) == Fraction(float(np.float32(1 + 2.0**-11 + 2.0**-23)))

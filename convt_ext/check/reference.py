"""Definitions of the operator in numpy: the reference for every kernel.

Called by tests and by `python -m convt_ext check`. Plain loops over channels and taps, vectorized only
over positions, so that the code shows the order of accumulation. For small problems. Needs numpy; must
not use any code that it checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

Array = np.ndarray


def forward_float64(x: Array, w: Array, bias: Array | None = None, **arguments: Any) -> Array:
    """Computes y[n, co, oh, ow] = bias[co] + sum of x[n, ci, ih, iw] * w[ci, co, kh, kw] in float64.

    The sum runs over ci of co's group and all taps with oh = ih * stride - padding + kh * dilation
    (width likewise). Exact if all products and sums are exact in float64, as for small integers.

    Args:
        x: (N, C_in, H, W).
        w: (C_in, C_out / groups, kH, kW).
        bias: (C_out,) or None.
        arguments: pairs (height, width) stride, padding, output_padding and dilation, and groups, as in PyTorch.

    Returns:
        float64 (N, C_out, OH, OW).

    Example:
        >>> import numpy as np
        >>> forward_float64(np.ones((1, 1, 2, 2)), np.ones((1, 1, 2, 2)))[0, 0]
        array([[1., 2., 1.],
               [2., 4., 2.],
               [1., 2., 1.]])
    """
    x, w, y, pairs, taps = _start(x, w, np.float64, **arguments)
    for c_in, channels in pairs:
        for k_h, k_w, source, target in taps:
            y[:, channels][target] += x[:, c_in, None][source] * w[c_in, :, k_h, k_w, None, None]
    return y if bias is None else y + bias.astype(np.float64)[:, None, None]


def forward_ieee(x: Array, w: Array, bias: Array | None = None, **arguments: Any) -> Array:
    """Computes the class `ieee` for float32, bit for bit.

    Per output one chain of fused multiply-adds from zero, c_in ascending, then kh, then kw ascending;
    taps outside of the input are skipped; the bias is added last. For float16 and bfloat16 pass the
    values as float32 and round the result once.

    Args and shapes: as `forward_float64`, in float32. Returns float32.
    """
    x, w, y, pairs, taps = _start(x, w, np.float32, **arguments)
    for c_in, channels in pairs:
        for k_h, k_w, source, target in taps:
            chain = y[:, channels]
            chain[target] = fma(x[:, c_in, None][source], w[c_in, :, k_h, k_w, None, None], chain[target])
    return y if bias is None else y + bias.astype(np.float32)[:, None, None]


def forward_aten(x: Array, w: Array, bias: Array | None = None, **arguments: Any) -> Array:
    """Computes the class `aten`, bit for bit: PyTorch's matrix product followed by col2im.

    Per tap one chain of fused multiply-adds over c_in ascending from zero; the tap sums are added one
    after another in ascending input row, then column, that is descending kh, then kw; the bias last.

    Args and shapes: as `forward_float64`, in float32. Returns float32.
    """
    x, w, y, pairs, taps = _start(x, w, np.float32, **arguments)
    for k_h, k_w, source, target in reversed(taps):
        tap_sums = np.zeros_like(y[target])
        for c_in, channels in pairs:
            sums = tap_sums[:, channels]
            sums[...] = fma(x[:, c_in, None][source], w[c_in, :, k_h, k_w, None, None], sums)
        y[target] += tap_sums
    return y if bias is None else y + bias.astype(np.float32)[:, None, None]


def fma(a: Array, b: Array, c: Array) -> Array:
    """Computes a * b + c in float32 with one rounding, for float32 arrays.

    The product of two float32 is exact in float64. The float64 sum is rounded to odd (its error, found
    by TwoSum, moves an even inexact sum one step towards the exact value), after which rounding to
    float32 cannot round twice. (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums:
    proved algorithms using rounding to odd", 2008.)

    Example:
        >>> import numpy as np
        >>> one, small = np.float32([1]), np.float32([2**-24])
        >>> float(fma(one, one, small)[0]), float(fma(one + small * 2, one, small)[0]) - 1 == 2**-22
        (1.0, True)
    """
    with np.errstate(all="ignore"):
        product = a.astype(np.float64) * b.astype(np.float64)
        addend = c.astype(np.float64)
        total = product + addend
        back = total - product
        error = (product - (total - back)) + (addend - back)
        even = (total.view(np.int64) & 1) == 0
        inexact = np.isfinite(total) & (error != 0)
        odd = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
        return np.where(inexact & even, odd, total).astype(np.float32)


def _start(
    x, w, dtype, stride=(1, 1), padding=(0, 0), output_padding=(0, 0), groups=1, dilation=(1, 1)
) -> tuple[Array, Array, Array, list, list]:
    """Returns the operands in a dtype, a result of zeros, and the lists of `_channel_pairs` and `_taps`."""
    lengths = (
        (x.shape[2 + d] - 1) * stride[d] - 2 * padding[d] + dilation[d] * (w.shape[2 + d] - 1) + output_padding[d] + 1
        for d in (0, 1)
    )
    y = np.zeros((x.shape[0], w.shape[1] * groups, *lengths), dtype)
    taps = list(_taps(x, w, y, stride, padding, dilation))
    return x.astype(dtype), w.astype(dtype), y, list(_channel_pairs(w, groups)), taps


def _channel_pairs(w: Array, groups: int) -> Iterator[tuple[int, slice]]:
    """Yields each input channel, ascending, with the output channels of its group."""
    c_in_per_group, c_out_per_group = w.shape[0] // groups, w.shape[1]
    for c_in in range(w.shape[0]):
        group = c_in // c_in_per_group
        yield c_in, slice(group * c_out_per_group, (group + 1) * c_out_per_group)


def _taps(x, w, y, stride, padding, dilation) -> Iterator[tuple[int, int, tuple, tuple]]:
    """Yields each tap that reaches an output, kh then kw ascending, with its input positions and its outputs."""
    for k_h in range(w.shape[2]):
        rows_in, rows_out = _axis(x.shape[2], y.shape[2], k_h, stride[0], padding[0], dilation[0])
        for k_w in range(w.shape[3]):
            columns_in, columns_out = _axis(x.shape[3], y.shape[3], k_w, stride[1], padding[1], dilation[1])
            if rows_in.stop > rows_in.start and columns_in.stop > columns_in.start:
                every = slice(None)
                yield k_h, k_w, (every, every, rows_in, columns_in), (every, every, rows_out, columns_out)


def _axis(size: int, out: int, k: int, stride: int, padding: int, dilation: int) -> tuple[slice, slice]:
    """Returns, for one axis, the inputs i with an output i * stride - padding + k * dilation, and these outputs."""
    shift = k * dilation - padding
    first = max(0, -(shift // stride))
    last = min(size - 1, (out - 1 - shift) // stride)
    return slice(first, last + 1), slice(first * stride + shift, last * stride + shift + 1, stride)

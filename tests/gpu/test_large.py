"""Tensors of more than 2^31 elements: offsets are 64 bits wide.

Windows of the result at its first, last and straddling positions are compared bit for bit with the scalar oracle on
the part of the input that they see. What lies between is compared with calls that are small enough for 32 bits. Of each
kernel family one problem more: test_large_families.py.
"""

from __future__ import annotations

import oracle.plugin
import pytest
import torch
from raw_ops import TENSOR_CORE_ENGINES, Call, GradientCall, assert_same_bits

LIMIT = 2**31
LAST = torch.channels_last


def random_input(n: int, c: int, h: int, w: int, dtype: torch.dtype, memory_format) -> torch.Tensor:
    """Filled plane by plane: no fill of the whole is asked to hold its offsets in 32 bits."""
    torch.manual_seed(0)
    x = torch.empty((n, c, h, w), device="cuda", dtype=dtype, memory_format=memory_format)
    for image in x:
        for plane in image:
            plane.copy_(torch.randn(h, w, device="cuda", dtype=dtype))
    return x


def random_weight(c_in: int, c_out: int, k: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(c_in, c_out, k, k, generator=generator).to("cuda", dtype)
    return weight, torch.randn(c_out, generator=generator).to("cuda", dtype)


def input_range(begin: int, end: int, size: int, kernel: int, stride: int, padding: int) -> tuple[int, int]:
    """The input positions that outputs begin..end of an axis read (dilation 1, kernel >= stride)."""
    first = max(0, -(-(begin + padding - kernel + 1) // stride))
    return first, min(size, (end - 1 + padding) // stride + 1)


def window_by_oracle(module, call: Call, n: int, rows: tuple[int, int], columns: tuple[int, int]) -> torch.Tensor:
    """Rows and columns of image n of the result, all channels: [1, c_out, rows, columns]."""
    kernel, stride, padding = call.weight.shape[2:], call.stride, call.padding
    (top, bottom), (left, right) = (
        input_range(*pair, call.x.shape[2 + i], kernel[i], stride[i], padding[i])
        for i, pair in enumerate((rows, columns))
    )
    x = call.x[n : n + 1, :, top:bottom, left:right].cpu()
    tensors = (x, call.weight.cpu(), call.bias.cpu())
    whole = oracle.plugin.forward(module, *tensors, stride, groups=call.groups, order=call.precision)
    row, column = rows[0] + padding[0] - top * stride[0], columns[0] + padding[1] - left * stride[1]
    return whole[:, :, row : row + rows[1] - rows[0], column : column + columns[1] - columns[0]]


def assert_window(module, call: Call, result: torch.Tensor, n: int, row: int, column: int) -> None:
    """Compares up to 5 x 9 positions around one of the result."""
    rows = (max(row - 2, 0), min(row + 3, result.shape[2]))
    columns = (max(column - 4, 0), min(column + 5, result.shape[3]))
    expected = window_by_oracle(module, call, n, rows, columns)
    got = result[n : n + 1, :, slice(*rows), slice(*columns)].cpu()
    assert_same_bits(got, expected, f"image {n}, rows {rows}, columns {columns}")


def place_of(offset: int, tensor: torch.Tensor) -> tuple[int, int, int]:
    """Image, row and column of the element at that offset in memory of a dense tensor."""
    index = [0, 0, 0, 0]
    for axis in sorted(range(4), key=tensor.stride, reverse=True):
        index[axis], offset = divmod(offset, tensor.stride(axis))
    return index[0], index[2], index[3]


def assert_ends_and_straddling(module, call: Call, result: torch.Tensor, large: torch.Tensor) -> None:
    """Windows at both ends of the result and where `large`, the input or the result, passes 2^31 elements."""
    assert_window(module, call, result, 0, 0, 0)
    assert_window(module, call, result, result.shape[0] - 1, result.shape[2] - 1, result.shape[3] - 1)
    for offset in (LIMIT - 1, LIMIT, LIMIT + 1):
        n, row, column = place_of(offset, large)
        if large is call.x:
            row, column = row * call.stride[0], column * call.stride[1]
        assert_window(module, call, result, n, min(row, result.shape[2] - 1), min(column, result.shape[3] - 1))


def images_alone(call: Call, result: torch.Tensor) -> None:
    """Each image by a call of its own."""
    for n in range(call.x.shape[0]):
        assert_same_bits(call.replace(x=call.x[n : n + 1]).run(), result[n : n + 1], f"image {n}")


@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_large_output_of_several_images(oracle, room, dtype, channels_last):
    """Kernel 4, stride 2: 3 images of 3 channels of 15778 x 15802, 2.2e9 outputs, none of them large alone."""
    n, c_in, c_out, h, w = 3, 2, 3, 7889, 7901
    room((n * c_in * h * w + 2 * n * c_out * 4 * h * w) * dtype.itemsize)
    x = random_input(n, c_in, h, w, dtype, torch.contiguous_format)
    call = Call(x, *random_weight(c_in, c_out, 4, dtype), (2, 2), (1, 1), channels_last=channels_last)
    result = call.run()
    assert result.shape == (n, c_out, 2 * h, 2 * w)
    assert result.numel() > LIMIT
    assert_ends_and_straddling(oracle, call, result, result)
    images_alone(call, result)


@pytest.mark.parametrize("precision", ["ieee", "aten"])
@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
def test_large_output_of_one_image(oracle, room, channels_last, precision):
    """3x3: 9 channels of 15475 x 15444, 2.2e9 outputs of one image."""
    c_in, c_out, h, w = 2, 9, 15473, 15442
    room((c_in * h * w + 2 * c_out * (h + 2) * (w + 2)) * torch.float32.itemsize)
    x = random_input(1, c_in, h, w, torch.float32, torch.contiguous_format)
    weight, bias = random_weight(c_in, c_out, 3, torch.float32)
    call = Call(x, weight, bias, precision=precision, channels_last=channels_last)
    result = call.run()
    assert result.numel() > LIMIT
    assert_ends_and_straddling(oracle, call, result, result)
    for channel in range(c_out):
        alone = call.replace(weight=weight[:, channel : channel + 1], bias=bias[channel : channel + 1]).run()
        assert_same_bits(alone, result[:, channel : channel + 1], f"channel {channel}")


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, LAST], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_large_input_of_one_image(oracle, room, dtype, memory_format):
    """3x3, padding 1: 9 channels of 15473 x 15444, 2.2e9 inputs of one image, one output channel."""
    c_in, h, w = 9, 15473, 15444  # rows of whole vectors
    room(((c_in + 2) * h * w) * dtype.itemsize)
    x = random_input(1, c_in, h, w, dtype, memory_format)
    assert x.numel() > LIMIT
    call = Call(x, *random_weight(c_in, 1, 3, dtype), padding=(1, 1))
    result = call.run()
    assert result.shape == (1, 1, h, w)
    assert_ends_and_straddling(oracle, call, result, x)
    # Halves of the rows, each with one row more, whose own outputs are wrong.
    upper, lower = call.replace(x=x[:, :, : h // 2 + 1]), call.replace(x=x[:, :, h // 2 - 1 :])
    assert_same_bits(upper.run()[:, :, : h // 2], result[:, :, : h // 2])
    assert_same_bits(lower.run()[:, :, 1:], result[:, :, h // 2 :])


def test_large_input_of_several_images(oracle, room):
    """Kernel 2, stride 2, depthwise: 5 images of 2 channels of 14657 x 14660, 2.1e9 inputs and 8.6e9 outputs."""
    n, c, h, w = 5, 2, 14657, 14660
    room((n * c * h * w * 6 + 2 * c * 4 * h * w) * torch.float16.itemsize)
    x = random_input(n, c, h, w, torch.float16, torch.contiguous_format)
    assert x.numel() > LIMIT
    weight, _ = random_weight(c, 1, 2, torch.float16)
    call = Call(x, weight, torch.ones(c, device="cuda", dtype=torch.float16), (2, 2), groups=c)
    result = call.run()
    assert result.shape == (n, c, 2 * h, 2 * w)
    assert_ends_and_straddling(oracle, call, result, x)
    assert_ends_and_straddling(oracle, call, result, result)
    images_alone(call, result)


@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("direction", ["forward", "grad_input"])
def test_large_result_and_source_on_tensor_cores(room, direction, channels_last):
    """3x3, bfloat16, 3 images of 32 channels of 4734 x 4734, 2.2e9 elements: each image beside a call of its own.

    The plan may order the sums of one image in another way, so results are compared within their own rounding.
    """
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the engine is Hopper's")
    n, few, many, size = 3, 8, 32, 4732
    room((2 * n * (few + many) * (size + 2) ** 2) * torch.bfloat16.itemsize)
    memory_format = LAST if channels_last else torch.contiguous_format
    weight, bias = random_weight(few, many, 3, torch.bfloat16)
    forward = direction == "forward"
    source = random_input(
        n, *((few, size, size) if forward else (many, size + 2, size + 2)), torch.bfloat16, memory_format
    )
    x = source if forward else torch.empty(n, few, size, size, device="meta", dtype=torch.bfloat16)
    call = Call(x, weight, bias if forward else None, precision="half", channels_last=channels_last)
    made = call if forward else GradientCall("grad_input", source, weight, call, channels_last)
    device = torch.ops.convt_ext.device(source.device.index)
    assert made.candidates(device)[0]["engine"] in TENSOR_CORE_ENGINES
    result = made.run()
    assert max(result.numel(), source.numel()) > LIMIT
    for image in range(n):
        part = source[image : image + 1]
        alone = (made.replace(x=part) if forward else made.replace(grad_output=part)).run()
        assert result[image].isfinite().all()
        assert (alone[0] - result[image]).abs().max() <= 2.0**-7 * alone.abs().max()

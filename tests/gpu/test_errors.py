"""Bad input on the GPU: PyTorch's type and words, row by row, and no tensor changed."""

from __future__ import annotations

import bad_input
import pytest
import torch
import torch.nn.functional as F
from served import tf32
from torch.autograd import forward_ad

from convt_ext import conv_transpose2d as ours


def assert_same_outcome(arguments, precision):
    """Ours does what PyTorch's operator does with the very same arguments, and leaves the tensors as they were."""
    tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
    before = [(tensor.clone(), tensor._version, tensor.stride()) for tensor in tensors]
    theirs = bad_input.outcome(F.conv_transpose2d, *arguments)
    mine = bad_input.outcome(ours, *arguments, precision=precision)
    torch.cuda.synchronize()
    if isinstance(theirs, torch.Tensor):
        assert isinstance(mine, torch.Tensor), mine
        assert mine.shape == theirs.shape
        assert mine.stride() == theirs.stride()
        assert torch.equal(mine, theirs)
    else:
        assert mine == theirs
    for tensor, (copy, version, stride) in zip(tensors, before, strict=True):
        assert torch.equal(tensor, copy)
        assert (tensor._version, tensor.stride()) == (version, stride)
    return theirs


@bad_input.each_bad_input()
@pytest.mark.parametrize("precision", [None, "exact", "aten"])
def test_row(row, precision):
    with tf32(False):
        theirs = assert_same_outcome(bad_input.arguments(row, "cuda"), precision)
    if row in bad_input.WORDS:
        assert bad_input.WORDS[row] in theirs[1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@bad_input.each_bad_input(
    "input_2d", "weight_2d", "bias_length", "channels", "groups_do_not_divide", "stride_0", "padding_negative",
    "output_padding_too_large", "dilation_0", "output_negative", "height_0", "stride_float",
)  # fmt: skip
def test_row_of_other_dtypes(row, dtype):
    assert_same_outcome(bad_input.arguments(row, "cuda", dtype), "exact")


@pytest.mark.parametrize("on_cpu", ["input", "weight", "bias"])
@pytest.mark.parametrize("precision", [None, "exact"])
def test_devices_differ(on_cpu, precision):
    tensors = {"input": torch.ones(2, 4, 5, 6), "weight": torch.ones(4, 6, 3, 3), "bias": torch.ones(6)}
    placed = [tensor if name == on_cpu else tensor.cuda() for name, tensor in tensors.items()]
    theirs = assert_same_outcome((*placed, 1, 0, 0, 1, 1), precision)
    assert not isinstance(theirs, torch.Tensor)


@pytest.mark.needs_two_gpus
def test_gpus_differ():
    x, weight = torch.ones(2, 4, 5, 6, device="cuda:0"), torch.ones(4, 6, 3, 3, device="cuda:1")
    assert issubclass(assert_same_outcome((x, weight, None, 1, 0, 0, 1, 1), "exact")[0], RuntimeError)


@pytest.mark.parametrize(
    ("input_dtype", "weight_dtype", "bias_dtype"),
    [
        (torch.float32, torch.float64, None),
        (torch.float32, torch.float16, None),
        (torch.float16, torch.bfloat16, None),
        (torch.float64, torch.float32, None),
        (torch.float32, torch.float32, torch.float64),
        (torch.float16, torch.float16, torch.float32),
        (torch.int32, torch.float32, None),
    ],
)
@pytest.mark.parametrize("precision", [None, "exact"])
def test_dtypes_differ(input_dtype, weight_dtype, bias_dtype, precision):
    x = torch.ones(2, 4, 5, 6, device="cuda", dtype=input_dtype)
    weight = torch.ones(4, 6, 3, 3, device="cuda", dtype=weight_dtype)
    bias = None if bias_dtype is None else torch.ones(6, device="cuda", dtype=bias_dtype)
    assert_same_outcome((x, weight, bias, 1, 0, 0, 1, 1), precision)


def test_explicit_precision_names_what_is_in_its_way():
    x, weight = torch.ones(2, 4, 5, 6, device="cuda"), torch.ones(4, 6, 3, 3, device="cuda")
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match=r"precision='exact'.*forward-mode.*dual level"):
        ours(x, weight, precision="exact")
    with pytest.raises(ValueError, match="'tf32' is for float32 and the input is float16"):
        ours(x.half(), weight.half(), precision="tf32")


def test_the_op_of_other_devices_is_still_none_of_cudas():
    """Our calls are recorded by its autograd node; whoever calls it himself is told so."""
    x, weight = torch.randn(1, 4, 5, 5, device="cuda"), torch.randn(4, 2, 3, 3, device="cuda")
    with pytest.raises(RuntimeError, match="but for convt_ext's own calls"):
        torch.ops.aten.convolution_overrideable(x, weight, None, [1, 1], [0, 0], [1, 1], True, [0, 0], 1)
    with pytest.raises(RuntimeError, match="no arguments are remembered by 123456789"):
        torch.ops.aten.convolution_overrideable(x, weight, None, [], [], [], True, [], 123456789)


def test_the_gpu_works_after_all_that():
    x, weight = torch.ones(2, 4, 5, 6, device="cuda"), torch.ones(4, 6, 3, 3, device="cuda")
    assert ours(x, weight, padding=1, precision="exact")[:, :, 1:-1, 1:-1].eq(36).all()

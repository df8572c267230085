"""Memory of a call: the result and nothing else, so never more than PyTorch's."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

import pytest
import torch
from cases import CASES, STAGED_CASES, Case, named
from raw_ops import CLASSES, Call
from served import cudnn, switch, tf32

# A whole MiB or more, where PyTorch copies layouts or takes a workspace.
LARGER = [
    Case("stride_1", "a halo", n=2, c_in=16, c_out=32, h=96, w=100),
    Case("k4s2p1", "phases", n=4, c_in=32, c_out=16, h=48, w=50, k=(4, 4), s=(2, 2), p=(1, 1)),
    Case("kb75", "grouped", n=2, c_in=32, c_out=64, h=64, w=64, k=(3, 5), s=(2, 3), p=(1, 2), g=4, d=(2, 1)),
    Case("depthwise", "one channel a group", n=2, c_in=64, c_out=64, h=64, w=64, k=(4, 4), s=(2, 2), p=(1, 1), g=64),
    Case("channels_last", "NHWC", n=2, c_in=32, c_out=32, h=64, w=64, s=(2, 2), p=(1, 1), layout="channels_last"),
    Case("sliced", "not dense", n=2, c_in=32, c_out=32, h=64, w=64, s=(2, 2), p=(1, 1), layout="channel_slice"),
]


def statistic(name: str) -> int:
    """Bytes as asked for, before the allocator rounds them up."""
    return torch.cuda.memory_stats()[f"requested_bytes.all.{name}"]


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """No tensor of an earlier test is freed in between."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def peak_bytes(function) -> tuple[torch.Tensor, int]:
    """The function's result, and the most memory that was held beyond what was held before."""
    torch.cuda.synchronize()
    with no_collection():
        torch.cuda.reset_peak_memory_stats()
        before = statistic("current")
        result = function()
        torch.cuda.synchronize()
        return result, statistic("peak") - before


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("case", [*CASES, *STAGED_CASES, *LARGER], ids=lambda case: f"{case.name}_{case.h}x{case.w}")
def test_peak_is_the_result(case, kind):
    """The first call included: nothing is packed, padded, copied or kept."""
    dtype, precision = CLASSES[kind]
    for channels_last in (False, True):
        call = Call.of(case, dtype, precision, channels_last)
        result, peak = peak_bytes(call.run)
        assert peak == result.numel() * result.element_size()


@pytest.mark.parametrize("bias", [False, True], ids=["no_bias", "bias"])
@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("case", LARGER, ids=lambda case: case.name)
def test_peak_is_not_above_pytorchs(case, kind, bias):
    dtype, precision = CLASSES[kind]
    call = Call.of(case, dtype, precision)
    call = call if bias else call.replace(bias=None)
    switches = cudnn(False) if precision == "aten" else switch(torch.backends.cudnn, "benchmark", False)
    with tf32(False), switches:
        call.torch()  # libraries set themselves up on the first call
        theirs, their_peak = peak_bytes(call.torch)
    ours, our_peak = peak_bytes(call.run)
    assert ours.shape == theirs.shape
    assert our_peak <= their_peak


def test_only_a_strided_bias_is_copied():
    call = Call.of(named("k4s2p1"))
    strided = torch.stack([call.bias, call.bias], dim=1)[:, 0]
    assert not strided.is_contiguous()
    result, peak = peak_bytes(call.replace(bias=strided).run)
    assert peak == (result.numel() + strided.numel()) * 4


def test_nothing_is_kept():
    """Not by plans, not by streams: many problems later, memory is what it was."""
    call = Call.of(named("k4s2p1"))
    with no_collection():
        before = statistic("current")
        for height in range(1, 200):
            call.replace(x=call.x[:1, :, :1].expand(1, -1, height, -1)).run()
        torch.cuda.synchronize()
        assert statistic("current") == before

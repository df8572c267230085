"""PyTorch's own test data: OpInfo samples of `nn.functional.conv_transpose2d`, ModuleInfo of `nn.ConvTranspose2d`.

tests/cpu and tests/gpu run the checks, each on its device. The data are in torch.testing._internal, which
belongs to PyTorch's tests and may change with any release.
"""

from __future__ import annotations

import contextlib
import sys
import types
import unittest
import unittest.mock

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

from convt_ext import ConvTranspose2d
from convt_ext import conv_transpose2d as ours

with contextlib.suppress(ModuleNotFoundError):
    import expecttest  # noqa: F401
if "expecttest" not in sys.modules:
    # The base class of PyTorch's own test cases; none of these runs here.
    stand_in = types.ModuleType("expecttest")
    stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
    sys.modules["expecttest"] = stand_in

# On import PyTorch's test data forbid the process to set a switch such as `cudnn.allow_tf32`; other tests want to.
with unittest.mock.patch("torch.backends.disable_global_flags"):
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.common_modules import module_db

(OP,) = [info for info in op_db if info.name == "nn.functional.conv_transpose2d"]
(MODULE,) = [info for info in module_db if info.module_cls is nn.ConvTranspose2d]

NUM_SAMPLES = 12  # in torch 2.10 to 2.15; a test fails if a release has more


def samples(device: str, dtype: torch.dtype, requires_grad: bool = False) -> list[tuple[tuple, dict]]:
    """Arguments of every sample, as (positional, by name)."""
    found = []
    torch.manual_seed(0)
    for sample in OP.sample_inputs(device, dtype, requires_grad=requires_grad):
        found.append(((sample.input, *sample.args), sample.kwargs))
    return found


def operands_of(arguments: tuple) -> list[torch.Tensor]:
    return [argument for argument in arguments if isinstance(argument, torch.Tensor)]


def assert_same(mine: torch.Tensor, theirs: torch.Tensor, tolerance: float) -> None:
    """Checks equality up to rounding, relative to the whole tensor, because sums of samples cancel."""
    assert mine.dtype is theirs.dtype
    assert mine.shape == theirs.shape
    assert (mine - theirs).norm() <= tolerance * theirs.norm(), (mine, theirs)


def assert_same_strides(mine: torch.Tensor, theirs: torch.Tensor) -> None:
    """Checks strides of axes longer than 1; other strides have no meaning."""
    long = [axis for axis, size in enumerate(mine.shape) if size > 1]
    assert [mine.stride(axis) for axis in long] == [theirs.stride(axis) for axis in long], (mine.shape, mine.stride())


def check_forward(device: str, dtype: torch.dtype, tolerance: float) -> None:
    for arguments, named in samples(device, dtype):
        mine, theirs = ours(*arguments, **named), F.conv_transpose2d(*arguments, **named)
        assert_same(mine, theirs, tolerance)
        assert_same_strides(mine, theirs)
        negated = (torch._neg_view(arguments[0]), *arguments[1:])
        assert_same(ours(*negated, **named), F.conv_transpose2d(*negated, **named), tolerance)


def check_gradients(device: str, dtype: torch.dtype, tolerance: float) -> None:
    for arguments, named in samples(device, dtype, requires_grad=True):
        operands = operands_of(arguments)
        grads = []
        for call in (ours, F.conv_transpose2d):
            result = call(*arguments, **named)
            grads.append(torch.autograd.grad(result, operands, torch.ones_like(result)))
        for mine, theirs in zip(*grads, strict=True):
            assert_same(mine, theirs, tolerance)
            assert_same_strides(mine, theirs)


def check_gradcheck(device: str) -> None:
    """First and second derivatives of every sample, batched gradients and forward mode, if OpInfo has them."""
    for arguments, named in samples(device, torch.float64, requires_grad=True):
        operands = operands_of(arguments)

        def call(*tensors, arguments=arguments, named=named):
            given = iter(tensors)
            return ours(*(next(given) if isinstance(old, torch.Tensor) else old for old in arguments), **named)

        assert gradcheck(
            call, operands, fast_mode=True, check_batched_grad=OP.check_batched_grad,
            check_forward_ad=OP.supports_forward_ad, check_undefined_grad=True,
        )  # fmt: skip
        assert gradgradcheck(call, operands, fast_mode=True, check_batched_grad=OP.check_batched_gradgrad)


def check_memory_formats(device: str, dtype: torch.dtype) -> None:
    for arguments, named in samples(device, dtype, requires_grad=True):
        if arguments[0].dim() != 4:
            continue
        formatted = tuple(
            old.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
            if isinstance(old, torch.Tensor) and old.dim() == 4 else old
            for old in arguments
        )  # fmt: skip
        found = []
        for call in (ours, F.conv_transpose2d):
            result = call(*formatted, **named)
            found.append((result, *torch.autograd.grad(result.sum(), operands_of(formatted))))
        for mine, theirs in zip(*found, strict=True):
            assert_same_strides(mine, theirs)


def check_modules(device: str, dtype: torch.dtype, tolerance: float) -> int:
    """Compares forward and gradients with PyTorch's module with equal weights, for every input of ModuleInfo."""
    inputs = list(MODULE.module_inputs_func(MODULE, device=device, dtype=dtype, requires_grad=True, training=True))
    for made in inputs:
        arguments, named = made.constructor_input.args, made.constructor_input.kwargs
        theirs = nn.ConvTranspose2d(*arguments, **named, device=device, dtype=dtype)
        mine = ConvTranspose2d(*arguments, **named, device=device, dtype=dtype)
        mine.load_state_dict(theirs.state_dict())
        results = []
        for layer in (mine, theirs):
            result = layer(*made.forward_input.args, **made.forward_input.kwargs)
            wanted = [made.forward_input.args[0], *layer.parameters()]
            results.append((result, *torch.autograd.grad(result.sum(), wanted)))
        for one, other in zip(*results, strict=True):
            assert_same(one, other, tolerance)
            assert_same_strides(one, other)
    return len(inputs)

"""PyTorch's own test data: OpInfo samples of `conv_transpose1d`, 2d and 3d, ModuleInfo of their modules.

tests/cpu and tests/gpu run the checks, each on its device. The data are in torch.testing._internal, which
belongs to PyTorch's tests and may change with any release.
"""

from __future__ import annotations

import contextlib
import sys
import types
import unittest
import unittest.mock
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

import convt_ext

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

DIMS = (1, 2, 3)
OPS = {dims: next(info for info in op_db if info.name == f"nn.functional.conv_transpose{dims}d") for dims in DIMS}
MODULES = {
    dims: next(info for info in module_db if info.module_cls is getattr(nn, f"ConvTranspose{dims}d")) for dims in DIMS
}

NUM_SAMPLES = {1: 10, 2: 12, 3: 10}  # in torch 2.10 to 2.15; a test fails if a release has fewer


def ours(dims: int) -> Callable[..., torch.Tensor]:
    return getattr(convt_ext, f"conv_transpose{dims}d")


def theirs(dims: int) -> Callable[..., torch.Tensor]:
    return getattr(F, f"conv_transpose{dims}d")


def samples(dims: int, device: str, dtype: torch.dtype, requires_grad: bool = False) -> list[tuple[tuple, dict]]:
    """Arguments of every sample, as (positional, by name)."""
    found = []
    torch.manual_seed(0)
    for sample in OPS[dims].sample_inputs(device, dtype, requires_grad=requires_grad):
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


def check_forward(dims: int, device: str, dtype: torch.dtype, tolerance: float) -> None:
    for arguments, named in samples(dims, device, dtype):
        found, expected = ours(dims)(*arguments, **named), theirs(dims)(*arguments, **named)
        assert_same(found, expected, tolerance)
        assert_same_strides(found, expected)
        negated = (torch._neg_view(arguments[0]), *arguments[1:])
        assert_same(ours(dims)(*negated, **named), theirs(dims)(*negated, **named), tolerance)


def check_gradients(dims: int, device: str, dtype: torch.dtype, tolerance: float) -> None:
    for arguments, named in samples(dims, device, dtype, requires_grad=True):
        operands = operands_of(arguments)
        grads = []
        for call in (ours(dims), theirs(dims)):
            result = call(*arguments, **named)
            grads.append(torch.autograd.grad(result, operands, torch.ones_like(result)))
        for found, expected in zip(*grads, strict=True):
            assert_same(found, expected, tolerance)
            assert_same_strides(found, expected)


def check_gradcheck(dims: int, device: str) -> None:
    """First and second derivatives of every sample, batched gradients and forward mode, if OpInfo has them."""
    for arguments, named in samples(dims, device, torch.float64, requires_grad=True):
        operands = operands_of(arguments)

        def call(*tensors, arguments=arguments, named=named):
            given = iter(tensors)
            return ours(dims)(*(next(given) if isinstance(old, torch.Tensor) else old for old in arguments), **named)

        assert gradcheck(
            call, operands, fast_mode=True, check_batched_grad=OPS[dims].check_batched_grad,
            check_forward_ad=OPS[dims].supports_forward_ad, check_undefined_grad=True,
        )  # fmt: skip
        assert gradgradcheck(call, operands, fast_mode=True, check_batched_grad=OPS[dims].check_batched_gradgrad)


def check_memory_formats(dims: int, device: str, dtype: torch.dtype) -> None:
    for arguments, named in samples(dims, device, dtype, requires_grad=True):
        if arguments[0].dim() != dims + 2:
            continue
        memory_format = torch.channels_last_3d if dims == 3 else torch.channels_last
        formatted = tuple(
            old.detach().contiguous(memory_format=memory_format).requires_grad_()
            if isinstance(old, torch.Tensor) and old.dim() == dims + 2 else old
            for old in arguments
        )  # fmt: skip
        found = []
        for call in (ours(dims), theirs(dims)):
            result = call(*formatted, **named)
            found.append((result, *torch.autograd.grad(result.sum(), operands_of(formatted))))
        for one, other in zip(*found, strict=True):
            assert_same_strides(one, other)


def check_modules(dims: int, device: str, dtype: torch.dtype, tolerance: float) -> int:
    """Compares forward and gradients with PyTorch's module with equal weights, for every input of ModuleInfo."""
    info, name = MODULES[dims], f"ConvTranspose{dims}d"
    inputs = list(info.module_inputs_func(info, device=device, dtype=dtype, requires_grad=True, training=True))
    for made in inputs:
        arguments, named = made.constructor_input.args, made.constructor_input.kwargs
        layers = [getattr(one, name)(*arguments, **named, device=device, dtype=dtype) for one in (convt_ext, nn)]
        layers[0].load_state_dict(layers[1].state_dict())
        results = []
        for layer in layers:
            result = layer(*made.forward_input.args, **made.forward_input.kwargs)
            wanted = [made.forward_input.args[0], *layer.parameters()]
            results.append((result, *torch.autograd.grad(result.sum(), wanted)))
        for one, other in zip(*results, strict=True):
            assert_same(one, other, tolerance)
            assert_same_strides(one, other)
    return len(inputs)

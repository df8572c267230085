"""The implementation that ran, from the ops in PyTorch's dispatcher; and PyTorch's switches for a test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from convt_ext.dispatch import ops, routing
from convt_ext.tuning import benchmark, choices


class SeenOps(TorchDispatchMode):
    """Collects the ops that run inside in `names`, also those of a backward pass (its threads inherit the mode).

    Internal ops of eager calls are listed under the names of the public ones: "convt_ext.forward.default" and so on.
    """

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = str(func)
        if name == "convt_ext._gradients.default":
            bits = args[4] & ~(ops.remembered(args[3])[15] >> 1)  # without what PyTorch computes for it
            names = [one for bit, one in ((1, "grad_input"), (2, "grad_weight"), (4, "grad_bias")) if bits & bit]
            self.names += [f"convt_ext.{one}.default" for one in names]
        elif name == "convt_ext._forward.default":
            by_torch = ops.remembered(args[3])[15] & 1
            self.names.append("aten.convolution.default" if by_torch else "convt_ext.forward.default")
        else:
            self.names.append(name)
        return func(*args, **(kwargs or {}))


def served_by(call: Callable[..., Any], *args: Any, **named: Any) -> str:
    """ "convt_ext" when the call runs our op, else "torch"."""
    with SeenOps() as seen:
        call(*args, **named)
    ours = [name for name in seen.names if name.startswith("convt_ext.")]
    assert ours in ([], ["convt_ext.forward.default"]), seen.names
    return "convt_ext" if ours else "torch"


@contextlib.contextmanager
def switch(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Sets one of PyTorch's switches and restores it: `switch(torch.backends.cudnn, "enabled", False)`."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def tf32(on: bool) -> contextlib.AbstractContextManager[None]:
    """PyTorch's TF32 switch for convolutions."""
    return switch(torch.backends.cudnn.conv, "fp32_precision", "tf32" if on else "ieee")


def allow_tf32(on: bool) -> contextlib.AbstractContextManager[None]:
    """The older switch: torch.export reads it, which is an error once the newer one has been set to "ieee"."""
    return switch(torch.backends.cudnn, "allow_tf32", on)


def cudnn(enabled: bool) -> contextlib.AbstractContextManager[None]:
    """PyTorch's switch of cuDNN as a whole."""
    return switch(torch.backends.cudnn, "enabled", enabled)


@contextlib.contextmanager
def benchmarks_in_first_calls() -> Iterator[None]:
    """`torch.backends.cudnn.benchmark`, with nothing measured yet and benchmarks that are worth their time at once."""
    choices.forget_measured()
    routing.forget()
    with switch(benchmark, "_WORTH", 0), switch(torch.backends.cudnn, "benchmark", True):
        yield
    choices.forget_measured()
    routing.forget()


@contextlib.contextmanager
def cuda_autocast(dtype: torch.dtype) -> Iterator[None]:
    """`torch.autocast("cuda")` for fake GPU tensors; PyTorch's own disables itself without CUDA."""
    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", dtype)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", before[0])
        torch.set_autocast_dtype("cuda", before[1])


def on_kernels(precision: str | None) -> dict[str, str]:
    """Returns the keywords of calls that kernels of convt_ext run in that precision; without one, no keywords."""
    return {} if precision is None else {"precision": precision, "backend": "convt_ext"}

"""Fuses transposed convolutions with their followers in `nn.Sequential`.

Called by convert.py. Changes only the class of the Sequential: its modules and their names stay, each call checks the
modules again, and a slice or a modified Sequential computes the same as PyTorch's.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..modules import ConvTransposeMixin
from . import chain


class FusedSequential(nn.Sequential):
    """`torch.nn.Sequential` in which transposed convolutions run in one kernel with the modules that follow them."""

    # The original class, for a class made by `_fused_class`.
    _plain: type | None = None

    def forward(self, input: Tensor) -> Tensor:
        """Runs the modules, one after the other; see `convt_ext.convert`."""
        if torch.jit.is_scripting():
            for module in self:
                input = module(input)
            return input
        else:
            return self._run(input)

    @torch.jit.unused
    def _run(self, input: Tensor) -> Tensor:
        for module, followers in _segments(self):
            input = module(input) if not followers else chain.run(module, followers, input)
        return input

    def __reduce_ex__(self, protocol: Any) -> Any:
        reduced = super().__reduce_ex__(protocol)
        return reduced if self._plain is None else (_empty, (self._plain,), *reduced[2:])


def _segments(sequential: nn.Sequential) -> Iterator[tuple[nn.Module, tuple[nn.Module, ...]]]:
    """Yields each module to call; a convolution comes with all modules up to the next convolution."""
    modules = tuple(sequential)
    start = 0
    while start < len(modules):
        end = start + 1
        if isinstance(modules[start], ConvTransposeMixin):
            while end < len(modules) and not isinstance(modules[end], ConvTransposeMixin):
                end += 1
        yield modules[start], modules[start + 1 : end]
        start = end


@functools.cache
def _fused_class(plain: Any) -> Any:
    """Returns the fused class for a subclass of nn.Sequential that inherits its forward."""
    return type(f"Fused{plain.__name__}", (FusedSequential, plain), {"_plain": plain, "__module__": __name__})


def _empty(plain: type) -> nn.Module:
    """Returns an object without state, for pickle and copy."""
    cls = _fused_class(plain)
    return cls.__new__(cls)


def fuse(sequential: nn.Sequential, name: str) -> tuple[list[str], list[str]]:
    """Changes the class of one Sequential, in place, if it contains something to fuse; returns as `graph.fuse`."""
    done, left = [], []
    names = [f"{name}.{child}" if name else child for child in sequential._modules]
    position = 0
    for module, followers in _segments(sequential):
        if isinstance(module, ConvTransposeMixin):
            taken, reason = _of_chain(module, followers)
            label = names[position]
            behind = names[position + 1 :]
            if taken:
                done.append(f"{label} with {', '.join(behind[:taken])}")
            if reason is not None:
                left.append(f"{behind[taken]} after {label} ({reason})")
        position += 1 + len(followers)
    cls: Any = type(sequential)
    if not done or issubclass(cls, FusedSequential):
        return done, left
    if cls.forward is not nn.Sequential.forward or "forward" in vars(sequential):
        return [], [*left, *(f"{text} (the Sequential has its own forward)" for text in done)]
    sequential.__class__ = FusedSequential if cls is nn.Sequential else _fused_class(cls)
    return done, left


def _of_chain(conv: ConvTransposeMixin, followers: tuple[nn.Module, ...]) -> tuple[int, str | None]:
    """Returns the number of followers to fuse in eval mode, and why the next candidate is not fused, if any."""
    is_first = True
    for position, follower in enumerate(followers):
        reason = chain.obstacle(follower, is_first, len(conv.stride))
        if reason is not None:
            return position, None if reason == chain.OTHER else reason
        if not chain.is_bare(conv):
            return 0, f"the convolution: {chain.HOOKS}"
        is_first = is_first and chain.gives_back_its_input(follower)
    return len(followers), None

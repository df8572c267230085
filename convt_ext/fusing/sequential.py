"""`nn.Sequential` whose transposed convolutions take what follows them.

Called by convert.py. Works by the class of the Sequential alone: it holds the same modules under the same names, each
call looks at what they are by then, and a slice or a changed Sequential computes what PyTorch's would.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..modules import ConvTranspose2d
from . import chain


class FusedSequential(nn.Sequential):
    """`torch.nn.Sequential` in which transposed convolutions run in one kernel with the modules that follow them."""

    # The class that a class of `_fused_class` was made of.
    _plain: type | None = None

    def forward(self, input: Tensor) -> Tensor:
        """The modules, one after the other; see `convt_ext.convert`."""
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
    """Each module that is to be called, a convolution with all that follows it until the next one."""
    modules = tuple(sequential)
    start = 0
    while start < len(modules):
        end = start + 1
        if isinstance(modules[start], ConvTranspose2d):
            while end < len(modules) and not isinstance(modules[end], ConvTranspose2d):
                end += 1
        yield modules[start], modules[start + 1 : end]
        start = end


@functools.cache
def _fused_class(plain: Any) -> Any:
    """What a subclass of nn.Sequential with its forward becomes."""
    return type(f"Fused{plain.__name__}", (FusedSequential, plain), {"_plain": plain, "__module__": __name__})


def _empty(plain: type) -> nn.Module:
    """For pickle and copy: an object without its state."""
    cls = _fused_class(plain)
    return cls.__new__(cls)


def fuse(sequential: nn.Sequential, name: str) -> tuple[list[str], list[str]]:
    """Change the class of one Sequential, in place, where it has something to fuse.

    Returns:
        What a convolution takes, and what was left though it looks like that; each a text.
    """
    done, left = [], []
    names = [f"{name}.{child}" if name else child for child in sequential._modules]
    position = 0
    for module, followers in _segments(sequential):
        if isinstance(module, ConvTranspose2d):
            taken, reason = _of_chain(module, followers)
            label = names[position]
            behind = names[position + 1 :]
            if taken:
                done.append(f"{label} with {', '.join(behind[:taken])}")
            if reason is not None:
                left.append(f"{behind[taken]} behind {label} ({reason})")
        position += 1 + len(followers)
    cls: Any = type(sequential)
    if not done or issubclass(cls, FusedSequential):
        return done, left
    if cls.forward is not nn.Sequential.forward or "forward" in vars(sequential):
        return [], [*left, *(f"{text} (the Sequential has its own forward)" for text in done)]
    sequential.__class__ = FusedSequential if cls is nn.Sequential else _fused_class(cls)
    return done, left


def _of_chain(conv: ConvTranspose2d, followers: tuple[nn.Module, ...]) -> tuple[int, str | None]:
    """How many followers conv takes in eval mode, and why not the next one if that looks like one."""
    is_first = True
    for position, follower in enumerate(followers):
        reason = chain.obstacle(follower, is_first)
        if reason is not None:
            return position, None if reason == chain.OTHER else reason
        if not chain.is_bare(conv):
            return 0, f"the convolution: {chain.HOOKS}"
        is_first = is_first and chain.gives_back_its_input(follower)
    return len(followers), None

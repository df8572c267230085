"""Serves every transposed convolution that Python code of the process calls, without a change of its models.

`torch.conv_transpose2d` and `torch.nn.functional.conv_transpose2d` are one builtin function. `enable` puts one function
of ours in both places, which calls PyTorch's where convt_ext does not serve. What traces, scripts or pickles a program
finds PyTorch's function, or is told that ours is its equal.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import logging
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from . import _torch, functional

_LOG = logging.getLogger("convt_ext")

# Who asked for it and has not taken it back. Guards the names in PyTorch's modules.
_count, _lock = 0, threading.RLock()

_NAME = "conv_transpose2d"
_PLACES = (torch, F)


_stand_in = functional.stand_in
_stand_in.__name__ = _stand_in.__qualname__ = _NAME  # tools find functions by module and name
_stand_in.__module__ = F.__name__
_stand_in.__doc__ = _torch.conv_transpose2d.__doc__


def enable() -> None:
    """Has every transposed convolution served that Python code of this process calls from now on.

    Models stay as they are: their types, `state_dict` and `repr` are PyTorch's. `torch.nn.ConvTranspose2d` and code of
    any library call `torch.nn.functional.conv_transpose2d`, whose results, gradients, errors and determinism become
    those of `convt_ext.conv_transpose2d` without a precision.

    Holds for all threads, until `disable` has been called as often. A second call changes nothing else. Spawned
    processes call it themselves.

    Not reached: names that were imported before (``from torch.nn.functional import conv_transpose2d``), calls from C++,
    loaded TorchScript and exported programs. What a tool has put in the function's place before is left alone, with a
    warning in the log of "convt_ext".

    Raises:
        Nothing; where our kernels cannot run, calls are PyTorch's after one warning.

    Example:
        >>> import torch, convt_ext
        >>> convt_ext.enable()
        >>> torch.nn.ConvTranspose2d(8, 4, 4, stride=2, padding=1)(torch.randn(1, 8, 5, 5)).shape
        torch.Size([1, 4, 10, 10])
        >>> convt_ext.disable()
    """
    global _count
    # torch.jit.script takes our function for the builtin one. The first time this makes its table, which has PyTorch's
    # own too. It may import modules, which must not wait for a thread that waits for the lock.
    _torch.register_builtin_of_torchscript(_stand_in, f"aten::{_NAME}")
    with _lock:
        if _count == 0:
            _install()
        _count += 1


def disable() -> None:
    """Takes back one call of `enable`; the last one restores PyTorch's function.

    A tool that wrapped our function meanwhile keeps its wrapper, which calls PyTorch's function from then on.

    Raises:
        RuntimeError: nothing is enabled.

    Example:
        >>> import torch, convt_ext
        >>> convt_ext.enable()
        >>> convt_ext.disable()
        >>> torch.nn.functional.conv_transpose2d is torch.conv_transpose2d
        True
    """
    global _count
    with _lock:
        if _count == 0:
            raise RuntimeError("convt_ext.disable() was called more often than convt_ext.enable()")
        _count -= 1
        if _count == 0:
            functional.stand_in_serves = False
            _put(_torch.conv_transpose2d, _stand_in)


@contextlib.contextmanager
def enabled() -> Iterator[None]:
    """`enable` for a while, in all threads.

    Raises:
        Nothing of its own.

    Example:
        >>> import torch, convt_ext
        >>> with convt_ext.enabled():
        ...     y = torch.nn.functional.conv_transpose2d(torch.randn(1, 8, 5, 5), torch.randn(8, 4, 4, 4))
    """
    enable()
    try:
        yield
    finally:
        disable()


def _install() -> None:
    if "torch._dynamo" not in sys.modules and not any(isinstance(one, _HidesFromDynamo) for one in sys.meta_path):
        sys.meta_path.insert(0, _HidesFromDynamo())
    functional.stand_in_serves = True
    _put(_stand_in, _torch.conv_transpose2d)
    for place in _PLACES:
        found = getattr(place, _NAME)
        if found is not _stand_in:
            _LOG.warning("convt_ext.enable() leaves %s.%s alone, which is %r", place.__name__, _NAME, found)


def _put(function: Any, other: Any) -> None:
    """Puts a function in the other's place, where that is."""
    for place in _PLACES:
        if getattr(place, _NAME) is other:
            setattr(place, _NAME, function)


class _HidesFromDynamo:
    """Has the import of torch._dynamo find PyTorch's function: it makes lists of functions that it need not follow."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        if name != "torch._dynamo":
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            with _lock:
                _put(_torch.conv_transpose2d, _stand_in)
                try:
                    execute(module)
                finally:
                    if _count > 0:
                        _put(_stand_in, _torch.conv_transpose2d)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

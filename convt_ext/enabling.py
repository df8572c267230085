"""Replaces the operator for all Python code of the process, without a change of its models.

`torch.conv_transpose2d` and `torch.nn.functional.conv_transpose2d` are one builtin function. `enable` replaces both
names with one function, which falls back to PyTorch's; likewise in one and three dimensions. Tracing, scripting and
pickling find PyTorch's functions, or treat the replacements as equal to them.
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

from . import functional
from .environment import _torch

_LOG = logging.getLogger("convt_ext")

# The number of `enable` calls without a `disable`; the lock also guards the names in PyTorch's modules.
_count, _lock = 0, threading.RLock()

_PLACES = (torch, F)

# PyTorch's functions, and those that replace them.
_REPLACED = [(_torch.CONV_TRANSPOSE[dims], stand_in) for dims, stand_in in functional.STAND_INS.items()]
for _builtin, _function in _REPLACED:
    _function.__name__ = _function.__qualname__ = _builtin.__name__  # tools find functions by module and name
    _function.__module__ = F.__name__
    _function.__doc__ = _builtin.__doc__


def enable() -> None:
    """Runs every transposed convolution that Python code of this process calls through convt_ext.

    Models do not change: their types, `state_dict` and `repr` are PyTorch's. `torch.nn.ConvTranspose2d` and libraries
    call `torch.nn.functional.conv_transpose2d`, which now has the results, gradients, errors and determinism of
    `convt_ext.conv_transpose2d` without precision and backend; likewise `conv_transpose1d` and `conv_transpose3d`.

    Applies to all threads, until `disable` has been called as often. Spawned processes must call it themselves.

    Not affected: names that were imported earlier (``from torch.nn.functional import conv_transpose2d``), calls from
    C++, loaded TorchScript and exported programs. If a tool has already replaced the function, its replacement stays,
    and the logger "convt_ext" records a warning.

    Raises:
        Nothing; if the kernels cannot run, calls run PyTorch's operator after one warning.

    Example:
        >>> import torch, convt_ext
        >>> convt_ext.enable()
        >>> torch.nn.ConvTranspose2d(8, 4, 4, stride=2, padding=1)(torch.randn(1, 8, 5, 5)).shape
        torch.Size([1, 4, 10, 10])
        >>> convt_ext.disable()
    """
    global _count
    # Makes torch.jit.script treat the replacement as the builtin. The first call builds TorchScript's table of builtins
    # and may import modules, so it runs outside the lock: the lock's owner may wait for an import.
    for builtin, function in _REPLACED:
        _torch.register_builtin_of_torchscript(function, f"aten::{builtin.__name__}")
    with _lock:
        if _count == 0:
            _install()
        _count += 1


def disable() -> None:
    """Undoes one call of `enable`; the last one restores PyTorch's function.

    A tool that wrapped the replacement meanwhile keeps its wrapper, which then calls PyTorch's function.

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
            _put(ours=False)


@contextlib.contextmanager
def enabled() -> Iterator[None]:
    """Calls `enable` on entry and `disable` on exit, for all threads. Context manager.

    Raises:
        Nothing.

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
    _put(ours=True)
    for builtin, function in _REPLACED:
        name = builtin.__name__
        for place in _PLACES:
            found = getattr(place, name)
            if found is not function:
                _LOG.warning("convt_ext.enable() does not replace %s.%s, which is %r", place.__name__, name, found)


def _put(ours: bool) -> None:
    """Replaces PyTorch's functions where a name refers to them, or restores them where it refers to a replacement."""
    for pair in _REPLACED:
        before, after = pair if ours else reversed(pair)
        for place in _PLACES:
            if getattr(place, before.__name__) is before:
                setattr(place, before.__name__, after)


class _HidesFromDynamo:
    """Restores PyTorch's functions for the import of torch._dynamo, which lists functions that it does not trace."""

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
                _put(ours=False)
                try:
                    execute(module)
                finally:
                    if _count > 0:
                        _put(ours=True)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

"""Tools (profilers, quantizers) that replace PyTorch's functions in torch.nn.functional: which function to call.

Called by functional.py. `dims` is 1, 2 or 3.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.compiler import is_compiling

from ..compile import tracing
from ..environment import _torch
from . import scopes

_LOG = logging.getLogger("convt_ext")

# PyTorch's operators, even if a tool has replaced their names.
BUILTINS: dict[int, Callable[..., Tensor]] = _torch.CONV_TRANSPOSE

# The functions of functional.py that may replace them.
OURS: tuple[Callable[..., Tensor], ...] = ()


class _InsideOfTool(threading.local):
    """Whether this thread runs a tool's replacement of PyTorch's function, which may call functional.py."""

    active = False


_inside_of_tool = _InsideOfTool()


def current(dims: int) -> Callable[..., Tensor]:
    """Returns the function of torch.nn.functional now: PyTorch's, convt_ext's, or a tool's."""
    if dims == 2:
        return F.conv_transpose2d
    return F.conv_transpose1d if dims == 1 else F.conv_transpose3d


def _is_of_a_tool(function: Any) -> bool:
    return function not in (*BUILTINS.values(), *OURS)


def is_for_tools(dims: int, requested: str | None) -> bool:
    """Returns whether to call a tool's replacement of PyTorch's function: only without a precision
    and a backend, which the replacement does not accept."""
    if _inside_of_tool.active or not _is_of_a_tool(current(dims)):
        return False
    in_force = scopes.traced_request() if is_compiling() else scopes.now().requested
    return requested is None and in_force is None


def torchs_or_a_tools(dims: int, *arguments: Any) -> Tensor:
    """Calls PyTorch's operator, or a tool's replacement of it."""
    function = current(dims)
    if not _is_of_a_tool(function) or _inside_of_tool.active:
        return BUILTINS[dims](*arguments)
    _log_tool_once(dims)
    _inside_of_tool.active = True
    try:
        return function(*arguments)
    finally:
        _inside_of_tool.active = False


_logged = False


@tracing.constant
def _log_tool_once(dims: int) -> None:
    global _logged
    if not _logged:
        _logged = True
        function = current(dims)
        name = f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', repr(function))}"
        _LOG.warning(
            "%s replaces torch.nn.functional.conv_transpose%dd: convt_ext calls it instead of its kernels, unless a "
            "precision or a backend is set",
            name,
            dims,
        )

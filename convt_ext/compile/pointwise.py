"""Converts nodes of Dynamo's graphs of torch functions to steps of an epilogue.

Called by fusion.py, which checks that a step may move. Must not change the graph before the steps are made.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import Node, Proxy
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ..environment._torch import FakeTensor
from ..epilogue import functions
from ..epilogue.steps import ADD, LEAKY_RELU, MULTIPLY, Step, steps_of_call

# Steps, each with the node of its tensor.
Pieces = Sequence[tuple[Step, Node | None]]

# Targets that functions.py does not list: the function, and whether it works in place.
_MORE: dict[Any, tuple[Any, bool]] = {"prelu": (torch.prelu, False)} | {
    target: (getattr(torch, name), in_place)
    for name in ("clamp_min", "clamp_max")
    for target, in_place in ((name, False), (f"{name}_", True), (getattr(torch, f"{name}_"), True))
}


def value_of(node: Any) -> FakeTensor | None:
    """Returns the fake tensor of a node, which has sizes, strides, dtype and device."""
    value = node.meta.get("example_value") if isinstance(node, Node) else None
    return value if isinstance(value, FakeTensor) and value.layout is torch.strided else None


def steps_of(node: Node, result: Node, rounds_each: bool) -> Callable[[], Pieces] | None:
    """Returns a function that makes the node's steps on `result`, one of its operands; None if no kernel supports it.

    If `rounds_each`, each step rounds to the result's dtype, so one operation must not become several.
    """
    call = _call_of(node, result)
    like = value_of(result)
    if call is None or like is None:
        return None
    function, arguments, named = call
    if function is F.batch_norm:
        return _batch_norm(like, rounds_each, **named)
    if function in (torch.clamp_min, torch.clamp_max):
        if arguments:
            named = {"min" if function is torch.clamp_min else "max": arguments[0]}
            arguments = ()
        function = torch.clamp
    if function is torch.prelu:
        return _prelu(like, *arguments, **named)
    alpha = named.pop("alpha", 1)
    if function is torch.rsub and alpha != 1:  # alpha multiplies the result y
        return None
    if named.get("rounding_mode", 0) is None:
        del named["rounding_mode"]
    (operand,) = arguments if len(arguments) == 1 else (named.pop("other", None),)
    if not isinstance(operand, Node):
        if alpha != 1:
            if not all(type(one) in (int, float) for one in (operand, alpha)):
                return None
            arguments, named = (operand * alpha,), {}
        elif operand is not None and not arguments:
            arguments = (operand,)
        of_numbers = steps_of_call(function, *arguments, **named)
        return None if of_numbers is None else lambda: [(step, None) for step in of_numbers]
    value = value_of(operand)
    if value is None or named or not _fits(value, like):
        return None
    steps = steps_of_call(function, value)
    if steps is None:
        return None
    if alpha == 1:
        return lambda: [(step, operand if step.tensor is value else None) for step in steps]
    # The cost of a pass over the value must be negligible compared with a pass over the result.
    if type(alpha) not in (int, float) or not statically_known_true(value.numel() <= like.shape[1]):
        return None
    return lambda: [(step, (Proxy(operand) * alpha).node if step.tensor is value else None) for step in steps]


def _call_of(node: Node, result: Node) -> tuple[Any, Sequence[Any], dict[str, Any]] | None:
    """Returns the function that the node calls on the result, and its further arguments."""
    if node.op not in ("call_function", "call_method"):
        return None
    function, in_place = _MORE.get(node.target, (node.target, False))
    spelling = functions.spelling_of(node.target)
    if spelling is not None:
        function, in_place = spelling.entry, spelling.writes
    arguments, named = list(node.args), dict(node.kwargs)
    if isinstance(function, FunctionType):
        named = _named_arguments(function, arguments, named)
        arguments = [named.pop("input", None)]
        named.pop("inplace", None)
    if len(arguments) == 2 and arguments[1] is result and not in_place and not named:
        arguments.reverse()
        function = functions.REVERSED.get(function)
    if not arguments or arguments[0] is not result or function is None:
        return None
    others = (*arguments[1:], *named.values())
    return None if any(one is result for one in others) else (function, arguments[1:], named)


def _named_arguments(function: FunctionType, arguments: Sequence[Any], named: dict[str, Any]) -> dict[str, Any]:
    try:
        return dict(inspect.signature(function).bind(*arguments, **named).arguments)
    except (TypeError, ValueError):
        return {}


def _prelu(like: FakeTensor, weight: Any) -> Callable[[], Pieces] | None:
    value = value_of(weight)
    if value is None or not _is_of(value, like):
        return None
    step = Step(LEAKY_RELU)
    if statically_known_true(value.numel() == 1):
        return lambda: [(step, Proxy(weight).view(1).node)]
    return lambda: [(step, Proxy(weight).view(-1, 1, 1).node)]


def _batch_norm(
    like: FakeTensor,
    rounds_each: bool,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: Any = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Callable[[], Pieces] | None:
    """Multiplies by a factor of each channel and adds an addend, both computed at least in float32."""
    if rounds_each and like.dtype.itemsize < 4:
        return None
    operands = [one for one in (running_mean, running_var, weight, bias) if one is not None]
    values = [value_of(one) for one in operands]
    if training is not False or running_mean is None or running_var is None or type(eps) is not float:
        return None
    if any(one is None or one.device != like.device or not one.dtype.is_floating_point for one in values):
        return None
    wide = torch.promote_types(like.dtype, torch.float32)

    def pieces() -> Pieces:
        mean: Any = Proxy(running_mean).to(wide)
        var: Any = Proxy(running_var).to(wide)
        factor = (var + eps).rsqrt()
        if weight is not None:
            factor = factor * Proxy(weight).to(wide)
        addend = -mean * factor
        if bias is not None:
            addend = addend + Proxy(bias).to(wide)
        both = (MULTIPLY, factor), (ADD, addend)
        return [(Step(operation), value.to(like.dtype).view(-1, 1, 1).node) for operation, value in both]

    return pieces


def _is_of(value: Tensor, like: Tensor) -> bool:
    return value.dtype is like.dtype and value.device == like.device


def _fits(value: Tensor, like: Tensor) -> bool:
    """Returns whether the value broadcasts to the result without changing its sizes or dtype."""
    if value.dim() > like.dim() or not _is_of(value, like):
        return False
    sizes = zip(reversed(value.shape), reversed(like.shape), strict=False)
    return all(statically_known_true(size == 1) or statically_known_true(size == whole) for size, whole in sizes)

"""The functions and methods of PyTorch that may follow a convolution in a graph, and the epilogue entry of each.

graph.py puts their names into the nodes that it makes, chain.py runs them. A name identifies one spelling, because
`y += r`, `y.add(r)` and `torch.add(y, r)` differ if r is not a plain tensor: a call that is not fused runs exactly as
the graph made it. compile/pointwise.py looks up the targets of Dynamo's graphs here.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# The supported functions by their names in PyTorch, and the names of their further arguments.
_PARAMETERS: dict[str, tuple[str, ...]] = {
    "add": ("other",), "sub": ("other",), "mul": ("other",), "div": ("other",), "neg": (), "clamp": ("min", "max"),
    "relu": ("inplace",), "relu6": ("inplace",), "leaky_relu": ("negative_slope", "inplace"), "silu": ("inplace",),
    "tanh": (), "sigmoid": (), "hardtanh": ("min_val", "max_val", "inplace"), "hardswish": ("inplace",),
    "mish": ("inplace",), "softplus": ("beta", "threshold"), "gelu": (),
}  # fmt: skip
_SPELLINGS = {name: name for name in _PARAMETERS} | {
    "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div", "negative": "neg", "clip": "clamp",
}  # fmt: skip
_OPERATORS = {
    "add": "add", "iadd": "add", "sub": "sub", "isub": "sub", "mul": "mul", "imul": "mul", "truediv": "div",
    "itruediv": "div", "neg": "neg",
}  # fmt: skip
# The function g with g(y, t) = f(t, y), for calls in which the result y is the second argument.
REVERSED: dict[Any, Any] = {
    torch.add: torch.add, torch.mul: torch.mul, torch.sub: torch.rsub, torch.rsub: torch.sub,
}  # fmt: skip
_GELU_TANH = nn.GELU("tanh")


class Spelling(NamedTuple):
    """A way to write a call of a function on the preceding result."""

    function: Callable[..., Any]  # called with the preceding result, then with the other arguments
    entry: Any  # the function of an epilogue
    parameters: tuple[str, ...]
    writes: bool  # whether it writes to the preceding result


class Call(NamedTuple):
    """A call of a function on the preceding result."""

    function: Callable[..., Any]  # called with the preceding result, then with the arguments and keywords
    arguments: Sequence[Any]
    keywords: Mapping[str, Any]
    entry: Any  # its epilogue entry, without the operands
    operands: tuple[Any, ...]  # numbers and tensors; nodes while a graph is made
    writes: bool  # whether it writes to the preceding result, and so keeps its dtype and size
    is_reversed: bool  # whether its operand is the first argument


def spelling_of(target: Any) -> Spelling | None:
    """Returns the spelling of a function or method of a graph; None if it is not supported."""
    name = name_of(target, is_reversed=False)
    return None if name is None else _KNOWN[name]


def name_of(target: Any, is_reversed: bool) -> str | None:
    """Returns the name of a function or method of a graph; None if it is not supported. `is_reversed`: the preceding
    result is its second argument."""
    try:
        name = _NAMES.get(target)
    except TypeError:  # a target that cannot be a key
        return None
    if not is_reversed or name is None:
        return name
    return f"reversed {name}" if f"reversed {name}" in _KNOWN else None


def call_of(name: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Call | None:
    """Returns the call with that name; None if no epilogue supports it with these arguments, for any tensors."""
    function, entry, parameters, writes = _KNOWN[name]
    given = dict(zip(parameters, arguments, strict=False)) | dict(keywords)
    if entry is F.gelu and (approximate := given.pop("approximate", "none")) != "none":
        if approximate != "tanh":
            return None
        entry = _GELU_TANH
    if len(arguments) > len(parameters) or not given.keys() <= set(parameters):
        return None
    in_place = given.pop("inplace", False)
    if type(in_place) is not bool:
        return None
    if entry is torch.clamp:  # `clamp(max=...)` alone is common
        given.setdefault("min", None)
    operands = tuple(given[one] for one in parameters[: len(given)] if one in given)
    if len(operands) < len(given):
        return None
    return Call(function, arguments, keywords, entry, operands, writes or in_place, name.startswith("reversed "))


def _method(name: str, result: Any, *arguments: Any, **keywords: Any) -> Any:
    return getattr(result, name)(*arguments, **keywords)


def _reversed(function: Callable[..., Any], result: Any, other: Any) -> Any:
    return function(other, result)


def _spellings() -> tuple[dict[str, Spelling], dict[Any, str]]:
    """Returns the spellings by name, and the names by the targets of a graph's nodes."""
    known: dict[str, Spelling] = {}
    names: dict[Any, str] = {}

    def add(name: str, target: Any, function: Any, to: str, writes: bool = False) -> None:
        entry = getattr(F, to, None) or getattr(torch, to)
        known[name] = Spelling(function, entry, _PARAMETERS[to], writes)
        names[target] = name

    for spelling, to in _SPELLINGS.items():
        for name in (spelling, f"{spelling}_"):
            for owner in (torch, F):
                if (function := getattr(owner, name, None)) is not None:
                    add(f"{owner.__name__}.{name}", function, function, to, writes=name != spelling)
            if hasattr(Tensor, name):
                add(f"Tensor.{name}", name, partial(_method, name), to, writes=name != spelling)
    for spelling, to in _OPERATORS.items():
        function = getattr(operator, spelling)
        add(f"operator.{spelling}", function, function, to, writes=spelling != to and spelling.startswith("i"))
    for spelling in ("add", "sub", "mul"):
        function = partial(_reversed, getattr(operator, spelling))
        entry = REVERSED[getattr(torch, spelling)]
        known[f"reversed operator.{spelling}"] = Spelling(function, entry, ("other",), False)
    return known, names


_KNOWN, _NAMES = _spellings()

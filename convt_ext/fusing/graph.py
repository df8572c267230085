"""The graph of a traced model (`torch.fx`), in which transposed convolutions take what follows them.

Called by convert.py. A chain of nodes becomes one node that calls `run_chain` with the modules it takes, which stay
registered under their names.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from ..modules import ConvTranspose2d
from . import chain

# What a graph names (functions cannot stand among the arguments of a node that is traced again), and the names of
# further arguments. What it computes is the function of that name in `_FUNCTIONS`.
_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "add": ("other",), "sub": ("other",), "rsub": ("other",), "mul": ("other",), "div": ("other",), "neg": (),
    "clamp": ("min", "max"), "relu": ("inplace",), "relu6": ("inplace",), "leaky_relu": ("negative_slope", "inplace"),
    "silu": ("inplace",), "tanh": (), "sigmoid": (), "hardtanh": ("min_val", "max_val", "inplace"),
    "hardswish": ("inplace",), "mish": ("inplace",), "softplus": ("beta", "threshold"), "gelu": (),
}  # fmt: skip
_FUNCTIONS: dict[str, Any] = {
    name: getattr(F if hasattr(F, name) and name not in ("relu", "tanh", "sigmoid") else torch, name)
    for name in _ARGUMENTS
} | {"gelu_tanh": nn.GELU("tanh")}

# Functions and methods as they stand in graphs, those that write to their first argument included.
_OPERATORS = {
    operator.add: "add", operator.iadd: "add", operator.sub: "sub", operator.isub: "sub", operator.mul: "mul",
    operator.imul: "mul", operator.truediv: "div", operator.itruediv: "div", operator.neg: "neg",
}  # fmt: skip
_BY_NAME = {
    "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div", "negative": "neg", "clip": "clamp",
} | {name: name for name in _ARGUMENTS}  # fmt: skip
_OF_FUNCTIONS: dict[Any, str] = _OPERATORS | {
    function: to
    for name, to in _BY_NAME.items()
    for owner in (torch, F)
    if (function := getattr(owner, name, None)) is not None
}
_OF_METHODS = {
    written: to for name, to in _BY_NAME.items() for written in (name, f"{name}_") if hasattr(Tensor, written)
}

# With the operands the other way round.
_REVERSED = {operator.add: "add", operator.sub: "rsub", operator.mul: "mul"}


def run_chain(input: Any, conv: nn.Module, followers: tuple[Any, ...]) -> Any:
    """What a node of a fused graph calls.

    Args:
        followers: modules, and tuples of the name of a function and its further arguments.
    """
    return chain.run(conv, tuple(_entry(one) for one in followers), input)


def _entry(follower: Any) -> Any:
    if isinstance(follower, nn.Module):
        return follower
    name, *arguments = follower
    return _FUNCTIONS[name] if not arguments else (_FUNCTIONS[name], *arguments)


def fuse(model: fx.GraphModule, name: str) -> tuple[list[str], list[str]]:
    """Rewrite the graph in place.

    Returns:
        What a convolution takes, and what was left though it looks like that; each a text.
    """
    prefix = f"{name}." if name else ""
    done: list[str] = []
    left: list[str] = []
    for node in list(model.graph.nodes):
        conv = _module(model, node)
        if not isinstance(conv, ConvTranspose2d) or len(node.args) != 1 or node.kwargs:
            continue
        label = f"{prefix}{node.target}"
        nodes, followers, reason = _chain_behind(model, node, conv)
        if reason is not None:
            left.append(f"{reason[0]} behind {label} ({reason[1]})")
        if nodes:
            done.append(
                f"{label} with {', '.join(str(one.target) if one.op == 'call_module' else one.name for one in nodes)}"
            )
            _replace(model.graph, node, nodes, followers)
    if done:
        model.graph.lint()
        model.recompile()
    return done, left


def _module(model: fx.GraphModule, node: fx.Node) -> nn.Module | None:
    return model.get_submodule(str(node.target)) if node.op == "call_module" else None


def _label(node: fx.Node) -> str:
    return str(node.target) if node.op == "call_module" else node.name


def _chain_behind(
    model: fx.GraphModule, node: fx.Node, conv: ConvTranspose2d
) -> tuple[list[fx.Node], list[Any], tuple[str, str] | None]:
    """Nodes that conv takes, what `run_chain` is given for each, and a node that it does not take, with the reason."""
    nodes: list[fx.Node] = []
    followers: list[Any] = []
    last, is_first = node, not conv.epilogue
    while len(last.users) == 1:
        following = next(iter(last.users))
        follower: Any = _module(model, following)
        if follower is not None:
            if following.args != (last,) or following.kwargs:
                break
            reason = chain.obstacle(follower, is_first)
            if reason is None and not chain.is_bare(conv):
                reason = f"the convolution: {chain.HOOKS}"
            if reason is not None:
                return nodes, followers, None if reason == chain.OTHER else (_label(following), reason)
            is_first = is_first and chain.gives_back_its_input(follower)
        else:
            follower = _function(following, last)
            if follower is None or not chain.is_bare(conv):
                break
            is_first = False
        # The convolution moves to the end of the chain, so nothing on the way may write to what it reads.
        if any(_may_write(model, one) for one in _between(last, following)):
            return (
                nodes,
                followers,
                (following.name, "something before it may write to an operand or draw random numbers"),
            )
        nodes.append(following)
        followers.append(follower)
        last = following
    return nodes, followers, None


def _between(first: fx.Node, last: fx.Node) -> Iterator[fx.Node]:
    node = first.next
    while node is not last:
        yield node
        node = node.next


def _may_write(model: fx.GraphModule, node: fx.Node) -> bool:
    """Whether a node may do more than compute its result."""
    if node.op in ("placeholder", "get_attr"):
        return False
    if node.kwargs.get("inplace") or "out" in node.kwargs or any(argument is True for argument in node.args):
        return True
    module = _module(model, node)
    if module is not None:
        of_torch = type(module).__module__.startswith(("torch.nn.", "convt_ext."))
        return not of_torch or "dropout" in type(module).__name__.lower() or bool(getattr(module, "inplace", False))
    if node.target is run_chain:
        return False
    of_module = getattr(node.target, "__module__", None) or "torch"  # PyTorch's compiled functions have none
    if node.op == "call_function" and not of_module.startswith(("torch", "_operator", "math", "builtins")):
        return True
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "_")
    if name.startswith("__"):
        return name == "__setitem__"
    if of_module == "_operator" and (name == "setitem" or name in _WRITING):
        return True
    return name.endswith("_") or "dropout" in name


_WRITING = frozenset(name for name in dir(operator) if name.startswith("i") and hasattr(operator, name[1:]))


def _function(node: fx.Node, operand: fx.Node) -> tuple[Any, ...] | None:
    """What `run_chain` is given for a call of a function or method on operand; None where that is none of ours."""
    names = {"call_function": _OF_FUNCTIONS, "call_method": _OF_METHODS}.get(node.op)
    arguments = node.args
    if names is None or operand in node.kwargs.values():
        return None
    try:
        name = names.get(node.target)
    except TypeError:  # a target that cannot be a key
        return None
    if arguments.count(operand) != 1:
        return None
    if arguments[0] is not operand:
        name = _REVERSED.get(node.target) if node.op == "call_function" else None  # type: ignore[arg-type]
        arguments = arguments[::-1]
    if name is None:
        return None
    if name == "gelu":
        approximate = node.kwargs.get("approximate", "none")
        if len(arguments) > 1 or set(node.kwargs) - {"approximate"} or approximate not in ("none", "tanh"):
            return None
        return ("gelu",) if approximate == "none" else ("gelu_tanh",)
    expected = _ARGUMENTS[name]
    given = dict(zip(expected, arguments[1:], strict=False)) | node.kwargs
    if len(arguments) - 1 > len(expected) or set(given) - set(expected):
        return None
    given.pop("inplace", None)  # nobody else reads what it writes to
    if not all(_is_operand(value) or (value is None and name == "clamp") for value in given.values()):
        return None
    names_given = [one for one in expected if one in given]
    if names_given != list(expected[: len(names_given)]):
        if name != "clamp":  # `clamp(max=...)` alone is common
            return None
        return (name, None, given["max"])
    return (name, *(given[one] for one in names_given))


def _is_operand(value: Any) -> bool:
    return isinstance(value, fx.Node) or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _replace(graph: fx.Graph, conv: fx.Node, nodes: list[fx.Node], followers: list[Any]) -> None:
    last = nodes[-1]
    with graph.inserting_before(last):
        arguments = tuple(
            graph.get_attr(str(node.target)) if isinstance(follower, nn.Module) else follower
            for node, follower in zip(nodes, followers, strict=True)
        )
        made = graph.call_function(run_chain, (conv.args[0], graph.get_attr(str(conv.target)), arguments))
    made.meta = dict(last.meta)
    made.meta["is_wrapped"] = True  # so that unpickling, which traces the code again, keeps the call
    last.replace_all_uses_with(made)
    for node in reversed((conv, *nodes)):
        graph.erase_node(node)

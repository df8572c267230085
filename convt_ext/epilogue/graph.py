"""Fuses transposed convolutions with their followers in the graph of a traced model (`torch.fx`).

Called by convert.py. A chain of nodes becomes one node that calls `run_chain` with the fused modules, which stay
registered under their names.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

from torch import fx, nn

from ..dispatch.arguments import sequence
from ..functional import FUNCTIONS
from ..modules import ConvTransposeMixin
from . import chain, functions


def run_chain(input: Any, conv: Any, followers: tuple[Any, ...]) -> Any:
    """Runs a chain; the target of the nodes of a fused graph.

    Args:
        conv: a module, or the arguments of `chain.Functional`.
        followers: modules, and for each call the arguments of `functions.call_of`: name, further arguments, keywords
            (the arguments of a node that is traced again must not contain functions).
    """
    if not isinstance(conv, nn.Module):
        conv = chain.Functional(*conv)
    return chain.run(conv, [one if isinstance(one, nn.Module) else functions.call_of(*one) for one in followers], input)  # type: ignore[misc]


def fuse(model: fx.GraphModule, name: str) -> tuple[list[str], list[str]]:
    """Rewrites the graph in place. Returns descriptions of the fused chains, and of candidates that were not fused."""
    prefix = f"{name}." if name else ""
    done: list[str] = []
    left: list[str] = []
    for node in list(model.graph.nodes):
        conv = _convolution(model, node)
        if conv is None:
            continue
        label = f"{prefix}{_label(node)}"
        nodes, followers, reason = _chain_behind(model, node, conv)
        if reason is not None:
            left.append(f"{reason[0]} after {label} ({reason[1]})")
        if nodes:
            done.append(f"{label} with {', '.join(map(_label, nodes))}")
            _replace(model.graph, node, conv, nodes, followers)
    if done:
        model.graph.lint()
        model.recompile()
    return done, left


def is_fused(model: fx.GraphModule) -> bool:
    """Returns whether the graph contains a node that `fuse` made."""
    return any(node.target is run_chain for node in model.graph.nodes)


def _module(model: fx.GraphModule, node: fx.Node) -> nn.Module | None:
    return model.get_submodule(str(node.target)) if node.op == "call_module" else None


def _label(node: fx.Node) -> str:
    return str(node.target) if node.op == "call_module" else node.name


def _convolution(model: fx.GraphModule, node: fx.Node) -> ConvTransposeMixin | chain.Functional | None:
    """Returns the convolution that the node calls on its first argument, if it supports fusing; else None.

    Tracing records a convt_ext module as a call of its function, because it is not in torch.nn.
    """
    conv = _module(model, node)
    if isinstance(conv, ConvTransposeMixin):
        return conv if len(node.args) == 1 and not node.kwargs else None
    dims = next((one for one, function in FUNCTIONS.items() if node.target is function), None)
    if dims is None or len(node.args) != 8 or not node.kwargs.keys() <= {"precision", "backend"}:
        return None
    _, weight, bias, *lists, groups, dilation = node.args
    stride, padding, output_padding, dilation = (sequence(one, dims) for one in (*lists, dilation))
    if type(groups) is not int or None in (stride, padding, output_padding, dilation):
        return None
    keywords: list[Any] = [node.kwargs.get("precision"), node.kwargs.get("backend")]
    return chain.Functional(weight, bias, stride, padding, output_padding, groups, dilation, *keywords)


def _chain_behind(
    model: fx.GraphModule, node: fx.Node, conv: ConvTransposeMixin | chain.Functional
) -> tuple[list[fx.Node], list[Any], tuple[str, str] | None]:
    """Returns the nodes to fuse with conv, an argument of `run_chain` for each, and a candidate that is left, with the
    reason."""
    nodes: list[fx.Node] = []
    followers: list[Any] = []
    last, is_first = node, True
    while len(last.users) == 1:
        following = next(iter(last.users))
        follower: Any = _module(model, following)
        if follower is not None:
            if following.args != (last,) or following.kwargs:
                break
            reason = chain.obstacle(follower, is_first, len(conv.stride))
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
        # The convolution moves to the end of the chain, so no node in between may write to its operands.
        if any(_may_write(model, one) for one in _between(last, following)):
            reason = "something before it may write to an operand or draw random numbers"
            return nodes, followers, (following.name, reason)
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
    """Returns whether a node may have side effects."""
    if node.op in ("placeholder", "get_attr"):
        return False
    if node.kwargs.get("inplace") or "out" in node.kwargs:
        return True
    if any(argument is True for argument in (*node.args, *node.kwargs.values())):
        return True
    module = _module(model, node)
    if module is not None:
        of_torch = type(module).__module__.startswith(("torch.nn.", "convt_ext."))
        return not of_torch or "dropout" in type(module).__name__.lower() or bool(getattr(module, "inplace", False))
    of_module = getattr(node.target, "__module__", None) or "torch"  # PyTorch's compiled functions have none
    if node.op == "call_function" and of_module.partition(".")[0] not in _PURE_PACKAGES:
        return True
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "_")
    if name.startswith("__"):
        return name == "__setitem__"
    if of_module == "_operator" and (name == "setitem" or name in _WRITING):
        return True
    return name.endswith("_") or "dropout" in name


# In these packages, names or arguments show whether a function writes or draws random numbers.
_PURE_PACKAGES = frozenset({"torch", "convt_ext", "_operator", "math", "builtins"})
_WRITING = frozenset(name for name in dir(operator) if name.startswith("i") and hasattr(operator, name[1:]))


def _function(node: fx.Node, operand: fx.Node) -> tuple[Any, ...] | None:
    """Returns the argument of `run_chain` for a call of a function or method on operand; None if not supported."""
    if node.op not in ("call_function", "call_method") or operand not in node.args:
        return None
    position = node.args.index(operand)
    arguments = (*node.args[:position], *node.args[position + 1 :])
    if position > 1 or operand in (*arguments, *node.kwargs.values()):
        return None
    name = functions.name_of(node.target, is_reversed=position == 1)
    call = None if name is None else functions.call_of(name, arguments, node.kwargs)
    # The value of a node is known when the graph runs.
    if call is None or not all(type(one) in (type(None), int, float, fx.Node) for one in call.operands):
        return None
    return name, arguments, dict(node.kwargs)


def _replace(graph: fx.Graph, node: fx.Node, conv: Any, nodes: list[fx.Node], followers: list[Any]) -> None:
    last = nodes[-1]
    with graph.inserting_before(last):
        arguments = tuple(
            graph.get_attr(str(one.target)) if isinstance(follower, nn.Module) else follower
            for one, follower in zip(nodes, followers, strict=True)
        )
        called = graph.get_attr(str(node.target)) if isinstance(conv, nn.Module) else tuple(vars(conv).values())
        made = graph.call_function(run_chain, (node.args[0], called, arguments))
    made.meta = dict(last.meta)
    made.meta["is_wrapped"] = True  # unpickling traces the code again and then keeps the call
    last.replace_all_uses_with(made)
    for one in reversed((node, *nodes)):
        graph.erase_node(one)

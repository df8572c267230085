"""The graph of a traced model (`torch.fx`), in which transposed convolutions take what follows them.

Called by convert.py. A chain of nodes becomes one node that calls `run_chain` with the modules it takes, which stay
registered under their names.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

from torch import fx, nn

from ..arguments import pair
from ..functional import conv_transpose2d
from ..modules import ConvTranspose2d
from . import chain, functions


def run_chain(input: Any, conv: Any, followers: tuple[Any, ...]) -> Any:
    """What a node of a fused graph calls.

    Args:
        conv: a module, or what `chain.Functional` is made of.
        followers: modules, and for each call its name, further arguments and keywords, as `functions.call_of` takes
            them (functions cannot stand among the arguments of a node that is traced again).
    """
    if not isinstance(conv, nn.Module):
        conv = chain.Functional(*conv)
    return chain.run(conv, [one if isinstance(one, nn.Module) else functions.call_of(*one) for one in followers], input)  # type: ignore[misc]


def fuse(model: fx.GraphModule, name: str) -> tuple[list[str], list[str]]:
    """Rewrite the graph in place.

    Returns:
        What a convolution takes, and what was left though it looks like that; each a text.
    """
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
            left.append(f"{reason[0]} behind {label} ({reason[1]})")
        if nodes:
            done.append(f"{label} with {', '.join(map(_label, nodes))}")
            _replace(model.graph, node, conv, nodes, followers)
    if done:
        model.graph.lint()
        model.recompile()
    return done, left


def is_fused(model: fx.GraphModule) -> bool:
    """Whether the graph has a node that `fuse` made."""
    return any(node.target is run_chain for node in model.graph.nodes)


def _module(model: fx.GraphModule, node: fx.Node) -> nn.Module | None:
    return model.get_submodule(str(node.target)) if node.op == "call_module" else None


def _label(node: fx.Node) -> str:
    return str(node.target) if node.op == "call_module" else node.name


def _convolution(model: fx.GraphModule, node: fx.Node) -> ConvTranspose2d | chain.Functional | None:
    """What the node calls, on its first argument, where that can take what follows.

    Tracing records a module of ours as a call of `conv_transpose2d`, since it is none of torch.nn's.
    """
    conv = _module(model, node)
    if isinstance(conv, ConvTranspose2d):
        return conv if len(node.args) == 1 and not node.kwargs else None
    if node.target is not conv_transpose2d or len(node.args) != 8 or not node.kwargs.keys() <= {"precision"}:
        return None
    _, weight, bias, stride, padding, output_padding, groups, dilation = node.args
    stride, padding, output_padding, dilation = pair(stride), pair(padding), pair(output_padding), pair(dilation)
    if type(groups) is not int or None in (stride, padding, output_padding, dilation):
        return None
    precision: Any = node.kwargs.get("precision")
    return chain.Functional(weight, bias, stride, padding, output_padding, groups, dilation, precision)


def _chain_behind(
    model: fx.GraphModule, node: fx.Node, conv: ConvTranspose2d | chain.Functional
) -> tuple[list[fx.Node], list[Any], tuple[str, str] | None]:
    """Nodes that conv takes, what `run_chain` is given for each, and a node that it does not take, with the reason."""
    nodes: list[fx.Node] = []
    followers: list[Any] = []
    last, is_first = node, True
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


# In these, functions that write or draw random numbers say so in their names or arguments.
_PURE_PACKAGES = frozenset({"torch", "convt_ext", "_operator", "math", "builtins"})
_WRITING = frozenset(name for name in dir(operator) if name.startswith("i") and hasattr(operator, name[1:]))


def _function(node: fx.Node, operand: fx.Node) -> tuple[Any, ...] | None:
    """What `run_chain` is given for a call of a function or method on operand; None where that is none of ours."""
    if node.op not in ("call_function", "call_method") or operand not in node.args:
        return None
    position = node.args.index(operand)
    arguments = (*node.args[:position], *node.args[position + 1 :])
    if position > 1 or operand in (*arguments, *node.kwargs.values()):
        return None
    name = functions.name_of(node.target, is_reversed=position == 1)
    call = None if name is None else functions.call_of(name, arguments, node.kwargs)
    if call is None or not all(_is_operand(value) for value in call.operands):
        return None
    return name, arguments, dict(node.kwargs)


def _is_operand(value: Any) -> bool:
    """Whether an epilogue may take it; what a node stands for is known when the graph runs."""
    return value is None or isinstance(value, fx.Node) or type(value) in (int, float)


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
    made.meta["is_wrapped"] = True  # so that unpickling, which traces the code again, keeps the call
    last.replace_all_uses_with(made)
    for one in reversed((node, *nodes)):
        graph.erase_node(one)

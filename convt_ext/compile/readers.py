"""Classifies the nodes around a transposed convolution in Dynamo's graphs of torch functions.

Called by choice.py. Unknown functions are classified to the disadvantage of convt_ext.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from ..dispatch import ops
from . import pointwise, traced_ops

OURS = (traced_ops.forward, ops.forward)

_CONVOLUTIONS = frozenset(f"conv{kind}{dims}d" for kind in ("", "_transpose") for dims in (1, 2, 3))
_MATMULS = frozenset(("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "scaled_dot_product_attention"))
_VIEWS = frozenset(
    ("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "permute", "transpose", "contiguous", "expand")
)
# Pointwise functions without an operator of the same name that has PyTorch's tag.
_POINTWISE = frozenset(
    ("prelu", "hardswish", "logsigmoid", "softsign", "subtract", "multiply", "divide", "truediv", "iadd", "isub",
     "imul", "itruediv", "to", "float", "half", "bfloat16")
)  # fmt: skip


def _name(node: Node) -> str:
    name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
    return str(name).split(".")[0].rstrip("_")


def is_convolution(node: Node) -> bool:
    """Returns whether Inductor counts the node in its decision on the layout of the network."""
    return node.op == "call_function" and node.target not in OURS and _name(node) in _CONVOLUTIONS


def is_grouped(node: Node) -> bool:
    """Returns whether a convolution has groups of several channels, which are slow in channels_last."""
    arguments: Any = node.args
    groups: Any
    if node.target is traced_ops.forward:
        groups = traced_ops.arguments_of(arguments[3])[3]
    else:
        groups = arguments[6] if len(arguments) > 6 else node.kwargs.get("groups", 1)
    weight = pointwise.value_of(arguments[1] if len(arguments) > 1 else node.kwargs.get("weight"))
    return bool(groups != 1 and (weight is None or weight.shape[1] != 1))


def _is_opaque(node: Node) -> bool:
    """Returns whether Inductor cannot fuse pointwise operations into the node."""
    return node.op == "output" or node.target in OURS or _name(node) in _CONVOLUTIONS | _MATMULS


def _readers(node: Node) -> list[Node]:
    """Returns the nodes that read the result, also through views."""
    return [one for user in node.users for one in (_readers(user) if _name(user) in _VIEWS else [user])]


def are_opaque(node: Node) -> bool:
    """Returns whether no reader of the result can fuse preceding pointwise operations, so that they need a pass."""
    return all(map(_is_opaque, _readers(node)))


def need_traced_strides(node: Node) -> bool:
    """Returns whether a node reads the result in the strides of the graph, regardless of the network's layout."""
    return any(one.op == "output" or _name(one) in _MATMULS for one in _readers(node))


def has_fixed_strides(node: Node) -> bool:
    """Returns whether Inductor needs a copy to store the result in channels_last."""
    return node.op in ("placeholder", "get_attr") or _name(node) in _VIEWS | _MATMULS


def is_layout_free(graph: Graph) -> bool:
    """Returns whether no operation besides the convolutions is slower in NCHW than in channels_last."""
    for node in graph.nodes:
        values = [pointwise.value_of(one) for one in node.all_input_nodes]
        if node.op == "output" or all(one is None or one.dim() != 4 for one in values):
            continue
        if not (_is_opaque(node) or _name(node) in _VIEWS or _is_pointwise(node)):
            return False
    return True


def _is_pointwise(node: Node) -> bool:
    name = _name(node)
    if name == "batch_norm":
        return True not in (*node.args, *node.kwargs.values())
    if name in ("min", "max"):  # reductions of the same names
        return False
    packet = getattr(torch.ops.aten, name, None)
    overloads = () if packet is None else (getattr(packet, one) for one in packet.overloads())
    return name in _POINTWISE or any(torch.Tag.pointwise in one.tags for one in overloads)

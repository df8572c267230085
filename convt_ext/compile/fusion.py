"""A pass over the graphs that Inductor compiles: pointwise operations after convt_ext's ops become their steps, or
PyTorch's operator replaces the op.

Called by Inductor before gradients and decompositions, when operations are still the torch functions of the user. The
pass can fuse a chain of operations (listed in pointwise.py) if each is the only user of the previous result and sizes,
strides and dtype are those of the op's result; if gradients are recorded, only a single activation with a gradient that
follows from its result. choice.py decides for the whole graph which chains are fused, and which ops PyTorch's operator
replaces.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.virtualized import V
from torch._ops import OpOverload
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ..dispatch import ops
from ..dispatch.planner import EXACT_CODES
from ..environment import _torch
from ..epilogue import fused
from ..epilogue.steps import Step, lists_of
from . import choice, mode, pointwise, traced_epilogues, traced_ops

# Our ops, and what they become.
_THEN = {traced_ops.forward: traced_epilogues.forward_then, ops.forward: traced_epilogues.forward_then_by_name}


class Fusion(CustomGraphPass):
    """The passes that were set before, followed by this one."""

    def __init__(self, before: Sequence[Callable[[Graph], None]]) -> None:
        self.before = before

    def __call__(self, graph: Graph) -> None:
        for one in self.before:
            one(graph)
        fuse(graph)

    def uuid(self) -> Any | None:
        """Returns the identity of the passes in caches of compiled graphs; None if one of them has none."""
        names = [one.uuid() if isinstance(one, CustomGraphPass) else None for one in self.before]
        return None if None in names else (traced_ops.version(), *choice.inputs(), *names)


def install() -> None:
    """Registers the pass with Inductor, after any pass that is already set.

    Inductor's settings are local to a thread and may be patched, so this is called whenever an op is traced.
    """
    present = config.pre_grad_custom_pass
    passes = tuple(present) if isinstance(present, (list, tuple)) else (present,) if present is not None else ()
    if mode.MODE != mode.BARE and not any(isinstance(one, Fusion) for one in passes):
        config.pre_grad_custom_pass = Fusion(passes)


def fuse(graph: Graph) -> None:
    """Rewrites each op of convt_ext as choice.py decides."""
    if V.aot_compilation:  # its programs run without Python, and the ops with steps are Python
        return
    ours = [one for one in graph.nodes if one.op == "call_function" and one.target in _THEN and not one.kwargs]
    for node, chosen in choice.of_graph(graph, {one: _chain_behind(one) for one in ours}).items():
        if chosen.alternative == mode.ORIGINAL:
            _leave_to_torch(node)
            continue
        if chosen.turns:
            node.update_arg(3, [*node.args[3], traced_ops.TURNS])  # type: ignore[misc]
        if chosen.alternative == mode.FUSED:
            _fuse_behind(node)


def _leave_to_torch(node: Node) -> None:
    """Replaces the node by the call of an unconverted model."""
    input, weight, bias, numbers, _ = node.args
    if traced_ops.FROZEN in traced_ops.flags_of(numbers):  # type: ignore[arg-type]
        with node.graph.inserting_before(node):
            weight = node.graph.call_method("type_as", (weight, input))
    arguments = traced_ops.arguments_of(numbers)  # type: ignore[arg-type]
    node.target = _torch.CONV_TRANSPOSE[len(arguments[0])]
    node.args = (input, weight, bias, *arguments)
    if node.prev.target is _torch.transforms_active and not node.prev.users:  # left by the tracing
        node.graph.erase_node(node.prev)


def _fuse_behind(node: Node) -> None:
    found = _chain_behind(node)
    if not found:
        return
    last = found[-1][0]
    graph = node.graph
    with graph.inserting_before(last):
        pieces: list[tuple[Step, Any]] = [piece for _, make_steps in found for piece in make_steps()]
        steps = [step._replace(tensor=operand) for step, operand in pieces]  # its node stands for each tensor
        then = graph.call_function(_THEN[node.target], (*node.args, *lists_of(steps)))  # type: ignore[index]
    then.meta.update(last.meta)
    last.replace_all_uses_with(then)
    for one, _ in reversed(found):
        graph.erase_node(one)
    graph.erase_node(node)


def _chain_behind(node: Node) -> list[tuple[Node, Callable[[], pointwise.Pieces]]]:
    """Returns the operations that can be fused, with the functions that make their steps; none in three dimensions."""
    like = pointwise.value_of(node)
    if like is None or like.dim() != 4:
        return []
    if like.requires_grad:
        return _activation_behind(node, like)
    rounds_each = node.target is ops.forward and node.args[8] in EXACT_CODES
    found = []
    passed, last = node, node
    while len(last.users) == 1:
        (user,) = last.users
        make_steps = pointwise.steps_of(user, last, rounds_each)
        value = pointwise.value_of(user)
        if make_steps is None or not _is_alike(value, like) or value.requires_grad:  # type: ignore[union-attr]
            break
        while passed is not user and (passed is last or _changes_nothing(passed)):
            passed = passed.next
        if passed is not user:
            break
        found.append((user, make_steps))
        last = user
    return found


def _activation_behind(node: Node, like: torch.Tensor) -> list[tuple[Node, Callable[[], pointwise.Pieces]]]:
    """Returns the only user of the node's result if it is an activation without tensors, which may be recorded."""
    (user,) = node.users if len(node.users) == 1 else (node,)
    is_next = user is not node and node.target is traced_ops.forward and _is_alike(pointwise.value_of(user), like)
    if not is_next or user.all_input_nodes != [node]:
        return []
    make_steps = pointwise.steps_of(user, node, rounds_each=False)
    if make_steps is None:
        return []
    steps = [step for step, _ in make_steps()]  # without tensors this adds nothing to the graph
    is_activation = len(steps) == 1 and fused.are_differentiable(steps) and not fused.is_linear(steps[0])
    return [(user, make_steps)] if is_activation else []


def _is_alike(value: torch.Tensor | None, like: torch.Tensor) -> bool:
    """Returns whether the value has the dtype, device, size and strides of the op's result."""
    return (
        value is not None
        and value.dtype is like.dtype
        and value.device == like.device
        and value.dim() == like.dim()
        and all(statically_known_true(one == other) for one, other in zip(value.shape, like.shape, strict=True))
        and all(statically_known_true(one == other) for one, other in zip(value.stride(), like.stride(), strict=True))
    )


_CHANGING_OPERATORS = frozenset((operator.setitem, operator.delitem)) | {
    getattr(operator, name) for name in dir(operator) if name.startswith("i") and hasattr(operator, name[1:])
}


def _changes_nothing(node: Node) -> bool:
    """Returns whether an op may move from before the node to after it: it reads the same operands in the same context.

    Rejects functions with names that begin with _ (they switch modes) or end with _ (they work in place), and calls
    with an argument True, which may be `inplace` or the `training` of a normalization.
    """
    if node.op in ("placeholder", "get_attr"):
        return True
    name = str(node.target) if node.op == "call_method" else getattr(node.target, "__name__", "_")
    if node.op == "call_function":
        if isinstance(node.target, OpOverload):
            return not node.target._schema.is_mutable
        if not isinstance(node.target, (FunctionType, BuiltinFunctionType)) or node.target in _CHANGING_OPERATORS:
            return False
    has_true = any(one is True for one in (*node.args, *node.kwargs.values()))
    return not name.startswith("_") and not name.endswith("_") and not has_true and "out" not in node.kwargs

"""Converts operations of a graph to steps, and checks whether a kernel runs all of them.

Called by choice.py, costs.py and measure.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch.fx import Node

from ..epilogue.steps import ADD, CLAMP, DIVIDE, HAS_TENSOR, LEAKY_RELU, MULTIPLY, SUBTRACT, lists_of
from . import pointwise

_ADDEND, _SCALE, _SHIFT, _SCALES, _SHIFTS, _RESULTS, _SLOPES, _FUNCTION, _LAST_SHIFT, _CLAMP, _LAST_SCALE = range(11)

# The places that a step can have in the program of a kernel, by operation and kind of operand. A kernel runs each place
# once and in this order (kernels/binding/epilogue.cpp).
_NUMBER, _CHANNEL, _RESULT, _OTHER = range(4)
_PLACES: dict[tuple[int, int], tuple[int, ...]] = {
    (ADD, _NUMBER): (_SHIFT, _LAST_SHIFT), (ADD, _CHANNEL): (_ADDEND, _SHIFTS), (ADD, _RESULT): (_RESULTS,),
    (SUBTRACT, _NUMBER): (_SHIFT, _LAST_SHIFT), (SUBTRACT, _CHANNEL): (_ADDEND, _SHIFTS),
    (SUBTRACT, _RESULT): (_RESULTS,), (MULTIPLY, _NUMBER): (_SCALE, _LAST_SCALE), (MULTIPLY, _CHANNEL): (_SCALES,),
    (DIVIDE, _NUMBER): (_SCALE, _LAST_SCALE), (CLAMP, _NUMBER): (_CLAMP,), (LEAKY_RELU, _NUMBER): (_FUNCTION,),
    (LEAKY_RELU, _CHANNEL): (_SLOPES,),
}  # fmt: skip


class Steps(NamedTuple):
    """Steps as the ops take them (`lists_of`), with the sizes of the tensors instead of the tensors."""

    operations: tuple[int, ...] = ()
    numbers: tuple[float, ...] = ()
    sizes: tuple[tuple[int, ...], ...] = ()
    are_computed: bool = False  # a kernel computes some of the tensors first, such as the factors of a BatchNorm

    def fit(self, family: str, result_size: Sequence[int]) -> bool:
        """Returns whether kernels of a family that fuses steps run all steps, so that no pass remains."""
        sizes, free = iter(self.sizes), 0
        for operation in self.operations:
            kind = _kind(next(sizes), result_size) if operation >= HAS_TENSOR else _NUMBER
            function = operation % HAS_TENSOR
            places = _PLACES.get((function, kind), (_FUNCTION,) if function > LEAKY_RELU else ())
            place = next((one for one in places if one >= free), None)
            if place is None or (place == _RESULTS and family == "window"):
                return False
            free = place + 1
        return True


def _kind(size: tuple[int, ...], result_size: Sequence[int]) -> int:
    padded = (1,) * (4 - len(size)) + size
    if padded in ((1, result_size[1], 1, 1), (1, 1, 1, 1)):
        return _CHANNEL
    return _RESULT if padded == tuple(result_size) else _OTHER


def of_chain(node: Node, chain: Sequence[Any]) -> Steps:
    """The steps of the operations that fusion.py has found after one of our ops. The graph stays as it is."""
    graph, before = node.graph, set(node.graph.nodes)
    with graph.inserting_before(node.next):
        pieces = [piece for _, make_steps in chain for piece in make_steps()]
    channels = pointwise.value_of(node).shape[1]  # type: ignore[union-attr]
    operands = [operand for _, operand in pieces if operand is not None]
    values = [pointwise.value_of(operand) for operand in operands]
    # A tensor that is made for a step contains an element for each channel.
    sizes = tuple((channels, 1, 1) if value is None else tuple(value.shape) for value in values)
    made = [one for one, value in zip(operands, values, strict=True) if value is None]
    # No kernel runs for a view of a tensor of the graph.
    are_computed = any(one.target != "view" or pointwise.value_of(one.args[0]) is None for one in made)
    operations, numbers, _ = lists_of([step._replace(tensor=operand) for step, operand in pieces])  # type: ignore[arg-type]
    for one in reversed([one for one in graph.nodes if one not in before]):
        graph.erase_node(one)
    return Steps(tuple(operations), tuple(numbers), sizes, are_computed)

"""Chooses the alternative for each transposed convolution of a graph, and whether the network becomes channels_last.

The alternatives are those of mode.py. Called by fusion.py, which rewrites the graph.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch._inductor import config
from torch.fx import Graph, Node

from ..dispatch import planner, precision
from ..dispatch.geometry import suggests_channels_last
from ..environment import _extension
from ..epilogue.steps import lists_of
from ..tuning import benchmark, choices, files
from . import costs, inductor, measure, mode, pointwise, readers, traced_ops
from .costs import Layer, Steps, Times
from .mode import AUTO, BARE, ORIGINAL

# Logs the choices at level INFO, and their times at DEBUG.
_LOG = logging.getLogger(__name__)


class LayerChoice(NamedTuple):
    """The choice for a layer."""

    alternative: str  # FUSED, BARE or ORIGINAL
    channels_last: bool | None = None  # whether the network becomes channels_last; None if nothing was compared
    turns: bool = False  # whether only convt_ext's ops request channels_last

    def __str__(self) -> str:
        layout = {None: "", False: " in NCHW", True: " in channels_last"}[self.channels_last]
        return self.alternative + layout


class Site(NamedTuple):
    """A layer in its graph, and its times in the strides of the graph and in channels_last."""

    node: Node
    layer: Layer
    as_traced: Times
    turned: Times

    def costs(self, turns: bool) -> dict[str, float]:
        return costs.of_alternatives(self.layer, self.turned if turns else self.as_traced, turns)

    def best(self, turns: bool, may_be_original: bool = True) -> tuple[str, float]:
        """Returns the best alternative and its time; the original unless another one is faster by a margin."""
        found = self.costs(turns)
        original_us = found.pop(ORIGINAL)
        ours = min(found, key=found.__getitem__)
        is_ours = found[ours] * self.margin(turns) <= original_us and found[ours] < float("inf")
        return (ours, found[ours]) if is_ours or not may_be_original else (ORIGINAL, original_us)

    def margin(self, turns: bool) -> float:
        return costs.margin((self.turned if turns else self.as_traced).is_measured)


def of_graph(graph: Graph, chains: Mapping[Node, Sequence[Any]]) -> dict[Node, LayerChoice]:
    """Returns the choice for each op of convt_ext. `chains` are the operations that can be fused into each of them."""
    found = _of_graph(graph, chains)
    for node, choice in found.items():
        _LOG.info("%s: %s", node.name, choice)
    return found


def _of_graph(graph: Graph, chains: Mapping[Node, Sequence[Any]]) -> dict[Node, LayerChoice]:
    if mode.MODE != AUTO:
        explicit = BARE if mode.MODE == ORIGINAL else mode.MODE  # for calls with an explicit precision
        return {node: LayerChoice(mode.MODE if node.target is traced_ops.forward else explicit) for node in chains}
    found: dict[Node, LayerChoice] = {}
    sites = []
    may_turn = config.layout_optimization and all(map(_is_static, chains)) and not any(map(_trains, graph.nodes))
    for node, chain in chains.items():
        if _trains(node):
            found[node] = LayerChoice(_of_training(node, chain))
        elif not _is_static(node):
            is_unknown = any(pointwise.value_of(one) is None for one in (*node.args[:2], node))
            # With freezing, torch 2.10 passes no sizes. Layers with symbolic sizes are decided at run time.
            found[node] = LayerChoice(ORIGINAL if is_unknown and node.target is traced_ops.forward else BARE)
        elif node.target is not traced_ops.forward:  # its precision is explicit, its format is part of the program
            found[node] = LayerChoice(_of_ours(node, chain))
        elif _is_volume(node):
            found[node] = LayerChoice(_of_volume(node))
        else:
            sites.append(_site(node, chain, may_turn))
    others = [node for node in graph.nodes if readers.is_convolution(node)]
    others += [node for node, chosen in found.items() if chosen.alternative == ORIGINAL]
    return found | (_of_sites(graph, sites, others, may_turn) if sites else {})


def _of_sites(graph: Graph, sites: Sequence[Site], others: Sequence[Node], may_turn: bool) -> dict[Node, LayerChoice]:
    """Returns choices for a network. Inductor changes it to channels_last if it contains a convolution of PyTorch, one
    of `others`."""
    grouped = any(map(readers.is_grouped, (*others, *(one.node for one in sites))))
    for one in sites:
        _LOG.debug("%s: us in NCHW %s, in channels_last %s", one.node.name, one.costs(False), one.costs(True))
    if grouped or not may_turn:
        return {one.node: LayerChoice(one.best(False)[0]) for one in sites}
    best = {one.node: one.best(True) for one in sites}
    may_stay = not others and readers.is_layout_free(graph)
    all_ours = not others and all(alternative != ORIGINAL for alternative, _ in best.values())
    cannot_turn = all_ours and not inductor.can_turn()
    if may_stay:
        staying = {one.node: one.best(False, may_be_original=False) for one in sites}
        stays_us = _sum(staying.values())
        limit = _sum((ORIGINAL, one.costs(True)[ORIGINAL]) for one in sites)
        is_faster = stays_us * max(one.margin(False) for one in sites) <= limit and stays_us < float("inf")
        if is_faster and (cannot_turn or stays_us <= _sum(best.values())):
            return {node: LayerChoice(alternative, False) for node, (alternative, _) in staying.items()}
    if cannot_turn:
        return {one.node: LayerChoice(ORIGINAL, True) for one in sites}
    return {node: LayerChoice(alternative, True, turns=all_ours) for node, (alternative, _) in best.items()}


def _sum(found: Iterable[tuple[str, float]]) -> float:
    return sum(us for _, us in found)


def _site(node: Node, chain: Sequence[Any], may_turn: bool) -> Site:
    """Returns a layer and its times, also those in channels_last if the network `may_turn`."""
    problem = _problem_of(node)
    problems = [problem, costs.turned(problem)] if may_turn else [problem]
    last = chain[-1][0] if chain else node
    source = node.all_input_nodes[0]
    input: Any = pointwise.value_of(source)
    in_channels_last = suggests_channels_last(input.shape, input.stride())
    layer = Layer(
        problem,
        has_bias=node.args[2] is not None,
        has_steps=bool(chain),
        steps=_steps_of(node, chain),
        is_absorbed=not readers.are_opaque(last),
        copies_input=not in_channels_last and readers.has_fixed_strides(source),
        copies_result=not problem.channels_last and readers.need_traced_strides(last),
    )
    if measure.is_possible(input.device):
        times = [measure.times(one, layer.has_bias, layer.steps, input.device) for one in problems]
    else:
        times = [costs.known_times(one) for one in problems]
    return Site(node, layer, times[0], times[-1])


def _steps_of(node: Node, chain: Sequence[Any]) -> Steps:
    """Returns the steps of the operations that fusion.py has found after an op. The graph stays as it is."""
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


def _problem_of(node: Node) -> planner.Problem:
    """Returns the planner's problem of an op of convt_ext in the strides of the graph, without a bias."""
    input, weight = (pointwise.value_of(one) for one in node.args[:2])
    assert input is not None
    assert weight is not None
    device = planner.device_numbers(input.device.index or 0)
    if node.target is traced_ops.forward:
        numbers: Any = node.args[3]
        arguments = traced_ops.arguments_of(numbers)
        code = precision.CODES[precision.class_by_switches(input.dtype, planner.capability(device))]
        channels_last = traced_ops.result_format(input, weight, numbers)
    else:
        given = (tuple(one) if isinstance(one, (list, tuple)) else one for one in node.args[3:])
        *arguments, code, channels_last = given  # type: ignore[assignment]
    return planner.Problem.of_call(input, weight, False, (*arguments, code, channels_last), device)


def _trains(node: Node) -> bool:
    value = pointwise.value_of(node)
    is_operand = node.op in ("placeholder", "get_attr")  # such as a parameter, under no_grad too
    return not is_operand and value is not None and value.requires_grad


def _is_static(node: Node) -> bool:
    """Returns whether all sizes and strides are numbers; times depend on them."""
    values = [pointwise.value_of(one) for one in (*node.args[:2], node)]
    return all(
        one is not None and all(isinstance(number, int) for number in (*one.shape, *one.stride())) for one in values
    )


def _is_volume(node: Node) -> bool:
    value = pointwise.value_of(node)
    return value is not None and value.dim() == 5


def _of_volume(node: Node) -> str:
    """Returns the alternative of a three-dimensional layer, which keeps the strides of the graph and is not fused: the
    original if its time is unknown."""
    site = _site(node, (), may_turn=False)
    return site.best(False)[0] if site.as_traced.torch_us < math.inf else ORIGINAL


def _of_training(node: Node, chain: Sequence[Any]) -> str:
    """Returns the alternative in the strides of the graph; Inductor decides later on channels_last in training."""
    if _is_left_to_torch(node):
        return ORIGINAL
    return _of_ours(node, chain) if chain and _is_static(node) else BARE


def _of_ours(node: Node, chain: Sequence[Any]) -> str:
    """Returns the faster alternative with convt_ext's op, in the strides of the graph."""
    return _site(node, chain, may_turn=False).best(False, may_be_original=False)[0]


def _is_left_to_torch(node: Node) -> bool:
    """Returns whether PyTorch's operator would run every direction of a training layer; the op only adds overhead. In
    three dimensions also if convt_ext is not faster by a margin in the directions that it would run."""
    if node.target is not traced_ops.forward or not _is_static(node):
        return False
    problem = _problem_of(node)
    directions = [choices.FORWARD]
    for operand, direction in zip(node.args, (choices.GRAD_INPUT, choices.GRAD_WEIGHT), strict=False):
        value = pointwise.value_of(operand)
        directions += [direction] if value is None or value.requires_grad else []
    numbers: Any = node.args[3]
    device = pointwise.value_of(node).device  # type: ignore[union-attr]
    measure.choose(directions, problem[:2], problem[2:4], False, numbers, problem.dtype, device)
    found = [costs.known_choice(problem, one) for one in directions]
    if _is_volume(node):
        ours = [one for one in found if not one.by_torch]
        return sum(one.torch_us - costs.margin(one.source != choices.ESTIMATED) * one.ours_us for one in ours) <= 0
    return all(one.by_torch for one in found)


def inputs() -> tuple[str, ...]:
    """Returns all inputs of choices besides the graph; caches on disk must not reuse choices of other inputs."""
    numbers = [planner.device_numbers(index) for index in range(torch.cuda.device_count())]
    measured = hashlib.sha256(repr(list(files.in_force())).encode()).hexdigest()
    sources = (_extension.build_info() or {}).get("sources", "")
    switches = benchmark.is_enabled(), precision.tf32_switch(), precision.cudnn_enabled(), config.layout_optimization
    return tuple(map(str, (mode.MODE, numbers, torch.backends.cudnn.version(), sources, measured, switches)))

"""Registers the ops of traced_ops.py with Inductor, which compiles around them as around PyTorch's convolutions.

- If Inductor changes a network of convolutions to channels_last, it changes the four-dimensional operands of these ops
  too. Otherwise they keep the order of strides of the graph. Inductor counts only PyTorch's convolutions: it changes a
  network without any if all two-dimensional ops of convt_ext in it request channels_last (choice.py).
- The memory formats of the results become part of the program, which is compiled for them.
- A bias is a separate addition if Inductor fuses it with the next operation, so it costs nothing for any
  implementation. Otherwise the op adds it, and kernels do so before they store.
- Tensors of steps after a forward pass (traced_epilogues.py) keep their strides. A tensor without fixed strides gets
  those of the result, which kernels read fastest.
- The partitioner of AOTAutograd, which every backend uses, treats the ops as compute-intensive: under
  `activation_memory_budget` it compares their FLOPs before it recomputes one in the backward pass.

Called by tracing.py while tracing. Importing this module imports Inductor. It uses private names of Inductor: if one is
missing, the first graph is compiled as with any custom op, which is correct but copies more, and later graphs use
PyTorch's operator (mode.py).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import sympy
import torch
from torch._functorch import partitioners
from torch._inductor import config, ir, lowering
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V
from torch.utils import _pytree as pytree

from ..tuning.choices import FORWARD, GRAD_INPUT, GRAD_WEIGHT
from . import measure, mode, traced_epilogues, traced_ops


@functools.cache
def teach() -> None:
    """Registers the lowerings of the ops."""
    for op, constrain, lower in (
        (traced_ops.forward, functools.partial(_constrain, 1), _lower_forward),
        (traced_ops.backward, functools.partial(_constrain, 2), _lower_backward),
        (traced_epilogues.forward_then, _constrain_all_but_tensors, _lower_forward_then),
    ):
        lowering.make_fallback(op, layout_constraint=_or_else(lowering.constrain_to_fx_strides, constrain))
        as_any_op = lowering.fallback_handler(op, add_to_fallback_set=False)
        lowering.register_lowering(op, type_promotion_kind=None)(_or_else(as_any_op, lower))
    _teach_partitioner()
    _teach_layout()


def _or_else(other: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps `function` so that an op is compiled as any custom op if a name that the function uses has changed."""

    def guarded(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (AttributeError, TypeError) as error:
            mode.give_up(error)
            return other(*arguments)

    return guarded


def _teach_layout() -> None:
    """Adds the requests of these ops to Inductor's decision on a network's layout, if this release is supported."""

    def with_ours(gm: torch.fx.GraphModule, *, is_inference: bool) -> bool:
        return decide(gm, is_inference=is_inference) or (
            is_inference and config.layout_optimization and _asks_to_turn(gm.graph)
        )

    decide: Any = getattr(GraphLowering, "decide_layout_opt", None)
    if isinstance(inspect.getattr_static(GraphLowering, "decide_layout_opt", None), staticmethod):
        with_ours.hears_ours = True  # type: ignore[attr-defined]
        GraphLowering.decide_layout_opt = staticmethod(with_ours)  # type: ignore[method-assign, assignment]


def can_turn() -> bool:
    """Returns whether ops of convt_ext alone can change a network to channels_last."""
    return hasattr(getattr(GraphLowering, "decide_layout_opt", None), "hears_ours")


def _asks_to_turn(graph: torch.fx.Graph) -> bool:
    ours = [node for node in graph.nodes if node.target in (traced_ops.forward, traced_epilogues.forward_then)]
    theirs = any(node.target is torch.ops.aten.convolution.default for node in graph.nodes)
    numbers = [node.args[3] for node in ours if traced_ops.dims_of(node.args[3]) == 2]
    return bool(numbers) and not theirs and all(traced_ops.TURNS in traced_ops.flags_of(one) for one in numbers)


def _teach_partitioner() -> None:
    """Adds the ops to the list of compute-intensive ops, which the partitioner creates for each graph."""
    # The ops of the graphs that are partitioned: without an explicit precision, and with one.
    names = "conv_transpose2d", "conv_transpose2d_then", "conv_transpose2d_backward"
    ops = [getattr(torch.ops.convt_ext, name) for name in (*names, "forward", "grad_input", "grad_weight")]

    def with_ours() -> Any:
        op_types = make_list()
        op_types.compute_intensive_ops.update(ops)
        return op_types

    with suppress(AttributeError):  # in a release without these names the ops are recomputed like any custom op
        make_list = partitioners.get_default_op_list
        with_ours()
        partitioners.get_default_op_list = with_ours


class _DirectCall(ir.FallbackKernel):
    """An op as a direct call of its Python function in the compiled program.

    PyTorch's dispatcher would double the host time. The program selects the implementation of the op when it is loaded
    (measure.py).
    """

    def codegen(self, wrapper: Any) -> None:
        if not V.graph.cpp_wrapper and type(self.op_overload) is torch._ops.OpOverload:
            module, name = _FUNCTIONS[self.op_overload]
            self.python_kernel_name = f"convt_ext_{name}"
            wrapper.add_import_once(f"from {module} import {name} as {self.python_kernel_name}")
            operands = self._operands()
            if operands is not None:
                wrapper.add_import_once(f"from {measure.__name__} import choose as convt_ext_choose")
                wrapper.add_import_once(f"convt_ext_choose({', '.join(map(repr, operands))})")
        super().codegen(wrapper)

    def _operands(self) -> tuple[Any, ...] | None:
        """Returns the arguments of `measure.choose`; None if sizes or strides are symbols."""
        arguments, _ = self.unflatten_args(self.inputs, self.constant_args)
        if self.op_overload is traced_ops.backward:
            _, input, weight, numbers, _, needs_grad = arguments
            directions, has_bias = [one for one in (GRAD_INPUT, GRAD_WEIGHT) if needs_grad[one - 1]], False
        else:
            input, weight, bias, numbers, *_ = arguments
            directions, has_bias = [FORWARD], bias is not None
        shapes = [[*map(_constant, one.get_size())] for one in (input, weight)]
        strides = [[*map(_constant, one.get_stride())] for one in (input, weight)]
        if any(None in one for one in (*shapes, *strides)):
            return None
        of_input, of_weight = zip(shapes, strides, strict=True)
        return directions, of_input, of_weight, has_bias, [*numbers], input.get_dtype(), input.get_device()


def _constant(size: Any) -> int | None:
    return int(size) if isinstance(size, (int, sympy.Integer)) else None


# Modules and names of the ops' functions. Compiled programs on disk contain them.
_FUNCTIONS = {
    traced_ops.forward: (traced_ops.__name__, "run_forward"),
    traced_ops.backward: (traced_ops.__name__, "run_backward"),
    traced_epilogues.forward_then: (traced_epilogues.__name__, "run_forward_then"),
}


def _run(op: Any, *arguments: Any) -> Any:
    """Adds a call of the op to the program."""
    found = _DirectCall.create(op, *arguments)
    return pytree.tree_map_only(ir.IRNode, ir.TensorBox.create, found)


def _constrain(num_turned: int, node: torch.fx.Node, *operands: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Gives the operands the strides that the op requires; the first `num_turned` follow the network's format."""
    turned: list[Any] = []
    if V.graph.layout_opt and len(operands[0].get_size()) == 4:
        for one in operands[:num_turned]:
            one.realize()
            turned.append(ir.ExternKernel.require_channels_last(one))
    others = (*[None] * len(turned), *operands[len(turned) :])
    kept, _ = lowering.constrain_to_fx_strides(node, *others)
    return (*turned, *kept[len(turned) :]), {}


def _constrain_all_but_tensors(node: torch.fx.Node, *operands: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    constrained, named = _constrain(1, node, *operands[:-1])
    return (*constrained, operands[-1]), named


def _lower_forward(input: Any, weight: Any, bias: Any, numbers: Any, channels_last: Any) -> Any:
    numbers = _with_copies(numbers)
    input, weight, channels_last = _named(traced_ops.result_format, input, weight, numbers)
    if bias is None or not _is_fused_with_what_comes_next(V.graph.current_node):
        return _run(traced_ops.forward, input, weight, bias, numbers, channels_last)
    result = _run(traced_ops.forward, input, weight, None, numbers, channels_last)
    aten = torch.ops.aten
    return lowering.lowerings[aten.add.Tensor](
        result, lowering.lowerings[aten.view.default](bias, [result.get_size()[1]] + [1] * traced_ops.dims_of(numbers))
    )


def _with_copies(numbers: Any) -> Any:
    """Lets the op use the copies of a frozen weight, unless the program becomes a CUDA graph."""
    is_frozen = traced_ops.FROZEN in traced_ops.flags_of(numbers)
    return [*numbers, traced_ops.COPIES] if is_frozen and not config.triton.cudagraphs else numbers


def _lower_backward(
    grad_output: Any, input: Any, weight: Any, numbers: Any, channels_last: Any, needs_grad: Any
) -> Any:
    input, weight, channels_last = _named(traced_ops.gradient_formats, input, weight, numbers)
    return _run(traced_ops.backward, grad_output, input, weight, numbers, list(channels_last), needs_grad)


def _lower_forward_then(
    input: Any, weight: Any, bias: Any, numbers: Any, channels_last: Any, operations: Any, scalars: Any, tensors: Any
) -> Any:
    input, weight, channels_last = _named(traced_ops.result_format, input, weight, numbers)
    numbers = _with_copies(numbers)
    tensors = [_read_as_it_lies(one, channels_last) for one in tensors]
    return _run(
        traced_epilogues.forward_then, input, weight, bias, numbers, channels_last, operations, scalars, tensors
    )


def _read_as_it_lies(tensor: Any, channels_last: bool) -> Any:
    tensor = ir.ExternKernel.realize_input(tensor)
    is_open = ir.is_storage_and_layout(tensor) and isinstance(tensor.get_layout(), ir.FlexibleLayout)
    if is_open and len(tensor.get_size()) == 4:
        order = ir.NHWC_STRIDE_ORDER if channels_last else [3, 2, 1, 0]
        ir.as_storage_and_layout(tensor, freeze=True, stride_order=order)
    return tensor


def _named(formats: Callable[..., Any], input: Any, weight: Any, numbers: Any) -> tuple[Any, Any, Any]:
    """Returns input and weight with fixed strides, and the memory formats of the results that follow from them."""
    input, weight = (ir.ExternKernel.realize_input(one) for one in (input, weight))
    for one in (input, weight):
        if ir.is_storage_and_layout(one):
            ir.as_storage_and_layout(one, freeze=True)
    with V.graph.fake_mode:
        return input, weight, formats(ir.ir_node_to_tensor(input), ir.ir_node_to_tensor(weight), numbers)


def _is_fused_with_what_comes_next(node: torch.fx.Node) -> bool:
    """Returns whether Inductor fuses a pointwise operation on the node's result with all its users."""
    return all(
        user.target in lowering.lowerings and user.target not in lowering.needs_realized_inputs for user in node.users
    )

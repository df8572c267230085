"""How Inductor compiles around the ops of traced_ops.py: as it does around PyTorch's own convolutions.

- Where it turns a network of convolutions to channels_last, the operands of ours turn with it. Elsewhere they keep the
  order of strides that they have in the graph.
- The memory formats of the results become part of the program, whose code is compiled for them.
- A bias is added by itself where that is fused with what comes next, so it costs nothing whoever computes the rest.
  Elsewhere it is left to the op, in which our kernels add it before they store.

Called by compiled.py while tracing. Importing this imports Inductor. What is taken from there has no public names: in a
release without them the ops are compiled as any custom op is, which is right too and copies more.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._inductor import ir, lowering
from torch._inductor.virtualized import V

from . import traced_ops


@functools.cache
def teach() -> None:
    """Registers how the ops are compiled."""
    for op, num_turned, lower in ((traced_ops.forward, 1, _lower_forward), (traced_ops.backward, 2, _lower_backward)):
        lowering.make_fallback(op, layout_constraint=functools.partial(_constrain, num_turned))
        lowering.register_lowering(op, type_promotion_kind=None)(lower)


_run_forward = lowering.fallback_handler(traced_ops.forward)
_run_backward = lowering.fallback_handler(traced_ops.backward)


def _constrain(num_turned: int, node: torch.fx.Node, *operands: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The operands in the strides that the op is to get; the first `num_turned` follow the network's format."""
    turned: list[Any] = []
    if V.graph.layout_opt:
        for one in operands[:num_turned]:
            one.realize()
            turned.append(ir.ExternKernel.require_channels_last(one))
    others = (*[None] * len(turned), *operands[len(turned) :])
    kept, _ = lowering.constrain_to_fx_strides(node, *others)
    return (*turned, *kept[len(turned) :]), {}


def _lower_forward(input: Any, weight: Any, bias: Any, numbers: Any, channels_last: Any) -> Any:
    input, weight, channels_last = _named(traced_ops.result_format, input, weight, numbers)
    if bias is None or not _is_fused_with_what_comes_next(V.graph.current_node):
        return _run_forward(input, weight, bias, numbers, channels_last)
    result = _run_forward(input, weight, None, numbers, channels_last)
    aten = torch.ops.aten
    return lowering.lowerings[aten.add.Tensor](
        result, lowering.lowerings[aten.view.default](bias, [result.get_size()[1], 1, 1])
    )


def _lower_backward(grad_output: Any, input: Any, weight: Any, numbers: Any, channels_last: Any, wanted: Any) -> Any:
    input, weight, channels_last = _named(traced_ops.gradient_formats, input, weight, numbers)
    return _run_backward(grad_output, input, weight, numbers, list(channels_last), wanted)


def _named(formats: Callable[..., Any], input: Any, weight: Any, numbers: Any) -> tuple[Any, Any, Any]:
    """Input and weight in strides that stay, and the memory formats of the results that follow from them."""
    input, weight = (ir.ExternKernel.realize_input(one) for one in (input, weight))
    for one in (input, weight):
        if ir.is_storage_and_layout(one):
            ir.as_storage_and_layout(one, freeze=True)
    with V.graph.fake_mode:
        return input, weight, formats(ir.ir_node_to_tensor(input), ir.ir_node_to_tensor(weight), numbers)


def _is_fused_with_what_comes_next(node: torch.fx.Node) -> bool:
    """Whether a pointwise operation on the node's result takes no pass of its own."""
    return all(
        user.target in lowering.lowerings and user.target not in lowering.needs_realized_inputs for user in node.users
    )

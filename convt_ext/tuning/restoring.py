"""Runs a user's model or function and its backward pass, and restores the state that they change.

Called by measuring.py and report.py. Restores, even if the call raises: gradients, the buffers of all modules that ran
(such as BatchNorm's statistics, also of modules that a function calls), and PyTorch's random number generators. Does
not see modules inside compiled functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parameter import is_lazy

from ..environment._torch import tree_leaves, tree_map_only


def run(target: Callable[..., Any], inputs: tuple[Any, ...], named: dict[str, Any], backward: bool) -> None:
    """Calls `target(*inputs, **named)`; with `backward` also its backward pass, to all that require gradients."""
    # A backward pass that goes beyond an input would free the user's graph.
    inputs, named = tree_map_only(
        Tensor, lambda one: one if one.is_leaf else one.detach().requires_grad_(), (inputs, named)
    )
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    same_random_numbers = torch.random.fork_rng(devices, device_type="cuda")
    with same_random_numbers, _same_modules() as modules, torch.set_grad_enabled(backward):
        results = tree_leaves(target(*inputs, **named))
        outputs = [one for one in results if isinstance(one, Tensor) and one.requires_grad]
        if not backward or not outputs:
            return
        gradients = [torch.randn_like(output) for output in outputs]
        leaves, is_checkpointed = _leaves_behind(outputs)
        # Includes parameters of modules: the backward of an autograd.Function may run another backward pass inside.
        with _same_gradients([*leaves, *(one for module in modules for one in module.parameters(recurse=False))]):
            if is_checkpointed:
                torch.autograd.backward(outputs, gradients)
            else:
                torch.autograd.grad(outputs, leaves, gradients, allow_unused=True)


def _leaves_behind(outputs: Iterable[Tensor]) -> tuple[list[Tensor], bool]:
    """Returns the leaves that outputs were computed from, and whether there is a reentrant checkpoint, which rejects
    `torch.autograd.grad` and hides the leaves inside it."""
    nodes: list[Any] = [get_gradient_edge(output).node for output in outputs]
    seen, leaves, is_checkpointed = set(), [], False
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        name = type(node).__name__
        is_checkpointed |= name == "CheckpointFunctionBackward"
        if name == "AccumulateGrad":
            leaves.append(node.variable)
        nodes += [following for following, _ in node.next_functions]
    return leaves, is_checkpointed


@contextmanager
def _same_gradients(leaves: Iterable[Tensor]) -> Iterator[None]:
    kept = {id(leaf): (leaf, leaf.grad) for leaf in leaves}
    for leaf, _ in kept.values():
        leaf.grad = None  # gradients accumulate into new memory
    try:
        yield
    finally:
        for leaf, gradient in kept.values():
            leaf.grad = gradient


@contextmanager
def _same_modules() -> Iterator[list[nn.Module]]:
    """Collects the modules that run inside, and restores their buffers afterwards."""
    modules: list[nn.Module] = []
    buffers: dict[int, list[tuple[str, Tensor | None, Tensor | None]]] = {}

    def before(module: nn.Module, _: Any) -> None:
        if torch.compiler.is_compiling():
            return
        for one in module.modules():
            if id(one) not in buffers:
                modules.append(one)
                buffers[id(one)] = [(name, buffer, _copy(buffer)) for name, buffer in one._buffers.items()]

    try:
        with register_module_forward_pre_hook(before):
            yield modules
    finally:
        for module in modules:
            kept = buffers[id(module)]
            before_call = {name: buffer for name, buffer, _ in kept}
            now = dict(module._buffers.items())
            if now.keys() != before_call.keys() or any(now[name] is not before_call[name] for name in now):
                module._buffers.clear()
                module._buffers.update(before_call)
            with torch.no_grad():
                for _, buffer, content in kept:
                    if buffer is not None and content is not None and not torch.equal(buffer, content):
                        buffer.copy_(content)


def _copy(buffer: Tensor | None) -> Tensor | None:
    return None if buffer is None or is_lazy(buffer) or buffer.is_meta else buffer.detach().clone()

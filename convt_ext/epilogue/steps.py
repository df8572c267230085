"""Epilogues: pointwise steps after a transposed convolution, as users write them and as kernels run them.

The entries of an epilogue are a user's residual and activation, or the functions and modules of PyTorch that follow a
layer in a fused model. A kernel reads operations and numbers (`Step`). `apply` defines the semantics: PyTorch's
functions, one after the other. Called by functional.py, fused.py and chain.py. Must not know which implementation runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.fx import Proxy

# The operation numbers of kernels/problem/epilogue.h.
ADD, SUBTRACT, MULTIPLY, DIVIDE, CLAMP, LEAKY_RELU, SILU, GELU, GELU_TANH, TANH, SIGMOID, HARDSWISH, MISH, SOFTPLUS = (
    range(14)
)

# Added to an operation with a tensor.
HAS_TENSOR = 256


class Step(NamedTuple):
    """One operation on every result y: y + t, y - t, y * t, y / t, min(max(y, first), second), y > 0 ? y : y * t, or a
    function of y; softplus also has beta and threshold."""

    operation: int
    first: float = 0.0  # without a tensor, t
    second: float = 0.0
    tensor: Tensor | None = None  # t, which broadcasts to the results
    open_interval: bool = False  # whether the gradient of a clamp at its bounds is 0, as for relu and hardtanh


class _Traced(Exception):
    """Raised if an operand is a Proxy: torch.fx records the call, and the operand has no value yet."""


def following(residual: Any, activation: Any) -> tuple[list[Any], list[Any]]:
    """Returns the entries for a residual and an activation that a kernel supports, and those that run after the kernel.

    Raises:
        TypeError, ValueError: an invalid residual or activation.
    """
    entries: list[Any] = []
    if residual is not None:
        if not isinstance(residual, (Tensor, Proxy)):
            raise TypeError(f"residual must be a tensor or None, but got {_shown(residual)}")
        entries.append((torch.add, residual))
    if isinstance(activation, str):
        if activation not in _ACTIVATIONS:
            names = ", ".join(map(repr, _ACTIVATIONS))
            raise ValueError(f"activation must be {names}, or a function or module, but got {activation!r}")
        activation = _ACTIVATIONS[activation]
    elif activation is not None and not callable(activation):
        raise TypeError(f"activation must be a name, a function, a module or None, but got {_shown(activation)}")
    if activation is None:
        return entries, []
    if is_compiling() or not _is_known(activation):
        return entries, [activation]
    return [*entries, activation], []


def _is_known(function: Any) -> bool:
    """Returns whether a kernel supports the function without further arguments."""
    try:
        return steps_of((function,)) is not None
    except (TypeError, ValueError):
        return False


def apply(result: Tensor, epilogue: Sequence[Any]) -> Tensor:
    """Applies PyTorch's functions, one after the other: the definition of an epilogue, and the fallback."""
    for entry in epilogue:
        result = _apply_entry(result, entry)
    return result


def apply_after(compute: Callable[[], Tensor], epilogue: Sequence[Any]) -> Tensor:
    """Applies an epilogue to the result of `compute`, which no caller holds, so the first step frees it."""
    result = compute()
    for entry in epilogue:
        result = _apply_entry(result, entry)
    return result


def _apply_entry(result: Tensor, entry: Any) -> Tensor:
    function, *arguments = entry if isinstance(entry, tuple) else (entry,)
    if isinstance(result, Proxy) and isinstance(function, nn.Module):
        function = _recordable(function, result)
    return function(result, *arguments)


def _recordable(module: nn.Module, result: Proxy) -> Callable[..., Any]:
    """Returns what torch.fx can record: the module if the traced model contains it, else its forward."""
    try:
        result.tracer.path_of_module(module)  # type: ignore[attr-defined]
    except (AttributeError, NameError):  # a tracer without modules; a module that the model does not contain
        return module.forward
    return module


def steps_of(epilogue: Sequence[Any]) -> tuple[Step, ...] | None:
    """Returns the steps that a kernel runs for these entries, or None while torch.fx records the call and an operand
    has no value yet. Raises a TypeError or ValueError for an entry that no kernel supports."""
    steps: list[Step] = []
    is_traced = False
    for entry in epilogue:
        of_entry, arguments = _find(entry)
        try:
            steps.extend(of_entry(*arguments))
        except _Traced:
            is_traced = True
    return None if is_traced else tuple(steps)


def check_names(epilogue: Sequence[Any]) -> None:
    """Checks the entries as `steps_of` does, without the values of operands, which compilers must not read."""
    for entry in epilogue:
        _find(entry)


def steps_of_call(function: Any, *arguments: Any, **named: Any) -> Sequence[Step] | None:
    """Returns the steps that a kernel runs for a call of a PyTorch function with these arguments after the result;
    None if no kernel supports that."""
    of_function = _OF_FUNCTIONS.get(function)
    try:
        return None if of_function is None else of_function(*arguments, **named)
    except TypeError:
        return None


def apply_steps(result: Tensor, steps: Sequence[Step]) -> Tensor:
    """Applies the steps with PyTorch's functions, if no kernel runs them and the user's entries are not available."""
    for step in steps:
        result = _BY_TORCH[step.operation](result, step)
    return result


def lists_of(steps: Sequence[Step]) -> tuple[list[int], list[float], list[Tensor]]:
    """Returns operations, numbers and tensors in the format of the compiled ops (kernels/binding/epilogue.h)."""
    return (
        [step.operation if step.tensor is None else step.operation + HAS_TENSOR for step in steps],
        [number for step in steps for number in step[1:3]],
        [step.tensor for step in steps if step.tensor is not None],
    )


def steps_in(operations: Sequence[int], numbers: Sequence[float], tensors: Sequence[Tensor]) -> tuple[Step, ...]:
    """Returns the steps of `lists_of`'s lists, without the fields that only gradients need."""
    remaining = iter(tensors)
    return tuple(
        Step(
            operation % HAS_TENSOR, numbers[2 * i], numbers[2 * i + 1],
            next(remaining) if operation >= HAS_TENSOR else None,
        )
        for i, operation in enumerate(operations)
    )  # fmt: skip


def name_of(entry: Any) -> str:
    """Returns the name of an entry: "relu", "GELU"."""
    return _shown(entry[0] if isinstance(entry, tuple) and entry else entry)


def _find(entry: Any) -> tuple[Callable[..., Sequence[Step]], list[Any]]:
    """Returns the function that makes the steps of an entry, and its arguments."""
    if isinstance(entry, nn.Module):
        of_entry, arguments = _OF_MODULES.get(type(entry)), [entry]
    else:
        function, *arguments = entry if isinstance(entry, tuple) and entry else (entry,)
        try:
            of_entry = _OF_FUNCTIONS.get(function)
        except TypeError:  # not hashable, so not a function
            of_entry = None
    if of_entry is None:
        raise ValueError(f"no kernel supports {_shown(entry)}")
    return of_entry, arguments


def _shown(value: Any) -> str:
    """Describes a value in an error message, without the elements of tensors, which may be on a GPU."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, Tensor):
        return f"a tensor of size {tuple(value.shape)}"
    if isinstance(value, nn.Module):
        return type(value).__name__
    return getattr(value, "__name__", None) or repr(value)


def _with_operand(operation: int) -> Callable[[Any], Sequence[Step]]:
    def step(other: Any) -> Sequence[Step]:
        if isinstance(other, Tensor):
            return (Step(operation, tensor=other),)
        return (Step(operation, _number(other)),)

    return step


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        if isinstance(value, Proxy):
            raise _Traced
        raise TypeError(f"expected a number or a tensor, got {type(value).__name__}")
    return float(value)


def _clamp(min: Any = None, max: Any = None) -> Sequence[Step]:
    if min is None and max is None:
        raise TypeError("at least one of min and max must not be None")
    low, high = (-math.inf if min is None else _number(min)), (math.inf if max is None else _number(max))
    return (Step(CLAMP, low, high),)


def _rsub(other: Any) -> Sequence[Step]:
    return (Step(MULTIPLY, -1.0), *_with_operand(ADD)(other))


def _gelu(*, approximate: str = "none") -> Sequence[Step]:
    if approximate not in ("none", "tanh"):
        raise TypeError(f"approximate must be 'none' or 'tanh', but got {approximate!r}")
    return (Step(GELU if approximate == "none" else GELU_TANH),)


def _prelu(weight: Tensor) -> Sequence[Step]:
    if not isinstance(weight, Tensor):
        if isinstance(weight, Proxy):
            raise _Traced
        raise TypeError(f"expected a tensor, got {type(weight).__name__}")
    return (Step(LEAKY_RELU, tensor=weight if weight.numel() == 1 else weight.view(-1, 1, 1)),)


def _alone(
    operation: int, first: float = 0.0, second: float = 0.0, open_interval: bool = False
) -> Callable[[], Sequence[Step]]:
    return lambda: (Step(operation, first, second, None, open_interval),)


def _hardtanh(min_val: Any = -1.0, max_val: Any = 1.0) -> Sequence[Step]:
    return (Step(CLAMP, _number(min_val), _number(max_val), open_interval=True),)


def _leaky_relu(negative_slope: Any = 0.01) -> Sequence[Step]:
    return (Step(LEAKY_RELU, _number(negative_slope)),)


def _softplus(beta: Any = 1, threshold: Any = 20) -> Sequence[Step]:
    return (Step(SOFTPLUS, _number(beta), _number(threshold)),)


_neg = _alone(MULTIPLY, -1.0)
_relu = _alone(CLAMP, 0.0, math.inf, open_interval=True)
_relu6 = _alone(CLAMP, 0.0, 6.0, open_interval=True)


def _operand(step: Step) -> Any:
    return step.first if step.tensor is None else step.tensor


_BY_TORCH: dict[int, Callable[[Tensor, Step], Tensor]] = {
    ADD: lambda result, step: result + _operand(step),
    SUBTRACT: lambda result, step: result - _operand(step),
    MULTIPLY: lambda result, step: result * _operand(step),
    DIVIDE: lambda result, step: result / _operand(step),
    CLAMP: lambda result, step: result.clamp(step.first, step.second),
    LEAKY_RELU: lambda result, step: (
        F.leaky_relu(result, step.first)
        if step.tensor is None
        else torch.where(result > 0, result, result * step.tensor)
    ),
    SILU: lambda result, step: F.silu(result),
    GELU: lambda result, step: F.gelu(result),
    GELU_TANH: lambda result, step: F.gelu(result, approximate="tanh"),
    TANH: lambda result, step: result.tanh(),
    SIGMOID: lambda result, step: result.sigmoid(),
    HARDSWISH: lambda result, step: F.hardswish(result),
    MISH: lambda result, step: F.mish(result),
    SOFTPLUS: lambda result, step: F.softplus(result, step.first, step.second),
}

_OF_FUNCTIONS: dict[Any, Callable[..., Sequence[Step]]] = {
    torch.add: _with_operand(ADD),
    torch.sub: _with_operand(SUBTRACT),
    torch.subtract: _with_operand(SUBTRACT),
    torch.rsub: _rsub,
    torch.mul: _with_operand(MULTIPLY),
    torch.multiply: _with_operand(MULTIPLY),
    torch.div: _with_operand(DIVIDE),
    torch.divide: _with_operand(DIVIDE),
    torch.true_divide: _with_operand(DIVIDE),
    torch.neg: _neg,
    torch.negative: _neg,
    torch.clamp: _clamp,
    torch.clip: _clamp,
    torch.relu: _relu,
    F.relu: _relu,
    F.relu6: _relu6,
    F.leaky_relu: _leaky_relu,
    F.prelu: _prelu,
    torch.prelu: _prelu,
    F.silu: _alone(SILU),
    F.gelu: _gelu,  # `approximate` is a keyword-only argument
    torch.tanh: _alone(TANH),
    F.tanh: _alone(TANH),
    torch.sigmoid: _alone(SIGMOID),
    F.sigmoid: _alone(SIGMOID),
    F.hardtanh: _hardtanh,
    F.hardswish: _alone(HARDSWISH),
    F.mish: _alone(MISH),
    F.softplus: _softplus,
}

# Exact types: a subclass may compute something else.
_OF_MODULES: dict[type, Callable[[Any], Sequence[Step]]] = {
    nn.Identity: lambda module: (),
    nn.ReLU: lambda module: _relu(),
    nn.ReLU6: lambda module: _relu6(),
    nn.LeakyReLU: lambda module: _leaky_relu(module.negative_slope),
    nn.PReLU: lambda module: _prelu(module.weight),
    nn.SiLU: lambda module: (Step(SILU),),
    nn.GELU: lambda module: _gelu(approximate=module.approximate),
    nn.Tanh: lambda module: (Step(TANH),),
    nn.Sigmoid: lambda module: (Step(SIGMOID),),
    nn.Hardtanh: lambda module: _hardtanh(module.min_val, module.max_val),
    nn.Hardswish: lambda module: (Step(HARDSWISH),),
    nn.Mish: lambda module: (Step(MISH),),
    nn.Softplus: lambda module: _softplus(module.beta, module.threshold),
}

# The activations that users may name.
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "leaky_relu": F.leaky_relu,
    "hardswish": F.hardswish,
    "mish": F.mish,
}

# The modules that an epilogue supports.
MODULES = tuple(_OF_MODULES)

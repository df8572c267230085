"""Selects the precision class of a call from PyTorch's switches, the `precision=` keyword and `use_precision`.

Called by routing.py. The classes and their guarantees (float32 unless stated):

    ieee     fused multiply-add chain, c_in ascending, then kh, then kw; bias last (also every other dtype)
    aten     the order of PyTorch's own CUDA algorithm: one chain over c_in per tap, then the taps in order
    tf32x3   three TF32 products per term: float32 accuracy on tensor cores
    tf32     operands rounded to TF32, float32 accumulation
    f16      float16 operands on tensor cores, float32 accumulation; requested as "half"
    bf16     bfloat16 operands on tensor cores, float32 accumulation; requested as "half"

A call may run in a stricter class than the requested one. Reads PyTorch's switches; must not know tensors or kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

from . import _torch, scopes

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

WORDS = ("ieee", "aten", "tf32x3", "tf32", "half")

# Values of the op's `precision` argument.
CODES = {word: code for code, word in enumerate(WORDS)} | {"f16": 4, "bf16": 4}

# The largest error of one call, by dtype or class: ||result - exact|| / ||exact||, exact in float64. docs/numerics.md
# promises smaller errors for results of 4096 elements. Smaller results vary more, and float64 and the half types get
# two roundings of their dtype.
ERROR_LIMITS = {
    "float32": 1e-6,
    "tf32x3": 1e-6,
    "tf32": 5e-4,
    "float64": 1e-14,
    "float16": 1e-3,
    "bfloat16": 8e-3,
}

# The classes that "half" selects.
_HALVES = {torch.float16: "f16", torch.bfloat16: "bf16"}

# Classes with exact kernels on every GPU.
EXACT_CLASSES = frozenset({"ieee", "aten"})

# The compute capability with estimates of both implementations in the other classes.
_HOPPER = (9, 0)

# The first compute capability on which the kernels use tensor cores.
_FIRST_WITH_CORES = (8, 0)

# The functions that `torch.backends.cudnn.enabled` and `torch.backends.cudnn.conv.fp32_precision` call. Every call
# needs them, and the properties cost six times as much.
cudnn_enabled = _torch.get_cudnn_enabled
_fp32_precision = _torch.get_fp32_precision


class use_precision:
    """Runs every `convt_ext` call inside in one precision class. Context manager and decorator.

    Nests. A `precision=` keyword of a single call overrides it. `use_precision(None)` returns to PyTorch's switches.
    "aten", "tf32x3" and "tf32" apply to float32, "half" to float16 and bfloat16, "ieee" to every dtype; other dtypes
    are not affected.

    Belongs to the `contextvars` context that enters it, and must be exited there: an asyncio task has its own class and
    starts with the one that was active when the task was created; a thread starts with none. nn.DataParallel calls its
    replicas in threads: `convt_ext.ConvTranspose2d` uses the class that was active around the call of DataParallel;
    `convt_ext.conv_transpose2d` called by another module does not. Several may be exited in any order. A generator has
    no context of its own: while a `with` in its body is open, its caller sees the class too. As a decorator of a
    generator, coroutine or async generator function, it is active while the body runs, and not between its steps.

    torch.compile uses the state at the time of tracing, and traces again if it changes. With fullgraph=True it supports
    `with use_precision("ieee"):` and the decorator of functions and generators, but not a `with` of an instance that
    was created outside the compiled function.

    Args:
        precision: "ieee", "aten", "tf32x3", "tf32", "half" or None; see `convt_ext.conv_transpose2d`.

    Raises:
        ValueError: an unknown precision.
        RuntimeError: it is exited in a context that did not enter it.

    Example:
        >>> import torch, convt_ext
        >>> x, weight = torch.ones(1, 2, 3, 3), torch.ones(2, 4, 2, 2)
        >>> with convt_ext.use_precision("ieee"):
        ...     y = convt_ext.conv_transpose2d(x, weight, stride=2)
        >>> y.shape
        torch.Size([1, 4, 6, 6])
    """

    def __init__(self, precision: str | None) -> None:
        self.precision = checked_word(precision)

    def __enter__(self) -> use_precision:
        scopes.enter(self.precision, self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        scopes.leave(self)

    def __call__(self, function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        """Wraps `function` so that it runs in this class. (Dynamo does not follow ContextDecorator's wrapper.)"""
        precision = self.precision
        in_steps = scopes.decorated_in_steps(function, precision)
        if in_steps is not None:
            return in_steps

        @functools.wraps(function)
        def inside(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            with use_precision(precision):
                return function(*args, **kwargs)

        return inside


def checked_word(precision: str | None) -> str | None:
    """Returns `precision`, or raises a ValueError that lists the allowed values."""
    if precision is not None and precision not in WORDS:
        raise ValueError(
            f"precision must be one of {', '.join(map(repr, WORDS))} or None, but got {precision!r}; "
            "None follows PyTorch's switches"
        )
    return precision


def requested(keyword: str | None) -> str | None:
    """Returns the explicit class of a call: its keyword, else the innermost `use_precision`, else None."""
    if keyword is not None:
        return checked_word(keyword)
    return scopes.now().word


def explicit_class(dtype: torch.dtype, word: str, from_keyword: bool, was_float32: bool = False) -> str | None:
    """Returns the class that an explicit precision selects for `dtype`; None if `use_precision` does not apply to it.

    `was_float32`: the input is float32, and autocast casts it to `dtype`.

    Raises:
        ValueError: a keyword that does not support the dtype.
    """
    if word == "half" and dtype in _HALVES:
        return _HALVES[dtype]
    if word == "ieee" or (word != "half" and dtype is torch.float32):
        return word
    if not from_keyword:
        return None
    name = str(dtype).removeprefix("torch.")
    is_another, instead = f"the input is {name}", ""
    if was_float32:
        is_another = f"autocast casts the input to {name}"
        instead = "make the call inside of torch.autocast(..., enabled=False), "
    raise ValueError(
        f"precision={word!r} is for {'float16 and bfloat16' if word == 'half' else 'float32'} and {is_another}: "
        f'{instead}leave precision=None, or use precision="ieee", which supports every dtype'
    )


def class_by_switches(dtype: torch.dtype, capability: tuple[int, int], exporting: bool = False) -> str:
    """Returns the class in which PyTorch's operator would compute on a GPU of this capability, by its current switches.

    float32 is TF32 if `torch.backends.cudnn.conv.fp32_precision` selects it (that getter also resolves `allow_tf32`
    and inheritance from the wider switches). With cuDNN disabled, PyTorch uses cuBLAS, so the matmul switch applies.
    torch.export disables cuDNN while it traces, so `exporting` ignores that. TF32 needs compute capability 8.0.
    """
    if dtype is torch.float32:
        cudnn = exporting or cudnn_enabled()
        switch = _fp32_precision("cuda", "conv") if cudnn else _fp32_precision("cuda", "matmul")
        if switch == "tf32" and capability >= (8, 0):
            return "tf32"
        return "ieee" if cudnn else "aten"
    if dtype is torch.float64:
        return "ieee"
    return _HALVES[dtype]


def tf32_switch() -> str:
    """Returns PyTorch's float32 precision of convolutions, which applies while cuDNN is enabled."""
    return _fp32_precision("cuda", "conv")


def has_estimates(served: str, capability: tuple[int, int]) -> bool:
    """Returns whether the cost model may select convt_ext for `precision=None`, in this class on such a GPU.

    For tensor cores the cost model knows PyTorch's times on Hopper only; other GPUs need a measurement. An explicit
    precision needs neither.
    """
    return served in EXACT_CLASSES or capability == _HOPPER


def may_be_measured(capability: tuple[int, int]) -> bool:
    """Returns whether convt_ext uses such a GPU's tensor cores, as PyTorch does, so that either may be faster."""
    return capability >= _FIRST_WITH_CORES

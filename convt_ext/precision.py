"""Which arithmetic a call gets: PyTorch's switches, the `precision=` keyword and `use_precision`.

Called by routing.py. The classes and their promises (float32 unless said):

    ieee     fused multiply-add chain, c_in ascending, then kh, then kw; bias last (also every other dtype)
    aten     the order of PyTorch's own CUDA algorithm: per tap a chain over c_in, tap sums added in order
    tf32x3   three TF32 products per term: float32 accuracy on tensor cores
    tf32     operands rounded to TF32, float32 accumulation
    f16      float16 operands on tensor cores, float32 accumulation; the word for both of these is "half"
    bf16     the same for bfloat16

A stricter class may serve a looser one. Reads PyTorch's switches; knows nothing of tensors or kernels.
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

# What the op's `precision` argument means.
CODES = {word: code for code, word in enumerate(WORDS)} | {"f16": 4, "bf16": 4}

# The classes that "half" asks for.
_HALVES = {torch.float16: "f16", torch.bfloat16: "bf16"}

# The classes whose kernels are exact, on every GPU.
EXACT_CLASSES = frozenset({"ieee", "aten"})

# The compute capability on which the planner knows the times of both sides in the other classes.
_HOPPER = (9, 0)

# The first one whose tensor cores our kernels use.
_FIRST_WITH_CORES = (8, 0)

# What `torch.backends.cudnn.enabled` and `torch.backends.cudnn.conv.fp32_precision` call. The properties themselves
# cost six times as much, and every call asks.
cudnn_enabled = _torch.get_cudnn_enabled
_fp32_precision = _torch.get_fp32_precision


class use_precision:
    """Run every `convt_ext` call inside in one precision class. Context manager and decorator.

    Nests, and yields to a `precision=` keyword of a single call. `use_precision(None)` returns to PyTorch's switches.
    "aten", "tf32x3" and "tf32" speak of float32, "half" of float16 and bfloat16, and leave other dtypes as they are;
    "ieee" holds for every dtype.

    Belongs to the context (of `contextvars`) that enters it, and must be left there: an asyncio task sees its own word,
    and begins with the one that was in force where it was created; a thread begins with none. nn.DataParallel calls its
    replicas in threads: `convt_ext.ConvTranspose2d` takes the word that was in force around the call of DataParallel,
    `convt_ext.conv_transpose2d` called by another module does not. Several may be left in any order. A generator has no
    context of its own: while a `with` in its body is open, its caller sees the word too. As a decorator of a generator,
    coroutine or async generator function it holds while the body runs, and not between its steps.

    torch.compile takes the state at the time of tracing, and traces again in another. With fullgraph=True it follows
    `with use_precision("ieee"):` and the decorator of functions and of generators, but no `with` of an instance that
    was made outside of the compiled function.

    Args:
        precision: "ieee", "aten", "tf32x3", "tf32", "half" or None; `convt_ext.conv_transpose2d` says what they mean.

    Raises:
        ValueError: another word.
        RuntimeError: it is left in a context that did not enter it.

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
        """`function` inside of its word, each time it runs. (Dynamo does not follow ContextDecorator's.)"""
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
    """`precision` itself, or a ValueError that lists what is allowed."""
    if precision is not None and precision not in WORDS:
        raise ValueError(
            f"precision must be one of {', '.join(map(repr, WORDS))} or None, but got {precision!r}; "
            "None follows PyTorch's switches"
        )
    return precision


def requested(keyword: str | None) -> str | None:
    """The word in force: the call's keyword, else the innermost `use_precision`, else None."""
    if keyword is not None:
        return checked_word(keyword)
    return scopes.now().word


def explicit_class(dtype: torch.dtype, word: str, from_keyword: bool, was_float32: bool = False) -> str | None:
    """The class that an explicit word asks for with `dtype`; None where a context does not speak of it.

    `was_float32` says that the input itself is float32, of which autocast made another dtype.

    Raises:
        ValueError: a keyword with a dtype that it is not for.
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
        is_another = f"autocast makes the input {name}"
        instead = "make the call inside of torch.autocast(..., enabled=False), "
    raise ValueError(
        f"precision={word!r} is for {'float16 and bfloat16' if word == 'half' else 'float32'} and {is_another}: "
        f'{instead}leave precision=None, or ask for precision="ieee", which serves every dtype'
    )


def class_by_switches(dtype: torch.dtype, capability: tuple[int, int], exporting: bool = False) -> str:
    """The class in which PyTorch's own operator would compute on a GPU of this capability, read from its switches now.

    float32 is TF32 when `torch.backends.cudnn.conv.fp32_precision` says so (that getter resolves both the older
    `allow_tf32` and inheritance from the wider switches). With cuDNN disabled PyTorch multiplies matrices with
    cuBLAS, so the switch of matmul counts; torch.export disables it for itself while it traces, which says nothing
    about the program. TF32 exists from compute capability 8.0 on.
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
    """PyTorch's float32 precision of convolutions, which decides while cuDNN is enabled."""
    return _fp32_precision("cuda", "conv")


def has_estimates(served: str, capability: tuple[int, int]) -> bool:
    """Whether the planner's estimates may hand a call of `precision=None` to our kernels, in this class on such a GPU.

    On tensor cores PyTorch's times are known for Hopper alone; elsewhere a measurement has to say who is faster. By
    name more is served: the planner knows of which class a GPU has kernels.
    """
    return served in EXACT_CLASSES or capability == _HOPPER


def may_be_measured(capability: tuple[int, int]) -> bool:
    """Whether our kernels use such a GPU's tensor cores, as PyTorch's do, so that either may be faster."""
    return capability >= _FIRST_WITH_CORES

"""The request of a call: the keywords `precision=` and `backend=`, and `flags`, which sets both for all calls inside.

A request is encoded as one string: None, a precision, or "backend:precision". The stack of scopes.py contains encoded
requests, and Dynamo guards on them. Called by functional.py and modules.py with keywords, by routing.py and
compile/tracing.py with encoded requests. precision.py selects the class of a request.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple, ParamSpec, TypeVar

from . import scopes

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

PRECISIONS = ("exact", "aten", "ieee", "tf32x3", "tf32", "half")
BACKENDS = ("auto", "convt_ext", "torch")


def encode_request(precision: str | None, backend: str | None) -> str | None:
    """Returns both keywords as one string; None if both are None.

    Raises:
        ValueError: lists the allowed values.

    >>> encode_request("tf32", None), encode_request("tf32", "convt_ext"), encode_request(None, "torch")
    ('tf32', 'convt_ext:tf32', 'torch:')
    """
    if precision is not None and precision not in PRECISIONS:
        raise ValueError(
            f"precision must be one of {', '.join(map(repr, PRECISIONS))} or None, but got {precision!r}; "
            "None follows PyTorch's switches"
        )
    if backend is None:
        return precision
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(map(repr, BACKENDS))}, but got {backend!r}")
    return f"{backend}:{precision or ''}"


def decode_request(requested: str | None) -> tuple[str | None, str | None]:
    """Returns precision and backend; None for one that the encoded request does not contain.

    >>> decode_request("tf32"), decode_request("convt_ext:tf32"), decode_request("torch:"), decode_request(None)
    (('tf32', None), ('tf32', 'convt_ext'), (None, 'torch'), (None, None))
    """
    if requested is None:
        return None, None
    backend, _, precision = requested.rpartition(":")
    return precision or None, backend or None


def keywords_of(precision: str | None, backend: str | None) -> str:
    """Describes those that are not the default, in messages; Dynamo traces it.

    >>> keywords_of("tf32", "convt_ext"), keywords_of("exact", "auto")
    ("precision='tf32', backend='convt_ext'", "precision='exact'")
    """
    named = [] if precision is None else [f"precision={precision!r}"]
    if backend is not None and backend != "auto":
        named.append(f"backend={backend!r}")
    return ", ".join(named)


def reason_of(requested: str | None, in_force: str | None) -> str:
    """Describes what asks for a kernel: the keywords of the call, else `flags`.

    >>> reason_of("exact", None), reason_of(None, "convt_ext:")
    ("precision='exact' asks for it", "flags(backend='convt_ext') asks for it")
    """
    if requested is None:
        return f"flags({keywords_of(*decode_request(in_force))}) asks for it"
    return f"{keywords_of(*decode_request(requested))} asks for it"


class Request(NamedTuple):
    """The request of a call: its keywords, else the innermost `flags`."""

    precision: str | None  # None follows PyTorch's switches
    backend: str  # "auto", "convt_ext" or "torch"
    from_keyword: bool  # whether the precision is the call's keyword


def merged(keywords: str | None, in_force: str | None) -> Request:
    """Merges the encoded requests of a call's keywords and of `flags`."""
    precision, backend = decode_request(keywords)
    around = decode_request(in_force)
    return Request(precision or around[0], backend or around[1] or "auto", precision is not None)


class flags:
    """Sets precision and implementation of every `convt_ext` call inside. Context manager and decorator.

    Nests; the innermost one is active, and an argument that is left out has its default. The keywords ``precision=``
    and ``backend=`` of a single call override it. "tf32x3", "tf32" and "aten" apply to float32, "half" to float16 and
    bfloat16, "exact" and "ieee" to every dtype; other dtypes follow PyTorch's switches. Changes no switch of PyTorch.

    Belongs to the `contextvars` context that enters it, and must be exited there: an asyncio task has its own flags and
    starts with those that were active when the task was created; a thread starts with none. nn.DataParallel calls its
    replicas in threads: `convt_ext.ConvTranspose2d` uses the flags that were active around the call of DataParallel;
    `convt_ext.conv_transpose2d` called by another module does not. Several may be exited in any order. A generator has
    no context of its own: while a `with` in its body is open, its caller sees the flags too. As a decorator of a
    generator, coroutine or async generator function, they are active while the body runs, and not between its steps.

    torch.compile uses the state at the time of tracing, and traces again if it changes. With fullgraph=True it supports
    `with flags(precision="exact"):` and the decorator of functions and generators, but not a `with` of an instance that
    was created outside the compiled function.

    Args:
        precision: "exact", "aten", "ieee", "tf32x3", "tf32", "half", or None, which follows PyTorch's switches; see
            `convt_ext.conv_transpose2d`.
        backend: "auto", the faster implementation; "convt_ext", its kernels; "torch", PyTorch's operator.

    Raises:
        ValueError: an unknown precision or backend.
        RuntimeError: it is exited in a context that did not enter it.

    Example:
        >>> import torch, convt_ext
        >>> x, weight = torch.ones(1, 2, 3, 3), torch.ones(2, 4, 2, 2)
        >>> with convt_ext.flags(backend="torch"):
        ...     y = convt_ext.conv_transpose2d(x, weight, stride=2)
        >>> y.shape
        torch.Size([1, 4, 6, 6])
    """

    def __init__(self, *, precision: str | None = None, backend: str = "auto") -> None:
        self._requested = encode_request(precision, None if backend == "auto" else backend)

    def __enter__(self) -> flags:
        scopes.enter(self._requested, self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        scopes.leave(self)

    def __call__(self, function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        """Wraps `function` so that it runs with these flags. (Dynamo does not follow ContextDecorator's wrapper.)"""
        precision, backend = decode_request(self._requested)
        in_steps = scopes.decorated_in_steps(function, self._requested)
        if in_steps is not None:
            return in_steps

        @functools.wraps(function)
        def inside(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            with flags(precision=precision, backend=backend or "auto"):
                return function(*args, **kwargs)

        return inside


class use_precision(flags):
    """`flags(precision=precision)`: every `convt_ext` call inside has that precision. Context manager and decorator.

    Args:
        precision: as in `flags`.

    Raises:
        ValueError: an unknown precision.
        RuntimeError: it is exited in a context that did not enter it.

    Example:
        >>> import torch, convt_ext
        >>> x, weight = torch.ones(1, 2, 3, 3), torch.ones(2, 4, 2, 2)
        >>> with convt_ext.use_precision("exact"):
        ...     y = convt_ext.conv_transpose2d(x, weight, stride=2)
        >>> y.shape
        torch.Size([1, 4, 6, 6])
    """

    def __init__(self, precision: str | None) -> None:
        super().__init__(precision=precision)

"""The encoded requests (request.py) that `flags` puts in force: a stack of entries in each context of `contextvars`.

Every asyncio task has its own stack, a copy of the stack of the context that created it; a thread starts with none.
Called by request.py and compile/tracing.py; must not decode a request.

Scopes end in any order: two generators, each inside its own `with`, or tasks that share one object. So `leave` removes
only the entry of its owner; a token's `reset` would restore entries that have ended since.

Dynamo (torch 2.10 to 2.13) does not support ContextVar. In traced code the stack is an attribute of an object, which is
empty again when the code ends; the context around that code is read through `_State.now`.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import types
from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import Any

from torch.compiler import is_dynamo_compiling

# A request and its owner. Each `enter` makes a new tuple, so an entry is identified by its identity.
_Entry = tuple[str | None, object]


class _State:
    """The innermost request in force, which every call reads, and all entries, innermost last.

    `now` of any state is the state of this context, for Dynamo: Dynamo assumes that a property with a getter in C has
    no side effects, reads the value while tracing, and its guards read it again before the compiled program runs, in
    the context of that run. So another request recompiles the program.
    """

    __slots__ = ("entries", "requested")
    now: Any

    def __init__(self, entries: tuple[_Entry, ...]) -> None:
        self.requested = entries[-1][0] if entries else None
        self.entries = entries


_nothing = _State(())
_state: ContextVar[_State] = ContextVar("convt_ext.flags", default=_nothing)
_State.now = property(_state.get)  # `get` receives the object as its default, which is right for `_nothing`


class _Traced(threading.local):
    """The requests of `flags` inside code that Dynamo traces, where scopes end in reverse order.

    Requests without owners, because torch 2.13 allows the body of a checkpoint to change only constants. An attribute
    of the instance and not of the class, because Dynamo guards on its location and the first write would change that.
    """

    def __init__(self) -> None:
        self.requests: tuple[str | None, ...] = ()


_traced = _Traced()

# The state of this context.
now = _state.get


def traced_request() -> str | None:
    """Returns `now().requested` in code that Dynamo may trace: its own innermost request, else that of the context."""
    return _traced.requests[-1] if _traced.requests else _nothing.now.requested


def is_entered() -> bool:
    """Returns whether `flags` are active, including `flags()`."""
    return len(_traced.requests) > 0 or len(_nothing.now.entries) > 0


def _put(entries: tuple[_Entry, ...]) -> None:
    _state.set(_State(entries) if entries else _nothing)


def enter(requested: str | None, owner: object) -> None:
    """Puts `requested` in force, in this context."""
    if is_dynamo_compiling():
        _traced.requests = (*_traced.requests, requested)
    else:
        _state.set(_State((*now().entries, (requested, owner))))


def leave(owner: object) -> None:
    """Removes the innermost entry of `owner` from the stack; raises a RuntimeError if this context has none."""
    if is_dynamo_compiling():
        requests = _traced.requests
        if requests:
            _traced.requests = requests[:-1]
            return
    else:
        entries = now().entries
        index = len(entries) - 1
        while index >= 0 and entries[index][1] is not owner:
            index -= 1
        if index >= 0:
            _put(entries[:index] + entries[index + 1 :])
            return
    raise RuntimeError(
        "convt_ext.flags exit in a context (a thread or an asyncio task) that did not enter it. A `with` must exit in "
        "the thread or task that entered it; decorate a generator that several of them run with @flags(...) "
        "instead"
    )


class _Body:
    """A function's body that runs in steps: its request is in force, innermost, during each step and not between them.

    Between steps, the entries of the body are removed from the stack.
    """

    def __init__(self, requested: str | None) -> None:
        self._own: tuple[_Entry, ...] = ((requested, self),)
        self._around: tuple[_Entry, ...] = ()

    def __enter__(self) -> None:
        self._around = now().entries
        _put(self._around + self._own)

    def __exit__(self, *exc_info: object) -> None:
        own, others = [], []
        for entry in now().entries:
            if _is_among(entry, self._around):
                others.append(entry)
            else:
                own.append(entry)
        self._own, self._around = tuple(own), ()
        _put(tuple(others))


def _is_among(entry: _Entry, entries: tuple[_Entry, ...]) -> bool:
    for other in entries:  # noqa: SIM110 (Dynamo refuses a generator expression in code that it does not trace)
        if other is entry:
            return True
    return False


def _in_steps(iterator: Any, body: _Body) -> Generator[Any, Any, Any]:
    """Runs `iterator` (a generator, or the iterator of an awaitable), each step inside `body`."""
    try:
        with body:
            result = iterator.send(None)
        while True:
            try:
                sent = yield result
            except BaseException as error:
                with body:
                    result = iterator.throw(error)
            else:
                with body:
                    result = iterator.send(sent)
    except StopIteration as end:
        return end.value


def _in_traced_steps(iterator: Generator[Any, Any, Any], requested: str | None) -> Generator[Any, Any, None]:
    """Runs `_in_steps` in code that Dynamo traces, which supports only `next` of a generator."""
    own: tuple[str | None, ...] = (requested,)
    while True:
        around = _traced.requests
        _traced.requests = around + own
        try:
            result = next(iterator)
        except StopIteration:
            return
        finally:
            own, _traced.requests = _traced.requests[len(around) :], around
        yield result


@types.coroutine
def _awaited(awaitable: Any, body: _Body) -> Generator[Any, Any, Any]:
    """Awaits `awaitable`, each step inside `body`."""
    return (yield from _in_steps(awaitable.__await__(), body))


def decorated_in_steps(function: Callable[..., Any], requested: str | None) -> Callable[..., Any] | None:
    """Wraps a generator, coroutine or async generator function to run its body under `requested`; else returns None."""
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generator(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            iterator = function(*args, **kwargs)
            traced = is_dynamo_compiling()
            return (
                yield from _in_traced_steps(iterator, requested) if traced else _in_steps(iterator, _Body(requested))
            )

        return generator

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            return await _awaited(function(*args, **kwargs), _Body(requested))

        return coroutine

    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def async_generator(*args: Any, **kwargs: Any) -> Any:
            steps, body = function(*args, **kwargs), _Body(requested)
            hooks = sys.get_asyncgen_hooks()
            sys.set_asyncgen_hooks(None, None)  # a closing event loop must close this generator, which closes `steps`
            try:
                first = steps.asend(None)
            finally:
                sys.set_asyncgen_hooks(*hooks)
            try:
                result = await _awaited(first, body)
                while True:
                    try:
                        sent = yield result
                    except BaseException as error:
                        result = await _awaited(steps.athrow(error), body)
                    else:
                        result = await _awaited(steps.asend(sent), body)
            except StopAsyncIteration:
                return

        return async_generator

    return None

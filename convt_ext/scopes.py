"""The words that `use_precision` puts in force: a stack of entries in each context of `contextvars`.

So every asyncio task has its own, begun as a copy of the one in which it was created, and a thread begins with none.
Called by precision.py and compile/tracing.py; must not know what a word means.

Scopes end in any order: two generators, each inside of its own `with`, or tasks that share one object. So leaving
removes the entry of the one that leaves, and nothing else: a token's `reset` would bring back what has ended since.

Dynamo (torch 2.10 to 2.13) cannot follow a ContextVar. In the code that it traces the stack is an attribute of an
object, which is empty again when the code ends; what surrounds that code it reads through `_State.now`.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import Any

from torch.compiler import is_dynamo_compiling

# A word, and who entered it. Each entering makes a new tuple, so an entry is known by its identity.
_Entry = tuple[str | None, object]


class _State:
    """The innermost word in force, for which every call asks, beside all entries, innermost last.

    `now` of any state is the state of this context, for Dynamo: it takes a property whose getter is written in C for
    free of side effects, reads the value while tracing, and its guards read it again before the compiled program runs,
    in the context of that run. So a program is compiled again under another word.
    """

    __slots__ = ("entries", "word")
    now: Any

    def __init__(self, entries: tuple[_Entry, ...]) -> None:
        self.word = entries[-1][0] if entries else None
        self.entries = entries


_nothing = _State(())
_state: ContextVar[_State] = ContextVar("convt_ext.use_precision", default=_nothing)
_State.now = property(_state.get)  # called with its object, which `get` takes for a default: right for `_nothing`'s


class _Traced(threading.local):
    """The words of `use_precision` inside of code that Dynamo traces, where the last one entered is left first.

    Words alone, because torch 2.13 lets the body of a checkpoint change nothing but constants. An attribute of the
    instance, not of the class: Dynamo's guard says where it found `words`, and the first write would move it.
    """

    def __init__(self) -> None:
        self.words: tuple[str | None, ...] = ()


_traced = _Traced()

# The state of this context.
now = _state.get


def traced_word() -> str | None:
    """As `now().word`, in code that may be traced by Dynamo: its own innermost word, else the one around it."""
    return _traced.words[-1] if _traced.words else _nothing.now.word


def is_entered() -> bool:
    """Whether a `use_precision` is in force, also one of None."""
    return len(_traced.words) > 0 or len(_nothing.now.entries) > 0


def _put(entries: tuple[_Entry, ...]) -> None:
    _state.set(_State(entries) if entries else _nothing)


def enter(word: str | None, owner: object) -> None:
    """Put `word` in force, in this context."""
    if is_dynamo_compiling():
        _traced.words = (*_traced.words, word)
    else:
        _state.set(_State((*now().entries, (word, owner))))


def leave(owner: object) -> None:
    """Remove the innermost entry of `owner`, wherever in the stack it is.

    Raises:
        RuntimeError: this context has none.
    """
    if is_dynamo_compiling():
        words = _traced.words
        if words:
            _traced.words = words[:-1]
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
        "use_precision is left in a context (a thread or an asyncio task) that did not enter it. A `with` ends in the "
        "thread or task in which it began: for a generator that several of them run, decorate it with "
        "@use_precision(...) instead"
    )


class _Body:
    """A function's body that runs in steps: during each its word is in force, innermost, and not in between.

    What the body itself has entered is put away and comes back with it.
    """

    def __init__(self, word: str | None) -> None:
        self._own: tuple[_Entry, ...] = ((word, self),)
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
    """What `iterator` does (a generator, or what an awaitable is driven by), each step inside of `body`."""
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


def _in_traced_steps(iterator: Generator[Any, Any, Any], word: str | None) -> Generator[Any, Any, None]:
    """As `_in_steps`, in code that Dynamo traces, which knows nothing of a generator but `next`."""
    own: tuple[str | None, ...] = (word,)
    while True:
        around = _traced.words
        _traced.words = around + own
        try:
            result = next(iterator)
        except StopIteration:
            return
        finally:
            own, _traced.words = _traced.words[len(around) :], around
        yield result


class _Awaited:
    """An awaitable whose steps run inside of `body`."""

    def __init__(self, awaitable: Any, body: _Body) -> None:
        self._awaitable = awaitable
        self._body = body

    def __await__(self) -> Generator[Any, Any, Any]:
        return _in_steps(self._awaitable.__await__(), self._body)


def decorated_in_steps(function: Callable[..., Any], word: str | None) -> Callable[..., Any] | None:
    """A generator, coroutine or async generator function whose body runs with `word` in force; None for any other."""
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generator(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            iterator = function(*args, **kwargs)
            traced = is_dynamo_compiling()
            return (yield from _in_traced_steps(iterator, word) if traced else _in_steps(iterator, _Body(word)))

        return generator

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            return await _Awaited(function(*args, **kwargs), _Body(word))

        return coroutine

    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def async_generator(*args: Any, **kwargs: Any) -> Any:
            steps, body = function(*args, **kwargs), _Body(word)
            hooks = sys.get_asyncgen_hooks()
            sys.set_asyncgen_hooks(
                None, None
            )  # an event loop that ends must close this generator, which closes `steps`
            try:
                first = steps.asend(None)
            finally:
                sys.set_asyncgen_hooks(*hooks)
            try:
                result = await _Awaited(first, body)
                while True:
                    try:
                        sent = yield result
                    except BaseException as error:
                        result = await _Awaited(steps.athrow(error), body)
                    else:
                        result = await _Awaited(steps.asend(sent), body)
            except StopAsyncIteration:
                return

        return async_generator

    return None

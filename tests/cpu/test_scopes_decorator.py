"""`use_precision` as a decorator of generators, coroutines, async generators and methods.

Makes no calls: `requested()` is the request that a call would have.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys

import pytest
from scope_requests import nothing_stays_in_force, requested

from convt_ext import use_precision

__all__ = ["nothing_stays_in_force"]


@use_precision("exact")
def echo(count, ended=None):
    """Yields the precision and the sent value; records how it ended."""
    sent = None
    try:
        for _ in range(count):
            try:
                sent = yield requested(), sent
            except KeyError as error:
                sent = error.args[0]
    finally:
        if ended is not None:
            ended.append(requested())
    return requested(), "end"


def test_a_decorated_generator_has_its_request_only_while_it_runs():
    steps = echo(3)
    assert inspect.isgeneratorfunction(echo)
    assert inspect.isgenerator(steps)
    assert echo.__name__ == "echo"
    assert requested() is None
    assert next(steps) == ("exact", None)
    assert requested() is None
    with use_precision("aten"):
        assert steps.send("sent") == ("exact", "sent")
        assert requested() == "aten"
    assert steps.throw(KeyError("thrown")) == ("exact", "thrown")
    assert requested() is None
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value == ("exact", "end")


@pytest.mark.parametrize("ends", ["closed", "dropped", "an exception"])
def test_a_decorated_generator_cleans_up_with_its_request(ends):
    ended = []
    steps = echo(3, ended)
    next(steps)
    if ends == "closed":
        steps.close()
    elif ends == "an exception":
        with pytest.raises(ValueError, match="passes"):
            steps.throw(ValueError("passes"))
        with pytest.raises(StopIteration):
            next(steps)
    del steps
    gc.collect()
    assert ended == ["exact"]
    assert requested() is None


def test_a_decorated_generator_that_goes_on_after_close_is_an_error():
    @use_precision("exact")
    def stubborn():
        try:
            yield
        except GeneratorExit:
            yield

    steps = stubborn()
    next(steps)
    with pytest.raises(RuntimeError, match="ignored GeneratorExit"):
        steps.close()
    assert requested() is None


def test_contexts_inside_and_around_a_decorated_body_are_independent():
    @use_precision("exact")
    def body(outer):
        yield requested()
        with use_precision("tf32"):
            yield requested()
            yield requested()
            outer.__exit__(None, None, None)  # not the body's: it ends for the one that entered it
            yield requested()
        yield requested()

    outer = use_precision("aten")
    steps = body(outer)
    assert next(steps) == "exact"
    outer.__enter__()
    assert next(steps) == "tf32"
    assert requested() == "aten"
    with use_precision(None):
        assert next(steps) == "tf32"
        assert requested() is None
    assert next(steps) == "tf32"
    assert requested() is None
    assert list(steps) == ["exact"]


def run_by_hand(coroutine):
    """Returns the precisions that the caller sees between the steps, and the result."""
    between = []
    while True:
        try:
            coroutine.send(None)
        except StopIteration as end:
            return between, end.value
        between.append(requested())


def test_a_decorated_coroutine_has_its_request_only_while_it_runs():
    @use_precision("exact")
    async def work():
        found = [requested()]
        await asyncio.sleep(0)
        with use_precision("aten"):
            await asyncio.sleep(0)
            found.append(requested())
        found.append(requested())
        return found

    assert inspect.iscoroutinefunction(work)
    assert run_by_hand(work()) == ([None, None], ["exact", "aten", "exact"])


def test_a_decorated_coroutine_that_is_cancelled_cleans_up_with_its_request():
    found = []

    @use_precision("exact")
    async def work():
        try:
            await asyncio.sleep(60)
        finally:
            found.append(requested())

    async def main():
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert found == ["exact"]


@use_precision("exact")
async def aecho(count, ended=None):
    sent = None
    try:
        for _ in range(count):
            await asyncio.sleep(0)
            try:
                sent = yield requested(), sent
            except KeyError as error:
                sent = error.args[0]
    finally:
        await asyncio.sleep(0)
        if ended is not None:
            ended.append(requested())


def test_a_decorated_async_generator_has_its_request_only_while_it_runs():
    async def main():
        ended = []
        steps = aecho(4, ended)
        assert inspect.isasyncgenfunction(aecho)
        assert inspect.isasyncgen(steps)
        assert await anext(steps) == ("exact", None)
        assert requested() is None
        with use_precision("aten"):
            assert await steps.asend("sent") == ("exact", "sent")
            assert requested() == "aten"
        assert await asyncio.create_task(steps.athrow(KeyError("thrown"))) == ("exact", "thrown")
        assert [one async for one in steps] == [("exact", None)]
        assert ended == ["exact"]
        with pytest.raises(StopAsyncIteration):
            await anext(steps)
        other = aecho(4, ended)
        await anext(other)
        await other.aclose()
        assert ended == ["exact", "exact"]
        failing = aecho(4, ended)
        await anext(failing)
        with pytest.raises(ValueError, match="passes"):
            await failing.athrow(ValueError("passes"))
        assert ended == ["exact"] * 3
        assert requested() is None

    asyncio.run(main())


@pytest.mark.parametrize("kept", [True, False], ids=["kept until the loop ends", "dropped"])
def test_a_decorated_async_generator_that_is_not_finished(kept, monkeypatch):
    """asyncio closes it without an error, and its cleanup runs under its precision."""
    lost, ended, keep = [], [], []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: lost.append(context))
        steps = aecho(4, ended)
        await anext(steps)
        if kept:
            keep.append(steps)
        del steps
        gc.collect()
        await asyncio.sleep(0.01)

    asyncio.run(main())
    assert lost == []
    assert ended == ["exact"]


def test_decorated_methods():
    class Model:
        precision = "aten"

        @use_precision("exact")
        def steps(self):
            yield requested(), self.precision

        @use_precision("exact")
        async def work(self):
            return requested(), self.precision

    assert list(Model().steps()) == [("exact", "aten")]
    assert asyncio.run(Model().work()) == ("exact", "aten")

"""`use_precision` under concurrency: asyncio tasks, threads, generators, and exits in any order.

Makes no calls: `requested()` is the request that a call would have.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scope_requests import nothing_stays_in_force, requested

from convt_ext import use_precision
from convt_ext.dispatch.request import PRECISIONS

__all__ = ["nothing_stays_in_force"]

# Exits in any order.


def inside(precision):
    with use_precision(precision):
        yield requested()
        yield requested()


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.parametrize("ends", ["exhausted", "closed", "dropped"])
def test_generators_end_in_any_order(order, ends):
    precisions = ("exact", "aten", None)
    generators = [inside(precision) for precision in precisions]
    assert [next(generator) for generator in generators] == [*precisions]
    open_ones = list(range(3))
    for index in order:
        if ends == "exhausted":
            list(generators[index])
        elif ends == "closed":
            generators[index].close()
        generators[index] = None  # which ends it at once, in CPython
        open_ones.remove(index)
        assert requested() == (precisions[open_ones[-1]] if open_ones else None)


@given(st.lists(st.integers(-10, 5)))
def test_any_sequence_of_entering_and_leaving(steps):
    """Compares with a list: a negative number exits an entered object, which removes its last entry."""
    objects = {use_precision(one): one for one in (*PRECISIONS, None)}
    entered = []

    def leave(one):
        one.__exit__(None, None, None)
        del entered[max(index for index, other in enumerate(entered) if other is one)]

    for step in [*steps, *[-1] * len(steps)]:
        if step >= 0:
            entered.append(list(objects)[step].__enter__())
        elif entered:
            leave(entered[step % len(entered)])
        assert requested() == (objects[entered[-1]] if entered else None)


# Tasks and threads.


def test_a_task_starts_with_the_request_at_its_creation():
    async def child(parent_left):
        before = requested()
        await parent_left.wait()
        with use_precision("aten"):
            inner = requested()
        return before, requested(), inner

    async def main():
        parent_left = asyncio.Event()
        with use_precision("exact"):
            task = asyncio.create_task(child(parent_left))
            await asyncio.sleep(0)
        assert requested() is None
        parent_left.set()
        return await task

    assert asyncio.run(main()) == ("exact", "exact", "aten")


def test_a_thread_begins_with_none_unless_it_is_given_a_context():
    async def main():
        with use_precision("exact"):
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(None, requested), await asyncio.to_thread(requested)

    assert asyncio.run(main()) == (None, "exact")  # as asyncio documents both


def test_each_task_has_its_own_request_also_of_a_shared_object():
    shared = use_precision("exact")

    async def task(precision, turns):
        with use_precision(precision):
            for _ in range(turns):
                assert requested() == precision
                await asyncio.sleep(0)
            with shared:
                for _ in range(turns):
                    await asyncio.sleep(0)
                    assert requested() == "exact"
                with shared:
                    await asyncio.sleep(0)
                assert requested() == "exact"
            assert requested() == precision
        return requested()

    async def main():
        turns = (("exact", 3), ("aten", 1), (None, 4), ("tf32", 1), ("aten", 5))
        return await asyncio.gather(*(task(*one) for one in turns))

    found = []
    threads = [threading.Thread(target=lambda: found.extend(asyncio.run(main()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [None] * 20


def test_leaving_elsewhere_is_an_error_and_changes_nothing():
    one = use_precision("exact")

    def leave():
        with use_precision("aten"):
            with pytest.raises(RuntimeError, match=r"did not enter it.*decorate"):
                one.__exit__(None, None, None)
            assert requested() == "aten"
        assert requested() is None

    with one:
        contextvars.Context().run(leave)
        assert requested() == "exact"
    thread = threading.Thread(target=leave)
    thread.start()
    thread.join()
    with pytest.raises(RuntimeError, match="did not enter"):
        one.__exit__(None, None, None)

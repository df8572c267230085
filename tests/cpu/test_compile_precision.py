"""`use_precision` and torch.compile: contexts around a compiled function, inside of it, and in its generators."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from cases import named
from cpu_kernels import CODES
from served import allow_tf32
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.checkpoint import checkpoint

from convt_ext import conv_transpose2d as ours
from convt_ext import flags, use_precision
from convt_ext.dispatch import precision, scopes

pytestmark = pytest.mark.usefixtures("cpu_is_gpu")

DEFAULT = "default"


@pytest.fixture
def x_and_weight():
    x, weight, _ = named("k4s2p1").tensors()
    return x, weight


def ours_in(graph):
    """Returns the precision code, or `DEFAULT`, of each convt_ext call in a graph, in order."""
    calls = [node for node in graph.graph.nodes if "convt_ext." in str(node.target)]
    return [node.args[8] if "convt_ext.forward" in str(node.target) else DEFAULT for node in calls]


class Traced:
    """A function compiled as one graph; `__call__` runs it and returns the content of its latest graph."""

    def __init__(self, function):
        self.counter = CompileCounterWithBackend("eager")
        self.program = torch.compile(function, backend=self.counter, fullgraph=True)

    def __call__(self, x, weight):
        self.program(x, weight)
        assert scopes.now().requested == self.request_before
        return ours_in(self.counter.graphs[-1])

    def under(self, word, x, weight):
        context = contextlib.nullcontext() if word == DEFAULT else use_precision(word)
        with context:
            self.request_before = scopes.now().requested
            return self(x, weight)


def plain(x, weight):
    return ours(x, weight, stride=2)


def test_only_another_request_recompiles_a_program(x_and_weight):
    traced = Traced(plain)
    for word, code in ((DEFAULT, DEFAULT), ("exact", 0), ("aten", 1), (None, DEFAULT)):
        assert traced.under(word, *x_and_weight) == [code]
    assert traced.counter.frame_count == 4
    for word in (DEFAULT, None, "exact", "aten"):
        traced.under(word, *x_and_weight)
        if word != DEFAULT:
            with use_precision("tf32"):  # the depth of the stack has no effect
                traced.under(word, *x_and_weight)
    assert traced.counter.frame_count == 4


def test_tasks_and_threads_run_the_program_of_their_own_request(x_and_weight):
    program = torch.compile(plain, backend="aot_eager", fullgraph=True)

    async def work(word):
        with use_precision(word):
            for _ in range(3):
                CODES.clear()
                program(*x_and_weight)
                assert set(CODES) == {precision.CODES["ieee" if word == "exact" else word]}
                await asyncio.sleep(0)

    async def main():
        await asyncio.gather(work("exact"), work("aten"), work("tf32x3"))

    asyncio.run(main())
    with use_precision("aten"), ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(work("tf32x3"))).result()


@use_precision("aten")
def words_of(x, weight, count):
    for _ in range(count):
        yield ours(x, weight, stride=2)


def with_a_decorated_generator(x, weight):
    return [result + ours(x, weight, stride=2) for result in words_of(x, weight, 2)]


def nested(x, weight):
    with use_precision("aten"):
        first = ours(x, weight, stride=2)
        with use_precision(None):
            second = ours(x, weight, stride=2)
        return first + second + ours(x, weight, stride=2)


def after_an_exception(x, weight):
    try:
        with use_precision("aten"):
            raise ValueError
    except ValueError:
        pass
    return ours(x, weight, stride=2)


def decorated_inside(x, weight):
    return use_precision("aten")(plain)(x, weight) + ours(x, weight, stride=2)


@pytest.mark.parametrize(
    ("function", "by_default", "under_ieee"),
    [
        (with_a_decorated_generator, [1, DEFAULT, 1, DEFAULT], [1, 0, 1, 0]),
        (nested, [1, DEFAULT, 1], [1, DEFAULT, 1]),
        (after_an_exception, [DEFAULT], [0]),
        (decorated_inside, [1, DEFAULT], [1, 0]),
    ],
)
def test_contexts_inside_of_a_program(function, by_default, under_ieee, x_and_weight):
    traced = Traced(function)
    assert traced.under(DEFAULT, *x_and_weight) == by_default
    assert traced.under("exact", *x_and_weight) == under_ieee


BACKENDS = {  # requests, and the precision codes in the graph under TF32 and under float32; None is PyTorch's operator
    (None, "auto"): (DEFAULT, DEFAULT),
    (None, "convt_ext"): (3, 0),
    (None, "torch"): (None, None),
    ("tf32", "auto"): (3, 3),
    ("ieee", "auto"): (0, 0),
    ("exact", "convt_ext"): (0, 0),
}


@pytest.mark.parametrize("asked", BACKENDS, ids=str)
@pytest.mark.parametrize("on", [True, False], ids=["TF32", "float32"])
@pytest.mark.parametrize("way", ["keywords", "flags outside", "flags inside"])
def test_backends_of_a_program(asked, on, way, x_and_weight):
    """An explicit precision is part of the program, so its op must not follow switches that change before it runs."""
    asked_of_call = dict(zip(("precision", "backend"), asked, strict=True))

    def with_keywords(x, weight):
        return ours(x, weight, stride=2, **asked_of_call)

    def with_flags(x, weight):
        with flags(**asked_of_call):
            return ours(x, weight, stride=2)

    traced = Traced({"keywords": with_keywords, "flags inside": with_flags}.get(way, plain))
    outside = flags(**asked_of_call) if way == "flags outside" else contextlib.nullcontext()
    with allow_tf32(on), outside:
        traced.request_before = scopes.now().requested
        code = BACKENDS[asked][0 if on else 1]
        assert traced(*x_and_weight) == ([] if code is None else [code])


def test_a_checkpoint_of_a_decorated_function_is_compiled(x_and_weight):
    """Its body may only set attributes of objects to constants, and must restore them."""
    if torch.__version__ < "2.13":
        pytest.skip("this release refuses every change of an object in a checkpoint")
    x, weight = (tensor.requires_grad_() for tensor in x_and_weight)
    call = lambda x, weight: checkpoint(use_precision("aten")(plain), x, weight, use_reentrant=False)  # noqa: E731
    result = torch.compile(call, backend="aot_eager", fullgraph=True)(x, weight)
    torch.testing.assert_close(result, plain(x, weight))
    result.sum().backward()


def test_a_graph_break_inside_of_a_context(x_and_weight):
    def broken(x, weight):
        with use_precision("aten"):
            first = ours(x, weight, stride=2)
            torch._dynamo.graph_break()
            return first + ours(x, weight, stride=2) + 1

    counter = CompileCounterWithBackend("eager")
    program = torch.compile(broken, backend=counter)
    for _ in range(2):
        torch.testing.assert_close(program(*x_and_weight), broken(*x_and_weight))
    assert [code for graph in counter.graphs for code in ours_in(graph)] in ([1], [1, 1])
    assert scopes.now().requested is None


def test_a_context_that_is_not_left_properly_is_an_error_while_tracing(x_and_weight):
    def leaves(x, weight):
        use_precision("aten").__exit__(None, None, None)
        return ours(x, weight, stride=2)

    with pytest.raises(Exception, match=r"did not enter|Observed exception"):
        torch.compile(leaves, backend="eager", fullgraph=True)(*x_and_weight)

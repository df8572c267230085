"""`convt_ext.enable`: replaces PyTorch's function, and tools that inspect the function recognize it. On the CPU."""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from bad_input import outcome
from cases import named
from cpu.python_process import run_each
from cpu_kernels import RAN
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.overrides import TorchFunctionMode

import convt_ext
from convt_ext import functional, use_precision

pytestmark = pytest.mark.usefixtures("cpu_is_gpu")

BUILTIN = torch.conv_transpose2d


@pytest.fixture
def enabled():
    with convt_ext.enabled():
        yield
    assert F.conv_transpose2d is torch.conv_transpose2d is BUILTIN


def operands():
    return named("k4s2p1").tensors()


def is_served(call) -> bool:
    """Returns whether a call runs a convt_ext kernel, and checks its result."""
    RAN.clear()
    result = call()
    ran = list(RAN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(functional, "stand_in_serves", False)
        expected = call()
    assert torch.equal(result, expected)
    return ran == ["forward"]


def test_modules_and_functions_run_convt_ext(enabled):
    x, weight, bias = operands()
    layer = nn.ConvTranspose2d(6, 10, 4, 2, 1)
    assert is_served(lambda: F.conv_transpose2d(x, weight, bias, 2, 1))
    assert is_served(lambda: torch.conv_transpose2d(x, weight, bias, stride=2, padding=1))
    assert is_served(lambda: F.conv_transpose2d(input=x[0], weight=weight))
    assert is_served(lambda: layer(torch.ones(1, 6, 5, 5)))
    assert is_served(lambda: nn.LazyConvTranspose2d(3, 2)(torch.ones(1, 6, 5, 5)) * 0)
    assert is_served(lambda: convt_ext.conv_transpose2d(x, weight, bias, 2, 1))
    assert is_served(lambda: convt_ext.convert(copy.deepcopy(layer))(torch.ones(1, 6, 5, 5)))
    assert is_served(lambda: F.conv_transpose1d(torch.ones(1, 2, 5), torch.ones(2, 3, 3)))
    assert is_served(lambda: F.conv_transpose3d(torch.ones(1, 2, 5, 5, 5), torch.ones(2, 3, 3, 3, 3)))


def test_gradients(enabled):
    x, weight, bias = (tensor.requires_grad_() for tensor in operands())
    found = torch.autograd.grad(F.conv_transpose2d(x, weight, bias, 2, 1).square().sum(), (x, weight, bias))
    assert "grad_input" in RAN
    expected = torch.autograd.grad(BUILTIN(x, weight, bias, 2, 1).square().sum(), (x, weight, bias))
    torch.testing.assert_close(found, expected)


def test_models_stay_what_they_are(enabled):
    layer = nn.ConvTranspose2d(6, 10, 4, 2, 1)
    assert type(layer) is nn.ConvTranspose2d
    assert pickle.loads(pickle.dumps(F.conv_transpose2d)) is F.conv_transpose2d
    assert F.conv_transpose2d.__doc__ == BUILTIN.__doc__
    loaded = pickle.loads(pickle.dumps(layer))
    assert torch.equal(loaded(torch.ones(1, 6, 5, 5)), layer(torch.ones(1, 6, 5, 5)))


def test_it_is_counted():
    assert F.conv_transpose2d is BUILTIN
    convt_ext.enable()
    with convt_ext.enabled():
        convt_ext.enable()
        convt_ext.disable()
        assert F.conv_transpose2d is not BUILTIN
    assert F.conv_transpose2d is torch.conv_transpose2d is functional.STAND_INS[2]
    convt_ext.disable()
    assert F.conv_transpose2d is torch.conv_transpose2d is BUILTIN
    with pytest.raises(RuntimeError, match="more often than"):
        convt_ext.disable()


def test_threads():
    def work(_):
        for _ in range(200):
            with convt_ext.enabled():
                assert F.conv_transpose2d is functional.STAND_INS[2]
                F.conv_transpose2d(torch.ones(1, 1, 1, 1), torch.ones(1, 1, 1, 1))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert F.conv_transpose2d is torch.conv_transpose2d is BUILTIN


def test_overrides_see_the_function_that_they_know(enabled):
    class Subclass(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            seen.append(function)
            return super().__torch_function__(function, types, args, kwargs or {})

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    seen: list = []
    x, weight, bias = operands()
    F.conv_transpose2d(x.as_subclass(Subclass), weight, bias, 2, 1)
    with Mode():
        F.conv_transpose2d(x, weight, bias, 2, 1)
    assert seen == [BUILTIN, BUILTIN]
    assert RAN == []


def test_graphs_hold_the_function_that_they_know(enabled):
    traced = torch.fx.symbolic_trace(lambda x, weight: F.conv_transpose2d(x, weight, None, 2, 1).relu())
    assert BUILTIN in [node.target for node in traced.graph.nodes]
    x, weight, _ = operands()
    assert is_served(lambda: traced(x, weight))  # its code calls torch.conv_transpose2d


def test_torchscript_and_transforms_have_pytorchs_operator(enabled):
    layer, x = nn.ConvTranspose2d(6, 10, 4, 2, 1), torch.ones(1, 6, 5, 5)
    expected = BUILTIN(x, layer.weight, layer.bias, 2, 1)
    assert torch.equal(torch.jit.script(layer)(x), expected)
    assert torch.equal(torch.jit.trace(layer, x)(x), expected)
    x, weight, _ = operands()
    batched = torch.vmap(lambda one: F.conv_transpose2d(one, weight))(x[None])
    torch.testing.assert_close(batched[0], BUILTIN(x, weight))
    _, tangent = torch.func.jvp(lambda one: F.conv_transpose2d(one, weight), (x,), (x,))
    torch.testing.assert_close(tangent, BUILTIN(x, weight))
    program = torch.export.export(layer, (torch.ones(1, 6, 5, 5),))
    assert torch.equal(program.module()(torch.ones(1, 6, 5, 5)), expected)


def test_compiled_code_runs_convt_ext_while_it_is_enabled():
    layer, x = nn.ConvTranspose2d(6, 10, 4, 2, 1), torch.ones(1, 6, 5, 5)
    counter = CompileCounterWithBackend("aot_eager")
    program = torch.compile(layer, backend=counter, fullgraph=True)
    for serves in (False, True, False):
        with convt_ext.enabled() if serves else contextlib.nullcontext():
            RAN.clear()
            program(x)
            assert bool(RAN) is serves
    targets = [[str(node.target) for node in graph.graph.nodes] for graph in counter.graphs]
    assert [any("convt_ext" in name for name in names) for names in targets] == [False, True]


def test_dynamo_has_rules_for_pytorchs_function_in_any_import_order():
    """Dynamo lists the functions of torch when it is imported."""
    program = """
import sys, torch, convt_ext
assert "torch._dynamo" not in sys.modules
builtin = torch.conv_transpose2d
FIRST
SECOND
from torch._dynamo import trace_rules
rules = trace_rules.get_torch_obj_rule_map()
assert builtin in rules
assert torch.conv_transpose2d not in rules
assert torch.conv_transpose2d is torch.nn.functional.conv_transpose2d is not builtin
assert not any("convt_ext" in type(one).__module__ for one in sys.meta_path)
convt_ext.disable()
assert torch.jit.script(torch.nn.ConvTranspose2d(1, 1, 1))(torch.ones(1, 1, 1, 1)).shape == (1, 1, 1, 1)
"""
    lines = ["convt_ext.enable()", "import torch._dynamo"]
    orders = (lines, lines[::-1])
    run_each("import torch", [program.replace("FIRST", one).replace("SECOND", other) for one, other in orders])


def test_a_tool_that_wraps_our_function_sees_each_call_once(monkeypatch):
    seen = []
    layer, x = nn.ConvTranspose2d(6, 10, 4, 2, 1), torch.ones(1, 6, 5, 5)
    converted = convt_ext.convert(copy.deepcopy(layer))
    with convt_ext.enabled():
        ours = F.conv_transpose2d

        def wrapper(*args, **kwargs):
            seen.append(args)
            return ours(*args, **kwargs)

        monkeypatch.setattr(F, "conv_transpose2d", wrapper)
        for model in (layer, converted):
            assert is_served(lambda model=model: model(x))
        assert len(seen) == 4  # is_served calls twice
        F.conv_transpose2d(*(torch.ones(1, 1, 1, 1, dtype=torch.complex64) for _ in "xw"))  # PyTorch's operator runs it
        assert len(seen) == 5
    assert F.conv_transpose2d is wrapper
    RAN.clear()
    layer(x)
    assert RAN == []
    assert len(seen) == 6


def test_a_tool_that_came_before_is_left_alone(monkeypatch, caplog):
    monkeypatch.setattr(F, "conv_transpose2d", lambda *args: BUILTIN(*args))
    tool = F.conv_transpose2d
    with caplog.at_level(logging.WARNING, "convt_ext"), convt_ext.enabled():
        assert F.conv_transpose2d is tool
        assert torch.conv_transpose2d is functional.STAND_INS[2]
    assert F.conv_transpose2d is tool
    assert "torch.nn.functional.conv_transpose2d, which is" in caplog.text


def test_errors_are_pytorchs(enabled):
    x, weight, bias = operands()
    for arguments in ((x, weight[:3]), (x, weight, bias, 0), (x, weight, bias, 1, -1), ("x", weight), (x, weight, 3)):
        kind, words = outcome(BUILTIN, *arguments)
        assert issubclass(kind, (RuntimeError, TypeError))
        assert outcome(F.conv_transpose2d, *arguments) == (kind, words)


def test_a_precision_of_a_block_holds(enabled):
    x, weight, bias = operands()
    with use_precision("exact"):
        assert is_served(lambda: F.conv_transpose2d(x, weight, bias, 2, 1))
        with pytest.raises(RuntimeError, match="precision='exact' asks for a kernel"):
            torch.vmap(lambda one: F.conv_transpose2d(one, weight))(x[None])


@pytest.mark.parametrize("how", ["file", "module"])
def test_a_program_is_run_unchanged(tmp_path, how):
    (tmp_path / "neighbour.py").write_text("name = 'found'")
    (tmp_path / "program.py").write_text(
        "import sys, torch, neighbour\n"
        "print(__name__, sys.argv[1:], neighbour.name, torch.conv_transpose2d.__code__.co_filename)\n"
        "sys.exit(3)\n"
    )
    words = ["-m", "program"] if how == "module" else [str(tmp_path / "program.py")]
    command = [sys.executable, "-m", "convt_ext", "run", *words, "--steps", "-m", "4"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("__main__ ['--steps', '-m', '4'] found ")
    assert done.stdout.strip().endswith("functional.py")

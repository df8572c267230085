"""Compiled calls without a precision: ours where eager calls are, to the bit, and nothing slower around them."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from cases import each_case, named
from gradients import leaves, ramp
from served import allow_tf32, switch
from torch import nn
from torch._inductor.utils import run_and_get_code

import convt_ext
from convt_ext import conv_transpose2d as ours
from convt_ext.compile import mode as compile_mode
from convt_ext.dispatch import ops, planner
from convt_ext.tuning import choices

pytestmark = pytest.mark.usefixtures("fresh_compiler")

CLASSES = {
    "ieee": (torch.float32, False), "tf32": (torch.float32, True), "f16": (torch.float16, False),
    "bf16": (torch.bfloat16, False),
}  # fmt: skip


@pytest.fixture
def ours_are_faster(monkeypatch):
    monkeypatch.setattr(planner, "best_plan", lambda *_: planner.BestPlan(300.0, 400.0, 0))


@pytest.fixture
def torchs_is_faster(monkeypatch):
    monkeypatch.setattr(planner, "best_plan", lambda *_: planner.BestPlan(300.0, 200.0, 0))


def need_hopper(kind):
    if kind != "ieee" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("by default PyTorch's operator serves these classes on all GPUs but Hopper's")


def step(call, operands, case, wanted):
    """The result and the gradients of those operands, of a grad_output in the result's format, which a compiled program
    gives it."""
    result = call(*operands, **case.arguments)
    grad_output = torch.empty_like(result).copy_(ramp(result))
    return result, *torch.autograd.grad(result, [operands[one] for one in wanted], grad_output)


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("wanted", [(0, 1, 2), (0,), (1,)], ids=["all", "input", "weight"])
@each_case("k4s2p1", "channels_last", "kb75")
def test_bits_are_those_of_eager_calls(ours_are_faster, monkeypatch, case, wanted, backend, kind):
    need_hopper(kind)
    dtype, on = CLASSES[kind]
    operands = leaves(case, dtype, "cuda")
    for index, operand in enumerate(operands):
        operand.requires_grad_(index in wanted)
    masks = []
    run = ops.run_gradients
    monkeypatch.setattr(ops, "run_gradients", lambda *arguments: masks.append(arguments[-1] & 3) or run(*arguments))
    compiled = torch.compile(lambda *tensors, **named: ours(*tensors, **named), backend=backend, fullgraph=True)
    with allow_tf32(on):
        found = step(compiled, operands, case, wanted)
        assert masks == [(0 in wanted) + 2 * (1 in wanted)]
        expected = step(ours, operands, case, wanted)
    names = ["result", *("input", "weight")]
    for name, one, other in zip(names, found, expected, strict=False):  # the bias's is summed by Inductor
        assert one.stride() == other.stride(), name
        assert torch.equal(one, other), name


@each_case("k4s2p1", "channels_last")
def test_a_fused_bias_keeps_the_bits_of_float32(ours_are_faster, case):
    """In the class that adds it last, where adding it later is the same. Of abs no kernel of ours knows."""
    operands = leaves(case, torch.float32, "cuda")
    call = lambda *tensors: ours(*tensors, **case.arguments).abs()  # noqa: E731
    with allow_tf32(False), torch.no_grad():
        found, codes = run_and_get_code(torch.compile(call, fullgraph=True), *operands)
        assert torch.equal(found, call(*operands))
    assert re.search(r"convt_ext_run_forward\(\w+, \w+, None, ", codes[0])


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@each_case("k4s2p1", "channels_last", "kb75", "channel_slice")
def test_where_pytorchs_operator_is_faster_it_is_called(torchs_is_faster, monkeypatch, case, backend):
    """By our op, where it was compiled."""
    monkeypatch.setattr(compile_mode, "MODE", compile_mode.BARE)
    ran = []
    for name in ("run_forward", "run_gradients"):
        run = getattr(ops, name)
        monkeypatch.setattr(ops, name, lambda *args, run=run: ran.append(ops.remembered(args[3])[15]) or run(*args))
    operands = leaves(case, torch.float32, "cuda")
    compiled = torch.compile(lambda *tensors, **named: ours(*tensors, **named), backend=backend, fullgraph=True)
    with allow_tf32(True), switch(torch.backends.cudnn, "deterministic", True):
        found, expected = (step(call, operands, case, (0, 1, 2)) for call in (compiled, F.conv_transpose2d))
    assert [by_torch & asked for by_torch, asked in zip(ran, (1, 6), strict=True)] == [1, 6]
    for one, other in zip(found, expected, strict=True):
        assert one.stride() == other.stride()
        assert (one - other).norm() <= 2e-3 * other.norm()


@pytest.mark.parametrize("kind", ["tf32", "bf16"])
@pytest.mark.parametrize("trains", [False, True], ids=["infer", "train"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_a_network_has_no_more_kernels_around_it_than_pytorchs(ours_are_faster, layout, trains, kind):
    """Inductor turns such a network of convolutions to channels_last, whatever it was."""
    need_hopper(kind)
    dtype, on = CLASSES[kind]
    counts, results = [], []
    for layer in (convt_ext.ConvTranspose2d, nn.ConvTranspose2d):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(32, 96, 3, padding=1), nn.ReLU(), layer(96, 96, 4, 2, 1), nn.ReLU(),
            nn.Conv2d(96, 32, 3, padding=1),
        ).to("cuda", dtype, memory_format=layout)  # fmt: skip
        x = torch.randn(4, 32, 16, 16, device="cuda", dtype=dtype).to(memory_format=layout).requires_grad_(trains)
        program = torch.compile(model, fullgraph=True)

        def run(program=program, x=x, model=model):
            with torch.set_grad_enabled(trains):
                result = program(x)
                return [result, *(torch.autograd.grad(result.sum(), [x, *model.parameters()]) if trains else ())]

        torch._dynamo.reset()
        with allow_tf32(on):
            found, codes = run_and_get_code(run)
        results.append(found)
        counts.append(sum(len(re.findall(r"\b(?:triton_\w+\.run|extern_kernels\.\w+|torch\.ops\.\w+\.\w+\.\w+)\(",
                                         code[code.index("def call(") :])) for code in codes))  # fmt: skip
    assert counts[0] <= counts[1]
    for one, other in zip(*results, strict=True):
        assert one.stride() == other.stride()
        assert (one.double() - other.double()).norm() <= 3e-2 * other.double().norm()


@pytest.mark.parametrize("kind", ["ieee", "tf32", "bf16"])
@pytest.mark.parametrize("choice", ["ours_are_faster", "torchs_is_faster"])
def test_reduce_overhead(request, choice, kind):
    """CUDA graphs around a program that decides when it runs."""
    need_hopper(kind)
    request.getfixturevalue(choice)
    dtype, on = CLASSES[kind]
    model = convt_ext.ConvTranspose2d(32, 64, 4, stride=2, padding=1, device="cuda", dtype=dtype)
    compiled = torch.compile(lambda x: model(x).relu(), mode="reduce-overhead", fullgraph=True)
    with allow_tf32(on):
        for _ in range(4):
            x = torch.randn(2, 32, 16, 16, device="cuda", dtype=dtype)
            torch.compiler.cudagraph_mark_step_begin()
            result = compiled(x)
            result.sum().backward()
            mine = [result.detach().clone(), model.weight.grad.clone()]
            model.zero_grad()
            expected = F.conv_transpose2d(x, model.weight, model.bias, 2, 1).relu()
            expected.sum().backward()
            for one, other in zip(mine, [expected, model.weight.grad], strict=True):
                assert (one.double() - other.double()).norm() <= 3e-2 * other.double().norm()
            model.zero_grad()


def test_a_captured_program_runs_what_benchmarks_have_chosen_before():
    need_hopper("tf32")
    choices.forget_measured()
    operands = leaves(named("k4s2p1"), torch.float32, "cuda")
    compiled = torch.compile(lambda *tensors: ours(*tensors, 2, 1), mode="reduce-overhead", fullgraph=True)
    with allow_tf32(True), switch(torch.backends.cudnn, "benchmark", True):
        for _ in range(4):
            torch.compiler.cudagraph_mark_step_begin()
            result = compiled(*operands)
            found = [one.clone() for one in (result, *torch.autograd.grad(result, operands[:2], ramp(result)))]
        assert {direction for _, direction, _ in choices.measured()} == {0, 1, 2}
        expected = step(F.conv_transpose2d, operands, named("k4s2p1"), (0, 1))
    for one, other in zip(found, expected, strict=True):
        assert (one - other).norm() <= 2e-3 * other.norm()


def test_derivatives_of_second_order():
    operands = leaves(named("k4s2p1"), torch.float64, "cuda")
    numbers = [2, 2, 1, 1, 0, 0, 1, 1, 1]

    def second(call):
        first = torch.autograd.grad(call(*operands).square().sum(), operands[:2], create_graph=True)
        return torch.autograd.grad(sum(one.square().sum() for one in first), operands)

    found = second(lambda *tensors: torch.ops.convt_ext.conv_transpose2d(*tensors, numbers, None))
    torch.testing.assert_close(found, second(lambda *tensors: F.conv_transpose2d(*tensors, 2, 1)))

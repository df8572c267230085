"""planner.py: queries to the binary, and the results without one. Every shipped measurement identifies a plan."""

from __future__ import annotations

import re
from itertools import product

import pytest
import torch
from cpu.python_process import run
from cpu_kernels import needs_binary
from served import served_by

from convt_ext.dispatch import ops, planner
from convt_ext.environment import _extension
from convt_ext.tuning import files

SIZES = ((2, 4, 5, 6), (120, 30, 6, 1), (4, 6, 3, 3), (54, 9, 3, 1))
PROBLEM = planner.Problem(*SIZES, True, (2, 2), (1, 1), (0, 0), 1, (1, 1), torch.float32, 0, False, planner.H200)


@needs_binary
def test_answer_of_the_binary():
    answer = planner.plan(PROBLEM)
    assert answer["plan"] == answer["candidates"][0]
    assert answer["torch_us"] > 0
    assert planner.plan(PROBLEM._replace(dtype=torch.float64))["torch_us"] > 0
    assert planner.plan(PROBLEM._replace(dtype=torch.float16))["torch_us"] == 0
    with pytest.raises(RuntimeError):
        planner.plan(PROBLEM._replace(device=()))


@needs_binary
@pytest.mark.parametrize("direction", [0, 1, 2])
def test_best_plan_agrees_with_the_whole_answer(direction):
    for code in (0, 3):
        problem = PROBLEM._replace(code=code)
        best, answer = planner.best_plan(problem, direction), planner.plan(problem, direction)
        assert best.estimate_us == pytest.approx(answer["plan"]["estimate_us"], abs=1e-3)
        assert best.torch_us == pytest.approx(answer["torch_us"], abs=1e-3)
        assert best.packed_bytes == answer["plan"]["packed_bytes"]


@needs_binary
def test_a_question_is_no_part_of_a_computation():
    """A dispatch mode, such as a profiler or a counter, does not see queries."""
    seen = []
    assert served_by(lambda: seen.append(planner.plan(PROBLEM))) == "torch"
    assert seen[0] is not None


def test_without_a_binary(monkeypatch):
    monkeypatch.setattr(ops, "plan", None)
    monkeypatch.setattr(ops, "device", None)
    monkeypatch.setattr(_extension, "capability", lambda index: (8, 6))
    assert planner.plan(PROBLEM) is None
    assert planner.device_numbers.__wrapped__(0) == (86,)
    assert planner.capability((86,)) == (8, 6)


@needs_binary
def test_directions_planned_at_once_are_remembered():
    """Each is planned in its own thread, and the plans equal those made one by one."""
    problem = PROBLEM._replace(input_size=(3, 4, 11, 13), input_stride=(572, 143, 13, 1), code=3)
    program = f"""
import torch
from convt_ext.dispatch import planner

problem = planner.Problem(*{tuple(problem)!r})
planner.plan_ahead(problem, [0, 1, 2])
print(torch.ops.convt_ext.plan_cache_size()[0])
print([planner.best_plan(problem, direction) is None for direction in range(3)])
print(torch.ops.convt_ext.plan_cache_size()[0])
"""
    assert run(program).split("\n")[:3] == ["3", "[False, False, False]", "3"]  # a new process has an empty cache
    planner.plan_ahead(problem, [0, 1, 2])
    choices = [planner.best_plan(problem, direction) for direction in range(3)]
    answers = [planner.plan(problem, direction) for direction in range(3)]
    assert [one.estimate_us for one in choices] == pytest.approx(
        [one["plan"]["estimate_us"] for one in answers], abs=1e-3
    )


@needs_binary
def test_planning_ahead_leaves_errors_to_the_plan():
    planner.plan_ahead(PROBLEM._replace(dtype=torch.float16, code=3), [0, 1])  # a class that halves do not have
    with pytest.raises(RuntimeError, match="groups must divide"):
        planner.plan_ahead(PROBLEM._replace(groups=3), [0, 1])


# ---- shipped measurements


SHIPPED = files.read(files.SHIPPED)
CALLS = [(environment, key) for environment, calls in SHIPPED.items() for key in calls]
_KEY = re.compile(
    r"(\w+) (\w+) x=([\dx]+):(\w+) w=([\dx]+):(\w+) y=(\w+) stride=([\dx]+) padding=([\dx]+) output_padding=([\dx]+) "
    r"dilation=([\dx]+) groups=(\d+)"
)
SHARDS = 8


def numbers(text):
    return tuple(map(int, text.split("x")))


def empty(size, layout, dtype):
    memory_format = torch.channels_last if layout == "nhwc" else torch.contiguous_format
    return torch.empty(size, dtype=dtype, device="meta").to(memory_format=memory_format)


def call_of(environment, key):
    """Returns the problem and the direction of a key."""
    direction, word, x, x_layout, w, w_layout, y_layout, stride, padding, output_padding, dilation, groups = (
        _KEY.fullmatch(key).groups()
    )
    dtype = torch.bfloat16 if word == "half" else torch.float32
    arguments = (numbers(stride), numbers(padding), numbers(output_padding), int(groups), numbers(dilation))
    code = {"ieee": 0, "aten": 1, "tf32x3": 2, "tf32": 3, "half": 4}[word]
    problem = planner.Problem.of_call(
        empty(numbers(x), x_layout, dtype), empty(numbers(w), w_layout, dtype), False,
        (*arguments, code, y_layout == "nhwc"), environment.device,
    )  # fmt: skip
    return problem, ("forward", "grad_input", "grad_weight").index(direction)


def test_it_is_of_an_h200_and_of_any_kernels_that_have_its_plans():
    of_kind = {tuple(key.split()[:2]) for _, key in CALLS}
    assert of_kind >= set(product(("forward", "grad_input", "grad_weight"), ("tf32", "half", "tf32x3")))
    assert {environment.device for environment in SHIPPED} == {planner.H200}
    assert {environment.kernels for environment in SHIPPED} == {""}


@needs_binary
@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_entry_names_a_plan_and_is_found(shard, monkeypatch):
    monkeypatch.setattr(files, "_chosen", ("", {}))
    for environment, key in CALLS[shard::SHARDS]:
        problem, direction = call_of(environment, key)
        assert files.key_of(problem, direction) == key
        entry = SHIPPED[environment][key]
        found = files.find(problem, direction)
        assert found is not None, key
        assert (found.ours_us, found.torch_us, found.file) == (entry.ours_us, entry.torch_us, "shipped.json")
        plan = planner.plan(problem, direction)["candidates"][found.candidate]
        assert entry.kernel in (None, plan["kernel"])

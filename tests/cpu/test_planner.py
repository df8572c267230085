"""planner.py: queries to the binary, and the results without one."""

from __future__ import annotations

import pytest
import torch
from cpu.python_process import run
from cpu_kernels import needs_binary
from served import served_by

from convt_ext.dispatch import ops, planner
from convt_ext.environment import _extension

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

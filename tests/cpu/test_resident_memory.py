"""A training loop with ever new shapes: decisions, explanations and errors do not accumulate memory."""

from __future__ import annotations

import pytest
from cpu.python_process import run
from cpu_kernels import needs_binary

# MiB that a process may grow by once its caches are full: what malloc keeps of what was freed.
LIMIT_MIB = 5

# Memory is read from the process itself, so that other tests' does not count. Shapes are cheap to plan for.
PROGRAM = """
import itertools, sys, warnings
import torch
import convt_ext
from convt_ext import explain
from convt_ext.dispatch import planner, routing

def resident_mib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20

shapes = itertools.product(range(1, 60), range(1, 20), range(1, 20))

def decide(count):
    for n, h, w in itertools.islice(shapes, count):
        x, weight = torch.empty(n, 2, h, w, device="meta"), torch.empty(2, 3, 2, 2, device="meta")
        *_, directions = routing.op_call(x, weight, None, 2, 0, 0, 1, 1, None, planner.H200, False)
        directions.left_to_torch(1), directions.left_to_torch(2)

def tell(count):
    for n, h, w in itertools.islice(shapes, count):
        x, weight = torch.empty(n, 2, h, w, device="meta"), torch.empty(2, 3, 2, 2, device="meta")
        str(explain(x, weight, stride=2))

def fail(count):
    problem = planner.Problem(
        (1, 2, 3, 3), (18, 9, 3, 1), (2, 3, 2, 2), (12, 4, 2, 1), False, (0, 0), (0, 0), (0, 0), 1, (1, 1),
        torch.float32, 0, False, planner.H200,
    )
    for _ in range(count):
        for ask in (planner.best_plan, planner.plan):
            try:
                ask(problem)
            except RuntimeError:
                continue
            raise AssertionError("a stride of 0 has no plan")

torch.backends.cudnn.conv.fp32_precision = "ieee"
kind, warm, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
do = {"decisions": decide, "explanations": tell, "errors": fail}[kind]
do(warm)
before = resident_mib()
do(count)
print(resident_mib() - before)
"""


@needs_binary
@pytest.mark.parametrize(
    ("kind", "warm", "count"), [("decisions", 5000, 3000), ("explanations", 1000, 3000), ("errors", 200, 3000)]
)
def test_memory_does_not_grow(kind, warm, count):
    assert float(run(PROGRAM, kind, str(warm), str(count))) <= LIMIT_MIB

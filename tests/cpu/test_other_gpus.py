"""routing.py: default calls on tensor cores of GPUs other than Hopper, where only measurements select convt_ext."""

from __future__ import annotations

import pytest
import torch
from cpu_kernels import needs_binary
from pretend_gpu import A100, TURING, decide, operands
from served import tf32

from convt_ext.dispatch import planner, routing
from convt_ext.tuning import benchmark, files

pytestmark = pytest.mark.usefixtures("pretend_gpu")


@needs_binary
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_tensor_cores_of_other_gpus_are_measured_where_switches_ask_for_it(dtype, a100, monkeypatch):
    """Without a measurement PyTorch's operator runs, because the estimates do not cover its times there."""
    monkeypatch.setattr(benchmark, "is_enabled", lambda: True)
    with tf32(True):
        chosen = decide(*operands(dtype))[3]
    assert chosen.benchmarks
    assert [chosen.left_to_torch(direction) for direction in range(3)] == [True] * 3
    monkeypatch.setattr(planner, "device_numbers", lambda index: TURING)
    routing.forget()
    assert (decide(*operands(dtype)) is routing.TENSOR_CORES) == (dtype is not torch.float32)


@needs_binary
def test_a_tuning_file_decides_on_tensor_cores_of_other_gpus(a100, monkeypatch):
    environment = files.Environment("NVIDIA A100", A100, "", "13.0", "2.11.0", torch.backends.cudnn.version(), "580")
    x, weight, bias = operands(torch.float16)
    problem = decide(x, weight, bias, backend="convt_ext")[3]
    asked = planner.Problem.of_call(x, weight, True, problem.arguments, A100)
    plan = planner.plan(asked)["candidates"][0]
    knobs = {name: value for name, value in plan.items() if name not in planner.OF_EVERY_PLAN}
    entry = files.Entry(plan["kernel"], knobs, 10.0, 20.0)
    monkeypatch.setattr(files, "_chosen", ("file.json", {environment: {files.key_of(asked, 0): entry}}))
    chosen = decide(x, weight, bias)[3]
    assert not chosen.left_to_torch(0)  # which the file is about
    assert chosen.left_to_torch(1)  # which it is not
    monkeypatch.setattr(files, "_chosen", ("file.json", {environment._replace(device=TURING): {}}))
    routing.forget()
    assert decide(x, weight, bias) is routing.TENSOR_CORES

"""The portable engine's kernels, which no plan for a Hopper GPU names: run there with plans for other GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from raw_ops import portable_kernels

from convt_ext.environment.gpus import GPUS

TESTS = Path(__file__).resolve().parents[1]


def planned_for(gpu: str, *command: str) -> str:
    """What a process prints whose calls are planned for that GPU."""
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("this GPU's own plans are of the portable engine: the other tests run them")
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, cwd=TESTS, timeout=240,
        env={**os.environ, "CONVT_EXT_PLAN_FOR": ",".join(map(str, GPUS[gpu]))},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("gpu", ["A100", "RTX 4090"])  # with room for many stages, and for few
def test_every_candidate_is_right(gpu):
    found = json.loads(planned_for(gpu, "portable_process.py").splitlines()[-1])
    assert found["wrong"] == []
    assert set(found["launched"]) == set(portable_kernels())


CALL = """
import torch, convt_ext
x = torch.randn(4, 64, 32, 32, device="cuda", requires_grad=True)
layer = convt_ext.ConvTranspose2d(64, 32, 4, 2, 1, precision="tf32", backend="convt_ext").cuda()
exact = torch.nn.ConvTranspose2d(64, 32, 4, 2, 1).double()
exact.load_state_dict(layer.state_dict())
y, expected = layer(x), exact(x.detach().double().cpu())
with convt_ext.flags(precision="tf32", backend="convt_ext"):
    print(convt_ext.explain(x, layer.weight, stride=2, padding=1).plan["plan"]["engine"])
print(float((y.double().cpu() - expected).norm() / expected.norm()))
y.sum().backward()
assert x.grad.isfinite().all() and layer.weight.grad.isfinite().all()
"""


def test_a_call_by_name():
    """In TF32, whose error tells that tensor cores were at work, and gradients with it."""
    engine, error = planned_for("A100", "-c", CALL).split()
    assert engine == "portable"
    assert 1e-5 < float(error) <= 5e-4


DEFAULT = """
import torch, convt_ext
from convt_ext.tuning import benchmark
benchmark._WORTH = 0  # a benchmark is worth its time in the first call
torch.backends.cudnn.allow_tf32 = True
x = torch.randn(4, 64, 32, 32, device="cuda")
layer = convt_ext.ConvTranspose2d(64, 32, 4, 2, 1).cuda()
for torch.backends.cudnn.benchmark in (False, True):
    with torch.no_grad():
        layer(x)
    found = convt_ext.explain(x, layer.weight, layer.bias, 2, 1)
    print(found.served_by, "measured here" in found.reason)
"""


def test_a_default_call_is_pytorchs_until_both_are_measured():
    unknown, measured = planned_for("A100", "-c", DEFAULT).splitlines()
    assert unknown == "torch False"
    assert measured.endswith(" True")

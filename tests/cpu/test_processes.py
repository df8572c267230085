"""Several processes on the CPU: DDP and FSDP2 by gloo train as with the original modules, and each spawned process must
call `convt_ext.enable()` itself."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import distributed_training
import pytest
import torch
from cpu_kernels import needs_binary
from plan.profile import PROFILE

pytestmark = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()), reason="no gloo in this PyTorch"
)


@pytest.mark.parametrize(
    ("served", "way"),
    [
        pytest.param(*one, marks=pytest.mark.skipif(PROFILE == "ci", reason="only in make test-all"))
        if one in (("pytorch", "ddp"), ("ours", "fsdp"))
        else one
        for one in (("pytorch", "ddp"), *(("ours", way) for way in distributed_training.WAYS))
    ],
)
def test_losses_and_ranks(served, way, tmp_path):
    """With PyTorch's operator, as for CPU tensors, and with convt_ext's ops computed by PyTorch."""
    distributed_training.check("gloo", "cpu", tmp_path, ours=served == "ours", way=way)


PROGRAM = """
import sys
from pathlib import Path

import cpu_kernels
import pytest
import torch
import torch.multiprocessing
import torch.nn.functional as F

import convt_ext


def worker(rank, layer, folder):
    cpu_kernels.pretend(pytest.MonkeyPatch())
    replaced = [F.conv_transpose2d is not cpu_kernels._torch.conv_transpose2d]
    if rank == 1:
        convt_ext.enable()
    x = torch.ones(1, 6, 5, 5)
    layer(x).sum().backward()
    replaced.append(F.conv_transpose2d is not cpu_kernels._torch.conv_transpose2d)
    Path(folder, str(rank)).write_text(repr((replaced, cpu_kernels.RAN, layer.weight.grad.sum().item())))


if __name__ == "__main__":
    convt_ext.enable()
    torch.multiprocessing.spawn(worker, (torch.nn.ConvTranspose2d(6, 10, 4, 2, 1), sys.argv[1]), nprocs=2)
"""


@needs_binary
def test_a_spawned_process_is_enabled_by_its_own_call(tmp_path):
    """The process that spawns is enabled, and its layer is an argument: neither replaces a function in a worker."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    paths = os.pathsep.join([str(Path(__file__).resolve().parents[1]), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(program), str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)
    assert run.returncode == 0, run.stderr
    builtin, enabled = (ast.literal_eval((tmp_path / str(rank)).read_text()) for rank in range(2))
    assert builtin[:2] == ([False, False], [])
    assert enabled[0] == [False, True]
    assert "forward" in enabled[1]
    assert builtin[2] == enabled[2] != 0

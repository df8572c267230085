"""DDP and FSDP2 on the CPU, gloo: a small DCGAN generator; losses as with the original modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import distributed_training
import pytest
import torch

pytestmark = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()), reason="no gloo in this PyTorch"
)


@pytest.mark.parametrize(("served", "way"), [("pytorch", "ddp"), *(("ours", way) for way in distributed_training.WAYS)])
def test_losses_and_ranks(served, way, tmp_path):
    """With PyTorch's operator, as for CPU tensors, and with convt_ext's ops computed by PyTorch."""
    distributed_training.check("gloo", "cpu", tmp_path, ours=served == "ours", way=way)


def test_the_script_reports_failures(tmp_path):
    """A check that cannot fail would prove nothing."""
    script = Path(distributed_training.__file__)
    command = [sys.executable, str(script), "gloo", "cpu", str(tmp_path), "0", "1", "unknown", "ddp"]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert run.returncode != 0

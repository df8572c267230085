"""The examples run, as a reader would run them, and print the promised output."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from cpu_kernels import RAN

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
EXAMPLE = EXAMPLES / "train.py"
SMALL = ["--steps", "4", "--batch", "2", "--width", "2"]

pytestmark = pytest.mark.skipif(not EXAMPLE.exists(), reason="no checkout around the tests")


def largest_difference(text: str) -> float:
    match = re.search(r"largest relative difference of a loss: (\S+)", text)
    assert match, text
    return float(match[1])


def test_training_example():
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    run = subprocess.run([sys.executable, str(EXAMPLE), *SMALL], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    assert "ms a step" in run.stdout
    assert largest_difference(run.stdout) == 0  # PyTorch's operator ran both


def test_training_example_by_our_ops(cpu_is_gpu, capsys):
    runpy.run_path(str(EXAMPLE))["main"]([*SMALL, "--precision", "exact"])
    assert "grad_weight" in RAN
    assert largest_difference(capsys.readouterr().out) < 1e-4


# Runs the file given as the argument and ends the process without finalizing Python: gloo's threads outlive
# destroy_process_group() and may abort that (https://github.com/pytorch/pytorch/pull/179291).
RUN_AND_EXIT = """
import os, runpy, sys
runpy.run_path(sys.argv[1], run_name="__main__")
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py") if path != EXAMPLE))
def test_short_examples(name, tmp_path):
    """On the CPU, where both sides are PyTorch's operator; the one of several processes is two of them."""
    command = [sys.executable, str(EXAMPLES / name)]
    if name == "ddp_tuning.py":
        script = tmp_path / "run.py"
        script.write_text(RUN_AND_EXIT)
        command[1:1] = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert run.returncode == 0, run.stderr
    if name == "ddp_tuning.py":
        (losses,) = re.findall(r"losses of the ranks: \[(\S+), (\S+)\]", run.stdout)
        assert losses[0] == losses[1]
    else:
        (difference,) = re.findall(r"largest difference: (\S+)", run.stdout)
        assert float(difference) < 1e-5

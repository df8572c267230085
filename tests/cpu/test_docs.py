"""Code of docstrings, documents and examples: it runs, and examples print the promised output."""

from __future__ import annotations

import doctest
import importlib
import os
import re
import runpy
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from cpu_kernels import RAN

import convt_ext

CHECKOUT = Path(__file__).resolve().parents[2]
EXAMPLES = CHECKOUT / "examples"
MODULES = [
    *("convert", "enabling", "explain", "freezing", "functional", "modules", "report", "bench.timing"),
    *("check.reference", "dispatch.arguments", "dispatch.request", "environment._extension", "environment._optional"),
    "tuning.measuring",
]

in_a_checkout = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="a source distribution lacks it")


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    result = doctest.testmod(importlib.import_module(f"convt_ext.{name}"))
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.skipif(not (CHECKOUT / "docs").is_dir(), reason="the documents are not beside the tests")
@pytest.mark.parametrize("name", ["README.md", "docs/guide.md"])
def test_documents(name):
    """One block after the other, as it stands."""
    text = (CHECKOUT / name).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) > 1
    names: dict[str, object] = {}
    try:
        for block in blocks:
            exec(compile(block, name, "exec"), names)
    finally:
        with suppress(RuntimeError):  # settings that a block enabled and did not disable
            convt_ext.disable()


SMALL = ["--steps", "4", "--batch", "2", "--width", "2"]
# Runs the file given as the argument and ends the process without finalizing Python: gloo's threads outlive
# destroy_process_group() and may abort that (https://github.com/pytorch/pytorch/pull/179291).
RUN_AND_EXIT = """
import os, runpy, sys
runpy.run_path(sys.argv[1], run_name="__main__")
sys.stdout.flush()
os._exit(0)
"""


@in_a_checkout
@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_examples(name, tmp_path):
    """On the CPU, where both sides are PyTorch's operator; the one of several processes is two of them."""
    command = [sys.executable, str(EXAMPLES / name), *(SMALL if name == "train.py" else [])]
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
        (difference,) = re.findall(r"largest (?:relative )?difference(?: of a loss)?: (\S+)", run.stdout)
        assert float(difference) <= (0 if name == "train.py" else 1e-5)


@in_a_checkout
def test_the_training_example_by_our_ops(cpu_is_gpu, capsys):
    runpy.run_path(str(EXAMPLES / "train.py"))["main"]([*SMALL, "--precision", "exact"])
    assert "grad_weight" in RAN
    (difference,) = re.findall(r"largest relative difference of a loss: (\S+)", capsys.readouterr().out)
    assert float(difference) < 1e-4

"""The GPU tests on a machine without a GPU: a skip with its reason, or a failure if a GPU is required."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

TESTS = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def run_gpu_tests(**environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "gpu/test_streams.py"]
    return subprocess.run(command, cwd=TESTS, env={**os.environ, **environment}, capture_output=True, text=True)


def test_a_file_is_one_skip():
    done = run_gpu_tests(CONVT_REQUIRE_GPU="0")
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "no GPU: torch.cuda.is_available() is False" in done.stdout
    assert "1 skipped" in done.stdout


def test_a_missing_gpu_can_be_a_failure():
    done = run_gpu_tests(CONVT_REQUIRE_GPU="1")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "CONVT_REQUIRE_GPU=1, but no GPU" in done.stdout
    assert "passed" not in done.stdout

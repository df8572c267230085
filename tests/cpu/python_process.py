"""Programs that tests run in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys


def run(program: str, *arguments: str, input: str | None = None, **environment: str) -> str:
    """Runs a Python program, which must succeed, and returns its output."""
    command, variables = [sys.executable, "-c", program, *arguments], {**os.environ, **environment}
    done = subprocess.run(command, input=input, env=variables, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout

"""The planner in a process of its own, which may die of what it is asked: arithmetic that has no meaning traps there
(tests/plan/build.py), and the failure then names the problem."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from plan.problems import Problem

# What the process runs: nothing but the module, so that it starts at once.
PROGRAM = """
import importlib.util, json, sys, time
spec = importlib.util.spec_from_file_location("_plan", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
for line in sys.stdin:
    function, problem, device = json.loads(line)
    begin = time.process_time()
    try:
        answer, error = getattr(module, function)(problem, device), None
    except ValueError as refusal:
        answer, error = None, str(refusal)
    print(json.dumps([answer, error, time.process_time() - begin]), flush=True)
"""


class PlannerProcess:
    """`_plan` behind a pipe; it starts again after it has died."""

    def __init__(self, module: Path):
        self.command = [sys.executable, "-c", PROGRAM, str(module)]
        self.process: subprocess.Popen[str] | None = None

    def call(self, function: str, problem: Problem, device: list[int]) -> tuple[Any, str | None, float]:
        """The answer, or the words in which the planner refuses the problem, and the CPU's seconds."""
        if self.process is None:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([function, problem, device]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            died, self.process = -self.process.wait(), None
            name = signal.Signals(died).name if died in list(signal.Signals) else f"exit status {-died}"
            raise AssertionError(f"{function}() died of {name}, planning {problem} for {device}")
        answer, refusal, seconds = json.loads(line)
        return answer, refusal, seconds

    def stop(self) -> None:
        if self.process is not None:
            self.process.communicate()

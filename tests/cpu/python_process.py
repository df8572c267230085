"""Programs that tests run in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

_EACH = """
import json, os, sys, traceback
exec(sys.argv[1])
outputs = []
for program in json.load(sys.stdin):
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.dup2(writer, 1)
        try:
            exec(program, {"__name__": "__main__"})
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        outputs.append(file.read())
    assert os.wait()[1] == 0, program
json.dump(outputs, sys.stdout)
"""


def run(program: str, *arguments: str, input: str | None = None, **environment: str) -> str:
    """Runs a Python program, which must succeed, and returns its output."""
    command, variables = [sys.executable, "-c", program, *arguments], {**os.environ, **environment}
    done = subprocess.run(command, input=input, env=variables, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_each(imports: str, programs: list[str]) -> list[str]:
    """Runs each program in a fork of one process after these imports, which take most of the time; else as `run`."""
    return json.loads(run(_EACH, imports, input=json.dumps(programs)))

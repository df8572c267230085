"""Compiles the programs of ``--programs`` in several processes, before one process measures them one by one.

The compiled code is then in the disk caches of Inductor and Triton. Called by command.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HARNESS = Path(__file__).resolve().parent


def compile_programs(names: Sequence[str], modes: Sequence[str], race: str, number: int) -> None:
    """Runs the benchmark of the programs in several processes and discards the measurements.

    Args:
        names, modes, race: values of the options.
        number: number of processes; each compiles with one thread.
    """
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "harness", "--modes", ",".join(modes), "--race", race),
                    *("--budget-ms", "1", "--out", str(Path(folder, f"{first}.json")), "--programs"),
                    *names[first::number],
                ],
                cwd=HARNESS.parent, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
            for first in range(min(number, len(names)))
        ]  # fmt: skip
        for process in processes:
            process.wait()  # after a failure, the measurement of its programs shows the error

"""Compiles the programs of ``bench --programs`` in several processes, before one process measures them one by one.

What they compile is found in the caches of Inductor and Triton on disk. Called by command.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path


def compile_programs(names: Sequence[str], modes: Sequence[str], race: str, number: int) -> None:
    """Measures the programs in passing, in as many processes, and keeps nothing of that.

    Args:
        names, modes, race: as the options take them.
        number: of processes; each compiles with one thread.
    """
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "convt_ext", "bench", "--modes", ",".join(modes), "--race", race),
                    *("--budget-ms", "1", "--out", str(Path(folder, f"{first}.json")), "--programs"),
                    *names[first::number],
                ],
                env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
            for first in range(min(number, len(names)))
        ]  # fmt: skip
        for process in processes:
            process.wait()  # where it failed, measuring its programs shows the error

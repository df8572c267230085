"""Builds a release wheel for every architecture, and prints its build time and size.

    python tools/build_cost.py [OUTPUT.json]

Called by `make build-cost`. Measures processor time, because it depends little on the other load of the machine. It is
divided among the architectures in proportion to the times of nvcc's steps. Fails if the build needs more than 30
minutes on 2 cores, or if the wheel is too big.
"""

from __future__ import annotations

import csv
import json
import os
import platform
import re
import sys
import tempfile
import time
from pathlib import Path

import check_wheel
import cuda_toolkit
import other_toolkit
import targets
import wheels
from required import require

MAX_CORE_MINUTES = 60


def add_up(rows: list[list[str]]) -> dict[str, float]:
    """Returns the seconds of nvcc's steps by architecture; "host" is the work done once for all of them.

    >>> add_up([["a.cu ", " cicc ", "", "", " compute_75 ", " nvcc ", " 1500.0 ", " ms"],
    ...         ["a.cu ", " ptxas ", "", "", " sm_75 ", " nvcc ", " 500.0 ", " ms"],
    ...         ["a.cu ", " gcc (compiling) ", "", "", " compute_75 ", " nvcc ", " 250.0 ", " ms"]])
    {'7.5': 2.0, 'host': 0.25}
    """
    seconds: dict[str, float] = {}
    for row in rows:
        step, architecture, milliseconds = row[1].strip(), row[4].strip(), float(row[6])
        match = re.fullmatch(r"(?:compute|sm)_(\d+)(\d[af]?)", architecture)
        # nvcc compiles the host code of a file once, and reports it under one of the architectures.
        is_device = match and (step in ("cicc", "ptxas") or step == "gcc (preprocessing 1)")
        name = f"{match[1]}.{match[2]}" if match and is_device else "host"
        seconds[name] = seconds.get(name, 0.0) + milliseconds / 1e3
    return seconds


def spent_by_children() -> float:
    """Returns the processor seconds of all finished child processes."""
    return os.times().children_user + os.times().children_system


def read_times(path: Path) -> list[list[str]]:
    with path.open() as file:
        rows = [row for row in csv.reader(file) if len(row) == 8]
    return [row for row in rows if row[6].strip().replace(".", "", 1).isdigit() and row[1].strip() != "nvcc (driver)"]


def main() -> None:
    home = cuda_toolkit.find_or_fetch(targets.CHECKOUT)
    architectures = cuda_toolkit.release_architectures(home)
    digest = wheels.tree_digest()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["CONVT_EXT_NVCC_EXTRA"] = f"--time={folder}/times.csv"
        start, spent = time.monotonic(), spent_by_children()
        wheel = other_toolkit.build(home, architectures, folder)
        wall, spent = time.monotonic() - start, spent_by_children() - spent
        check_wheel.check(wheel, architectures, None)
        seconds = add_up(read_times(folder / "times.csv"))
        size = wheel.stat().st_size
    share = spent / sum(seconds.values())
    result = {
        "sources": digest,
        "cuda": ".".join(map(str, cuda_toolkit.release(home))),
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "kernel_files": len(check_wheel.kernel_files()),
        "wall_minutes": round(wall / 60, 1),
        "core_minutes": round(spent / 60, 1),
        "core_seconds_by_architecture": {name: round(share * value) for name, value in seconds.items()},
        "wheel_mib": round(size / 2**20, 2),
    }
    text = json.dumps(result, indent=2)
    print(text)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text + "\n")
    require(spent <= 60 * MAX_CORE_MINUTES, f"the build needs more than {MAX_CORE_MINUTES} minutes on one core")


if __name__ == "__main__":
    main()

"""Writes the result files of the benchmark, and reports which of them are current for this tree.

    python tools/bench_results.py run [--only NAME ...] [--limit SECONDS]
    python tools/bench_results.py status

Called by `make bench-results` and `make bench-status`. benchmarks/runs.json maps the name of each file, without its GPU
prefix, to the arguments of `python -m harness` (in benchmarks/) that write it. `run` measures the files of this
machine's GPU that are not current, or the ones named with --only. A file stays unchanged if its run exceeds the limit
or if one of its rows fails. Each file contains digests of the sources that its times depend on. `status` compares them
with the tree and prints a line for each file. Its exit status is 0 even if files are stale.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import records
from required import require

BENCHMARKS = records.CHECKOUT / "benchmarks"

# Environment variables of each run. The portable engine runs with the plans that the planner chooses for an A100.
# Times on another GPU reflect the rates of that GPU.
VARIABLES = {"portable": {"CONVT_EXT_PLAN_FOR": "80,132,166912,167936,1891,4213"}}


def read_runs() -> dict[str, list[str]]:
    """Returns the arguments of each run by its name."""
    return {name: shlex.split(words) for name, words in json.loads((BENCHMARKS / "runs.json").read_text()).items()}


def short_name(gpu: str) -> str:
    """Returns the prefix of a GPU's result files.

    >>> [short_name(gpu) for gpu in ("NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090")]
    ['h200', 'h100', '4090']
    """
    found = re.search(r"\b[A-Z]*\d+\w*", gpu)
    return found[0].lower() if found else "gpu"


def dependencies(words: list[str]) -> dict[str, str]:
    """Returns separate digests of the sources that a run's times depend on, so that `status` can name what changed.

    The tests and the tools do not affect times. The Python package does: it dispatches the calls and measures them.
    """
    parts = {"kernels": ["kernels", "setup.py"], "python": ["convt_ext", "benchmarks/harness"]}
    if "--csv" in words:
        parts["layers"] = [f"benchmarks/{words[words.index('--csv') + 1]}"]
    return {name: records.part_digest(tuple(entries)) for name, entries in parts.items()}


def state(content: dict[str, Any], words: list[str] | None) -> str:
    """Returns `current`, or `older: ` and what has changed since.

    Args:
        content: a result file.
        words: the arguments of the run with its name, or None if runs.json has no such run.
    """
    if words is None:
        return "older: no run of this name is in runs.json"
    if not content["complete"]:
        return "older: the run was interrupted"
    found, expected = content.get("depends_on"), dependencies(words)
    if found is None:
        return "older: it has no digests of its sources"
    changed = [name for name in expected if found.get(name) != expected[name]]
    if content["argv"][1:-2] != words:
        changed.append("command")
    return f"older: {', '.join(changed)}" if changed else "current"


def print_status(folder: Path) -> None:
    """Prints a line for each result file, and for each file that a GPU's set lacks."""
    runs = read_runs()
    files = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    missing = {f"{stem.partition('_')[0]}_{name}" for stem in files for name in runs} - set(files)
    for stem, content in files.items():
        line = state(content, runs.get(stem.partition("_")[2]))
        print(f"{stem:<26}{line:<52}  sources {content['sources']}, {content['date'][:10]}")
    for stem in sorted(missing):
        print(f"{stem:<26}missing")


def bench(words: list[str], timeout: float | None) -> bool:
    """Runs the benchmark inside benchmarks/, where Python imports the installed wheel; returns whether it succeeded."""
    command = [sys.executable, "-m", "harness", *words]
    try:
        return subprocess.run(command, cwd=BENCHMARKS, timeout=timeout).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def write_results(folder: Path, gpu: str, only: list[str], limit: float | None) -> bool:
    """Measures and replaces the files that are due; returns whether no run failed. A timeout is not a failure."""
    from convt_ext.bench.results import replace_file

    runs = read_runs()
    unknown = ", ".join(name for name in only if name not in runs)
    require(not unknown, f"--only: got {unknown}, expected some of {', '.join(runs)}")
    due = []
    for name, words in runs.items():
        path = folder / f"{short_name(gpu)}_{name}.json"
        is_current = path.is_file() and state(json.loads(path.read_text()), words) == "current"
        if name in only or not (only or is_current):
            due.append((name, words, path))
    end = time.monotonic() + (math.inf if limit is None else limit)
    folder.mkdir(parents=True, exist_ok=True)
    failed: list[str] = []
    late: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        for name, words, path in due:
            left = end - time.monotonic()
            if left <= 0:
                late.append(name)
                continue
            depends_on = dependencies(words)
            print(f"== {path.name}: bench {shlex.join(words)}", flush=True)
            fresh = Path(temporary) / path.name
            with mock.patch.dict(os.environ, VARIABLES.get(name, {})):
                well = bench([*words, "--out", str(fresh)], None if limit is None else left)
            if well:
                content = json.loads(fresh.read_text())
                replace_file(path, {"depends_on": depends_on, **content})
            else:
                (late if time.monotonic() >= end else failed).append(name)
    if late:
        print(f"out of time: {', '.join(late)} are unchanged; run this command again")
    if failed:
        print(f"failed, files unchanged: {', '.join(failed)}")
    return not failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    running = commands.add_parser("run", help="measure the files that are not current")
    running.add_argument("--only", nargs="+", default=[], metavar="NAME", help="measure these files, current or not")
    running.add_argument("--limit", type=float, metavar="SECONDS")
    commands.add_parser("status", help="print which files are current")
    options = parser.parse_args()
    folder = BENCHMARKS / "results"
    if options.command == "status":
        print_status(folder)
        return
    import torch

    require(torch.cuda.is_available(), "the benchmark needs a GPU, and PyTorch finds none")
    records.require_binary_of_the_tree()
    sys.exit(not write_results(folder, torch.cuda.get_device_name(), options.only, options.limit))


if __name__ == "__main__":
    main()

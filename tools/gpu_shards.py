"""Runs the GPU tests in parallel shards, and writes one report for all of them.

    python tools/gpu_shards.py REPORT [--shards NUMBER] [--limit SECONDS] [PYTEST_ARGUMENT ...]

Called by `make gpu-test`. The tests are bound by the CPU. The default is one shard per core, but at most 18 per GPU.
The shards are distributed over the GPUs. All shards use one random seed: CONVT_TEST_SEED, or a new one. If a shard
fails, its last lines of output are printed. Exits with 1 if a shard fails or the report contains a failure.
"""

from __future__ import annotations

import argparse
import os
import runpy
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
LAST_LINES = 12
MOST_PER_GPU = 18  # this many shards fit into the memory of an H200
LIMIT = 3000  # seconds; two cores need 2400
GRACE = 120  # seconds after the limit for a shard to write its report; then it is killed
NOTHING_CHOSEN = 5  # pytest's status if TEST_ARGS selects no test of a shard


def visible_gpus() -> list[str]:
    """Returns the GPUs of CUDA_VISIBLE_DEVICES or of nvidia-smi, or "0" without both, so that the tests report why."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return named.split(",")
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines()
    except OSError:
        listed = []
    return [str(index) for index in range(max(1, len(listed)))]


def in_turn(gpus: list[str], place: int) -> str:
    """Returns a shard's CUDA_VISIBLE_DEVICES: all GPUs, for tests that need two, rotated by the shard's index.

    >>> in_turn(["0", "1", "2"], 4)
    '1,2,0'
    """
    first = place % len(gpus)
    return ",".join(gpus[first:] + gpus[:first])


def default_number(num_gpus: int) -> int:
    """Returns the number of usable cores, limited by the memory of the GPUs."""
    return min(len(os.sched_getaffinity(0)), MOST_PER_GPU * num_gpus)


@dataclass
class Shard:
    name: str  # "2/6"
    log: Path
    report: Path
    process: subprocess.Popen[bytes]


def start(name: str, place: int, number: int, gpus: list[str], folder: Path, seed: str, arguments: list[str]) -> Shard:
    """Starts one of `number` parallel shards."""
    log, report = folder / f"{place}.log", folder / f"{place}.json"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "gpu", "-v"]
    command += ["--gpu-report", str(report), "--shard", name, *arguments, "gpu"]
    # Results are compared on the CPU. A thread per core in every shard would oversubscribe the cores.
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // number))}
    seen = {"CUDA_VISIBLE_DEVICES": in_turn(gpus, place), "CONVT_TEST_SEED": seed}
    environment = {**os.environ, **threads, **seen, "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=CHECKOUT / "tests", env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    return Shard(name, log, report, process)


def wait(process: subprocess.Popen[bytes], deadline: float) -> int | None:
    """Returns the exit status, or None if the shard was killed at the deadline."""
    try:
        return process.wait(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


def run(number: int, limit: float, report_path: Path, arguments: list[str]) -> bool:
    """Runs all shards and writes the report; returns whether every shard succeeded and no test failed."""
    evidence = runpy.run_path(str(CHECKOUT / "tests/gpu_evidence.py"))
    gpus, all_well, found = visible_gpus(), True, []
    number = number or default_number(len(gpus))
    seed = os.environ.get("CONVT_TEST_SEED") or str(secrets.randbelow(2**31))
    deadline = time.monotonic() + limit + GRACE
    with tempfile.TemporaryDirectory() as name:
        words = [f"--time-limit={limit}", *arguments]
        where = f"{len(gpus)} GPU{'s' if len(gpus) > 1 else ''}"
        print(f"GPU tests in {number} processes on {where}, CONVT_TEST_SEED={seed}", flush=True)
        shards = [
            start(f"{place + 1}/{number}", place, number, gpus, Path(name), seed, words) for place in range(number)
        ]
        for shard in shards:
            status = wait(shard.process, deadline)
            # The second report exists if the shard died; it names the test that was running.
            paths = (shard.report, evidence["unfinished"](shard.report))
            found += [evidence["read"](path) for path in paths if path.exists()]
            if status not in (0, NOTHING_CHOSEN):
                all_well = False
                how = "was killed: it hangs" if status is None else f"exited with status {status}"
                last = shard.log.read_text(errors="replace").splitlines()[-LAST_LINES:]
                print(f"shard {shard.name} {how}; its last lines:", *last, sep="\n    ")
    if not found:
        print("no shard wrote a report")
        return False
    report = evidence["join"](found)
    evidence["write"](report_path, report)
    failures = evidence["failures"](report)
    for failure in failures:
        print(f"FAILED {failure}")
    counts = Counter(test["outcome"] for test in report["others"].values())
    counts["passed"] = evidence["num_tests"](report) - len(report["others"])
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return all_well and not failures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("report", type=Path)
    parser.add_argument("--shards", type=int, default=0, metavar="NUMBER")
    parser.add_argument("--limit", type=float, default=LIMIT, metavar="SECONDS")
    options, arguments = parser.parse_known_args()
    if options.shards < 0 or options.limit <= 0:
        parser.error("--shards must not be negative, and --limit must be positive")
    if not run(options.shards, options.limit, options.report.resolve(), arguments):
        raise SystemExit(1)


if __name__ == "__main__":
    main()

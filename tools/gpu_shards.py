"""Runs the GPU tests in shards side by side, and writes one report of all.

    python tools/gpu_shards.py NUMBER REPORT [PYTEST_ARGUMENT ...]

Called by `make gpu-test SHARDS=NUMBER`. The tests are bound by the CPU, so as many shards as cores is a good number;
shard I runs on GPU I modulo the number of GPUs. Where a shard does not end well, the last of its output is printed.
Exits with 1 when one did not, or a test failed.
"""

from __future__ import annotations

import argparse
import os
import runpy
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
LAST_LINES = 12
SECONDS = 600  # a shard writes its report after eight minutes at the latest, unless it hangs


def gpu_count() -> int:
    """GPUs that nvidia-smi lists; 1 where it lists none, as the tests say best that there is no GPU."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines()
    except OSError:
        listed = []
    return max(1, len(listed))


def start(shard: int, number: int, folder: Path, gpus: int, arguments: list[str]) -> subprocess.Popen[bytes]:
    """One shard, its output in folder/SHARD.log and its report in folder/SHARD.json."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "gpu", "-v"]
    command += ["--gpu-report", str(folder / f"{shard}.json"), "--shard", f"{shard}/{number}", *arguments, "gpu"]
    # Results are compared on the CPU: with a thread for each core, the shards would wait for each other's.
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // number))}
    environment = {**os.environ, **threads, "CUDA_VISIBLE_DEVICES": str(shard % gpus), "PYTHONUNBUFFERED": "1"}
    with (folder / f"{shard}.log").open("wb") as log:
        return subprocess.Popen(command, cwd=CHECKOUT / "tests", env=environment, stdout=log, stderr=subprocess.STDOUT)


def wait(process: subprocess.Popen[bytes]) -> int | None:
    """The exit status, None where the shard had to be stopped."""
    try:
        return process.wait(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


def run(number: int, report_path: Path, arguments: list[str]) -> bool:
    """Whether every shard ended well and no test failed."""
    evidence = runpy.run_path(str(CHECKOUT / "tests/gpu_evidence.py"))
    gpus, report, all_well = gpu_count(), None, True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shards = range(1, number + 1)
        processes = {shard: start(shard, number, folder, gpus, arguments) for shard in shards}
        for shard, process in processes.items():
            status = wait(process)
            path = folder / f"{shard}.json"
            if path.exists():
                report = evidence["merge"](report, evidence["read"](path))
            if status != 0:
                all_well = False
                how = "was stopped: it hangs" if status is None else f"ended with status {status}"
                last = (folder / f"{shard}.log").read_text(errors="replace").splitlines()[-LAST_LINES:]
                print(f"shard {shard}/{number} {how}; its last lines:", *last, sep="\n    ")
    if report is None:
        print("no shard has written a report")
        return False
    evidence["write"](report_path, report)
    for name, test in report["tests"].items():
        if test["outcome"] == "failed":
            print(f"FAILED {name}: {test['reason']}")
    print(
        ", ".join(
            f"{count} {outcome}" for outcome, count in Counter(t["outcome"] for t in report["tests"].values()).items()
        )
    )
    return all_well


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("number", type=int)
    parser.add_argument("report", type=Path)
    options, arguments = parser.parse_known_args()
    if options.number < 1:
        parser.error(f"the number of shards must be positive, got {options.number}")
    if not run(options.number, options.report.resolve(), arguments):
        raise SystemExit(1)


if __name__ == "__main__":
    main()

"""Prints whether tests/gpu_report.json speaks for this tree: `current`, or `stale: ` and why.

Called by `make gpu-status` with a Python that has torch and the tests' requirements: the list of GPU
tests is asked of pytest. Exits with 0 either way, because stale evidence is no broken tree; with
--require-current, for a release, stale is a failure.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import runpy
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent


def collect_gpu_tests() -> list[str]:
    """The ids of the GPU tests, without running them.

    Raises:
        RuntimeError: pytest could not collect; its last words.
    """
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "gpu", "--no-header"]
    command += ["-o", "addopts=--import-mode=importlib", "-p", "no:cacheprovider", "gpu"]
    # A list of names needs no wheel: where none is installed, the checkout's Python will do.
    environment = {**os.environ, "CONVT_TEST_UNINSTALLED": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    if importlib.util.find_spec("convt_ext") is None:
        environment["PYTHONPATH"] = os.pathsep.join([str(CHECKOUT), environment.get("PYTHONPATH", "")]).rstrip(":")
    done = subprocess.run(command, cwd=CHECKOUT / "tests", env=environment, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line]
    if done.returncode == 5:  # there are none
        return []
    if done.returncode != 0:
        words = (done.stderr.splitlines() or lines or ["no output"])[-1]
        raise RuntimeError(f"pytest cannot collect the GPU tests: {words.removeprefix('ERROR: ')}")
    return [line for line in lines if "::" in line]


def gpu_status(report_path: Path) -> str:
    """The one line that `make gpu-status` prints."""
    evidence = runpy.run_path(str(CHECKOUT / "tests/gpu_evidence.py"))
    sources = runpy.run_path(str(CHECKOUT / "convt_ext/_sources.py"))
    try:
        report = evidence["read"](report_path)
    except ValueError as error:
        return f"stale: {error}"
    digest = sources["sources_digest"](CHECKOUT)
    line = evidence["status"](report, digest, None)
    if line != "current":
        return line  # collecting takes seconds and would not change the answer
    try:
        return evidence["status"](report, digest, collect_gpu_tests())
    except RuntimeError as error:
        return f"stale: {error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, default=CHECKOUT / "tests/gpu_report.json")
    parser.add_argument("--require-current", action="store_true")
    arguments = parser.parse_args()
    line = gpu_status(arguments.report)
    print(line)
    if arguments.require_current and line != "current":
        raise SystemExit(1)


if __name__ == "__main__":
    main()

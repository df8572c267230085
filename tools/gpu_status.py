"""Prints whether tests/gpu_report.json speaks for this tree: `current`, or `stale: ` and why.

Called by `make gpu-status` with a Python that has the tests' requirements and the wheel installed:
the list of GPU tests is asked of pytest. Exits with 0 either way; stale evidence is no broken tree.
"""

from __future__ import annotations

import argparse
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
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-m", "gpu", "--no-header", "gpu"]
    # Inside tests/, so that the checkout's top is not on sys.path and the installed wheel is found.
    done = subprocess.run([*command, "-o", "addopts=--import-mode=importlib"], cwd=CHECKOUT / "tests", **_captured())
    lines = [line for line in done.stdout.splitlines() if line]
    if done.returncode == 5:  # no tests
        return []
    if done.returncode != 0:
        words = (done.stderr.splitlines() or lines or ["no output"])[-1]
        raise RuntimeError(f"pytest cannot collect the GPU tests: {words.removeprefix('ERROR: ')}")
    return [line if line.startswith("tests/") else f"tests/{line}" for line in lines if "::" in line]


def _captured() -> dict:
    return {"capture_output": True, "text": True}


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
    print(gpu_status(parser.parse_args().report))


if __name__ == "__main__":
    main()

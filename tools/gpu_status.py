"""Prints what the records of GPU runs are worth for this tree: one line for the GPU tests, one for the sanitizers.

    python tools/gpu_status.py [--report PATH] [--sanitizer-report PATH] [--require-current]
    python tools/gpu_status.py [--report PATH] --compare OTHER

Called by `make gpu-status` with a Python that has torch and the tests' requirements: the list of GPU tests is asked of
pytest. A line is `current`, or `stale: `, `incomplete: ` or `failed: ` and why. Exits with 1 where one is `failed`: a
record of this very tree that speaks against it. Stale or incomplete evidence is no broken tree, and a failure only with
--require-current, for a release. With --compare, says whether two reports of GPU tests, of two GPU models say, list the
same tests and have the same bits in every exact result; exits with 1 where they do not.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import sanitizer_report

CHECKOUT = Path(__file__).resolve().parent.parent
EVIDENCE = runpy.run_path(str(CHECKOUT / "tests/gpu_evidence.py"))
SOURCES = runpy.run_path(str(CHECKOUT / "convt_ext/_sources.py"))


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
    """The line of the GPU tests."""
    try:
        report = EVIDENCE["read"](report_path)
    except ValueError as error:
        return f"failed: {error}"
    digest = SOURCES["sources_digest"](CHECKOUT)
    line = EVIDENCE["status"](report, digest, None)
    if line.startswith(("stale", "failed")):
        return line  # collecting takes seconds and would not change the answer
    try:
        return EVIDENCE["status"](report, digest, collect_gpu_tests())
    except RuntimeError as error:
        return f"failed: {error}"


def sanitizer_status(report_path: Path) -> str:
    """The line of the sanitizers."""
    try:
        return sanitizer_report.status(sanitizer_report.read(report_path), sanitizer_report.digest())
    except ValueError as error:
        return f"failed: {error}"


def compare(one: Path, other: Path) -> None:
    """Prints whether two reports agree, and exits with 1 where they do not."""
    reports: list[dict[str, Any]] = []
    for path in (one, other):
        try:
            report = EVIDENCE["read"](path)
        except ValueError as error:
            raise SystemExit(f"convt_ext: {error}") from None
        if report is None:
            raise SystemExit(f"convt_ext: there is no {path}")
        reports.append(report)
    gpus = " and ".join(f"{report.get('gpu')}" for report in reports)
    differing = EVIDENCE["difference"](*reports)
    if differing:
        raise SystemExit(f"different: {gpus}: {differing}")
    print(f"equal: {gpus}: {len(reports[0]['results'])} results, {EVIDENCE['num_tests'](reports[0])} tests")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", type=Path, default=CHECKOUT / "tests/gpu_report.json")
    parser.add_argument("--sanitizer-report", type=Path, default=sanitizer_report.PATH)
    parser.add_argument("--require-current", action="store_true")
    parser.add_argument("--compare", type=Path, metavar="OTHER")
    arguments = parser.parse_args()
    if arguments.compare:
        compare(arguments.report, arguments.compare)
        return
    lines = {
        "GPU tests": gpu_status(arguments.report),
        "sanitizers": sanitizer_status(arguments.sanitizer_report),
    }
    for name, line in lines.items():
        print(f"{name}: {line}")
    if any(line.startswith("failed") or (arguments.require_current and line != "current") for line in lines.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()

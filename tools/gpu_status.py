"""Prints whether the reports of the GPU tests and of the sanitizers are valid for this tree, one line for each.

    python tools/gpu_status.py [--report PATH] [--sanitizer-report PATH] [--require-current]
    python tools/gpu_status.py [--report PATH] --compare OTHER

Called by `make gpu-status` and .ci/run. Needs torch and the tests' requirements, because pytest lists the GPU tests. A
line is `current`, or `stale: `, `incomplete: ` or `failed: ` and the reason. Exits with 1 if a line is `failed`. With
--require-current, which a release uses, stale and incomplete reports fail too. --compare prints whether two reports,
such as from two GPU models, list the same tests with the same bits in every exact result, and exits with 1 if not.
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
from required import require

CHECKOUT = Path(__file__).resolve().parent.parent
EVIDENCE = runpy.run_path(str(CHECKOUT / "tests/gpu_evidence.py"))
SOURCES = runpy.run_path(str(CHECKOUT / "convt_ext/_sources.py"))


def collect_gpu_tests() -> list[str]:
    """Returns the ids of the GPU tests without running them.

    Raises:
        RuntimeError: pytest could not collect the tests; the message contains its last line.
    """
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "gpu", "--no-header"]
    command += ["-o", "addopts=--import-mode=importlib", "-p", "no:cacheprovider", "gpu"]
    # Collecting needs no wheel. If none is installed, the tests import the package of the checkout.
    environment = {**os.environ, "CONVT_TEST_UNINSTALLED": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    if importlib.util.find_spec("convt_ext") is None:
        environment["PYTHONPATH"] = os.pathsep.join([str(CHECKOUT), environment.get("PYTHONPATH", "")]).rstrip(":")
    done = subprocess.run(command, cwd=CHECKOUT / "tests", env=environment, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line]
    if done.returncode == 5:  # no tests
        return []
    if done.returncode != 0:
        words = (done.stderr.splitlines() or lines or ["no output"])[-1]
        raise RuntimeError(f"pytest cannot collect the GPU tests: {words.removeprefix('ERROR: ')}")
    return [line for line in lines if "::" in line]


def gpu_status(report_path: Path) -> str:
    """Returns the line of the GPU tests."""
    try:
        report, digest = EVIDENCE["read"](report_path), SOURCES["sources_digest"](CHECKOUT)
        line = EVIDENCE["status"](report, digest, None)
        # Collecting needs seconds and would not change a line that is stale or failed.
        is_final = line.startswith(("stale", "failed"))
        return line if is_final else EVIDENCE["status"](report, digest, collect_gpu_tests())
    except (ValueError, RuntimeError) as error:
        return f"failed: {error}"


def sanitizer_status(report_path: Path) -> str:
    """Returns the line of the sanitizers."""
    try:
        return sanitizer_report.status(sanitizer_report.read(report_path), sanitizer_report.digest())
    except ValueError as error:
        return f"failed: {error}"


def compare(one: Path, other: Path) -> None:
    """Prints whether two reports agree, and exits with 1 if they differ."""
    try:
        reports: list[dict[str, Any]] = [EVIDENCE["read"](path) for path in (one, other)]
    except ValueError as error:
        raise SystemExit(f"convt_ext: {error}") from None
    for path, report in zip((one, other), reports, strict=True):
        require(report is not None, f"there is no {path}")
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

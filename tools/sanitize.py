"""Runs every kernel instance under each tool of compute-sanitizer; prints tool, errors, launches, seconds.

    python tools/sanitize.py [--short] [TOOL ...]

Called by `make sanitize` on a machine with a GPU. All four tools run unless some are named. With --short each of them
gets few problems, as racecheck does in any case: every kernel instance once in each layout.
What runs is tools/sanitize_workload.py. Fails on any error or hazard, when an instance did not run, and when a
mistake planted on purpose is not reported.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

WORKLOAD = Path(__file__).resolve().parent / "sanitize_workload.py"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
ERROR_EXIT = 99
SECONDS_PER_TOOL = 300

# The namespace, which every mangled name contains; PyTorch's kernels, were there any, would not be instrumented.
KERNELS = "kns=convt"

_SUMMARIES = (
    re.compile(r"RACECHECK SUMMARY: (\d+) hazards? displayed"),
    re.compile(r"ERROR SUMMARY: (\d+) errors?"),
)


def find_sanitizer() -> str:
    """The path of compute-sanitizer, which comes with the CUDA toolkit."""
    folders = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    search = [f"{folder}/{place}" for folder in folders if folder for place in ("bin", "compute-sanitizer")]
    found = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=os.pathsep.join(search))
    if found is None:
        raise SystemExit(
            "convt_ext: compute-sanitizer is not on PATH nor in CUDA_HOME: install the CUDA toolkit's "
            "cuda-sanitizer package, or set CUDA_HOME"
        )
    return found


def run(sanitizer: str, tool: str, *arguments: str) -> tuple[int | None, int, str]:
    """Errors that the tool counted (None: it printed no summary), the exit status, and the output."""
    command = [sanitizer, "--tool", tool, "--error-exitcode", str(ERROR_EXIT), "--launch-timeout", "120"]
    command += ["--kernel-name", KERNELS, "--print-limit", "10"]
    if tool == "initcheck":
        # It does not see what bulk copies write, so it would call copies of results to the CPU reads of memory that
        # nobody wrote. That results are whole is seen by their values.
        command += ["--check-api-memory-access", "no"]
    command += [sys.executable, str(WORKLOAD), *arguments]
    # Every tensor its own allocation: the caching allocator would hide errors within its blocks.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        output, _ = process.communicate(timeout=SECONDS_PER_TOOL)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # with the workload, which is a child of the tool
        output, _ = process.communicate()
        return None, 1, f"{output}\nstopped after {SECONDS_PER_TOOL} s"
    for summary in _SUMMARIES:
        found = summary.findall(output)
        if found:
            return int(found[-1]), process.returncode, output
    return None, process.returncode, output


def findings(output: str, lines: int = 60) -> str:
    """The tool's first findings and the workload's last words, without the stacks of host functions."""
    told = [line for line in output.splitlines() if "Host Frame" not in line and not line.startswith("frame #")]
    of_tool = [line for line in told if line.startswith("=====")]
    of_workload = [line for line in told if not line.startswith("=====")]
    return "\n".join(of_tool[:lines] + of_workload[-10:])


def main() -> None:
    sanitizer = find_sanitizer()
    failed = []
    errors, _, output = run(sanitizer, "initcheck", "--planted")
    if not errors:
        print(findings(output))
        failed.append("a planted mistake, which was not reported: nothing below means anything")
    print(f"{'tool':<11}{'errors':>9}{'launches':>10}{'seconds':>9}", flush=True)
    short = "--short" in sys.argv[1:]
    for tool in [name for name in sys.argv[1:] if name != "--short"] or TOOLS:
        start = time.monotonic()
        errors, status, output = run(sanitizer, tool, *(["--short"] if short or tool == "racecheck" else []))
        launches = sum(int(count) for count in re.findall(r"^launched \S+ (\d+) times$", output, re.MULTILINE))
        count = "none" if errors is None else str(errors)
        print(f"{tool:<11}{count:>9}{launches:>10}{time.monotonic() - start:>9.0f}", flush=True)
        if errors != 0 or status != 0 or launches == 0:
            failed.append(tool)
            print(findings(output), flush=True)
    if failed:
        raise SystemExit(f"convt_ext: compute-sanitizer: {', '.join(failed)}")


if __name__ == "__main__":
    main()

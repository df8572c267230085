"""Runs every kernel instance under each tool of compute-sanitizer; prints tool, errors, launches, seconds.

    python tools/sanitize.py [--report PATH] [--short] [TOOL ...]

Called by `make sanitize` on a machine with a GPU. All four tools run unless some are named. With --short each of them
gets few problems, as racecheck does in any case: every kernel instance once in each layout. The outcome goes into the
report after each tool (sanitizer_report.py): all four tools with all problems begin a new one, anything less joins it.
What runs is tools/sanitize_workload.py. Fails on any error or hazard, when an instance did not run, and when a
mistake planted on purpose is not reported.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import records
import sanitizer_report

WORKLOAD = Path(__file__).resolve().parent / "sanitize_workload.py"
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


def run(sanitizer: str, tool: str, *arguments: str) -> tuple[int | None, int | None, str]:
    """Errors that the tool counted, the exit status, and the output.

    Errors are None where it printed no summary. The status is None where it took too long and had found nothing.
    """
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
        has_findings = re.search(r"^=========(?! COMPUTE-SANITIZER)", output, re.MULTILINE) is not None
        return None, 1 if has_findings else None, f"{output}\nstopped after {SECONDS_PER_TOOL} s"
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


def gpu_facts() -> dict[str, Any]:
    """What a report says of the machine."""
    sys.path.insert(0, str(records.CHECKOUT / "tests"))
    import gpu_facts

    facts = gpu_facts.gpu_facts()
    return {key: facts[key] for key in ("gpu", "torch", "cuda", "driver")}


def sanitize(sanitizer: str, tools: list[str], short: bool, facts: dict[str, Any], path: Path) -> bool:
    """Runs the tools, prints what they find and writes it down; whether nothing was found, now or in parts before."""
    begins_anew = not tools and not short
    report = None if begins_anew else sanitizer_report.read(path)
    errors, _, output = run(sanitizer, "initcheck", "--planted")
    planted, all_well = bool(errors), True
    if not planted:
        print(findings(output), "a planted mistake was not reported: nothing below means anything", sep="\n")
    print(f"{'tool':<11}{'errors':>9}{'launches':>10}{'seconds':>9}", flush=True)
    for tool in tools or sanitizer_report.TOOLS:
        start, few = time.monotonic(), short or tool == "racecheck"
        errors, status, output = run(sanitizer, tool, *(["--short"] if few else []))
        seconds = round(time.monotonic() - start)
        launches = sum(int(count) for count in re.findall(r"^launched \S+ (\d+) times$", output, re.MULTILINE))
        count = "none" if errors is None else str(errors)
        print(f"{tool:<11}{count:>9}{launches:>10}{seconds:>9}", flush=True)
        result = {"errors": errors, "launches": launches, "seconds": seconds, "status": status, "short": few}
        if status is None or sanitizer_report.is_failure(result):
            all_well = False
            print(findings(output), flush=True)
        date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        part = {
            "sources": sanitizer_report.digest(),
            **facts,
            "date": date,
            "planted": planted,
            "tools": {tool: result},
        }
        report = sanitizer_report.merge(report, part)
        sanitizer_report.write(path, report)
    line = sanitizer_report.status(report, sanitizer_report.digest())
    print(f"{path.name}: {line}")
    return all_well and not line.startswith("failed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", type=Path, default=sanitizer_report.PATH)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("tools", nargs="*", metavar="TOOL", help=", ".join(sanitizer_report.TOOLS))
    options = parser.parse_args()
    unknown = set(options.tools) - set(sanitizer_report.TOOLS)
    if unknown:
        parser.error(f"TOOL: got {', '.join(sorted(unknown))}, expected {', '.join(sanitizer_report.TOOLS)}")
    sanitizer = find_sanitizer()
    records.require_binary_of_the_tree()
    if not sanitize(sanitizer, options.tools, options.short, gpu_facts(), options.report):
        raise SystemExit("convt_ext: compute-sanitizer found fault, or did not end")


if __name__ == "__main__":
    main()

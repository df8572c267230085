"""Runs the kernel instances under each tool of compute-sanitizer; prints tool, errors, launches and seconds.

    python tools/sanitize.py [--report PATH] [--short] [TOOL ...]

Called by `make sanitize` on a machine with a GPU. The default is all four tools. --short runs the short list of
problems: every kernel instance once in each layout. racecheck always runs the short list. The report is updated after
each tool (sanitizer_report.py). A run of all tools and problems starts a new report; other runs are merged into it. The
workload is sanitize_workload.py. Fails on an error or hazard, on an instance without a launch, on a timeout, and if
initcheck does not report a planted mistake.
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
from required import require

WORKLOAD = Path(__file__).resolve().parent / "sanitize_workload.py"
ERROR_EXIT = 99
SECONDS_PER_TOOL = 300

# Every mangled name of this project contains its namespace. The filter excludes PyTorch's kernels.
KERNELS = "kns=convt"

_SUMMARIES = (
    re.compile(r"RACECHECK SUMMARY: (\d+) hazards? displayed"),
    re.compile(r"ERROR SUMMARY: (\d+) errors?"),
)


def find_sanitizer() -> str:
    """Returns the path of compute-sanitizer, which is part of the CUDA toolkit."""
    folders = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    search = [f"{folder}/{place}" for folder in folders if folder for place in ("bin", "compute-sanitizer")]
    found = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=os.pathsep.join(search))
    remedy = "install the CUDA toolkit's cuda-sanitizer package, or set CUDA_HOME"
    require(found, f"compute-sanitizer is neither on PATH nor in CUDA_HOME: {remedy}")
    return str(found)


def run(sanitizer: str, tool: str, *arguments: str) -> tuple[int | None, int | None, str]:
    """Runs a tool; returns its count of errors, the exit status and the output.

    The count is None if the tool printed no summary. The status is None if it was stopped before it found an error.
    """
    command = [sanitizer, "--tool", tool, "--error-exitcode", str(ERROR_EXIT), "--launch-timeout", "120"]
    command += ["--kernel-name", KERNELS, "--print-limit", "10"]
    if tool == "initcheck":
        # initcheck does not track writes of bulk copies, so it would report copies of results to the CPU as
        # uninitialized reads. The workload checks the values of the results.
        command += ["--check-api-memory-access", "no"]
    command += [sys.executable, str(WORKLOAD), *arguments]
    # Make every tensor a separate allocation, because the caching allocator hides errors within its blocks.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        output, _ = process.communicate(timeout=SECONDS_PER_TOOL)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # includes the workload, a child of the tool
        output, _ = process.communicate()
        has_findings = re.search(r"^=========(?! COMPUTE-SANITIZER)", output, re.MULTILINE) is not None
        return None, 1 if has_findings else None, f"{output}\nstopped after {SECONDS_PER_TOOL} s"
    counts = next(filter(None, (summary.findall(output) for summary in _SUMMARIES)), None)
    return int(counts[-1]) if counts else None, process.returncode, output


def findings(output: str, lines: int = 60) -> str:
    """Returns the tool's first lines and the workload's last lines, without stacks of host functions."""
    told = [line for line in output.splitlines() if "Host Frame" not in line and not line.startswith("frame #")]
    of_tool = [line for line in told if line.startswith("=====")]
    of_workload = [line for line in told if not line.startswith("=====")]
    return "\n".join(of_tool[:lines] + of_workload[-10:])


def gpu_facts() -> dict[str, Any]:
    """Returns the report's facts about the machine."""
    sys.path.insert(0, str(records.CHECKOUT / "tests"))
    import gpu_facts

    facts = gpu_facts.gpu_facts()
    return {key: facts[key] for key in ("gpu", "torch", "cuda", "driver")}


def sanitize(sanitizer: str, tools: list[str], short: bool, facts: dict[str, Any], path: Path) -> bool:
    """Runs the tools, prints and reports their errors; returns whether neither they nor the merged report failed."""
    begins_anew = not tools and not short
    report = None if begins_anew else sanitizer_report.read(path)
    errors, _, output = run(sanitizer, "initcheck", "--planted")
    planted, all_well = bool(errors), True
    if not planted:
        print(findings(output), "a planted mistake was not reported: the results below are invalid", sep="\n")
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
        raise SystemExit("convt_ext: compute-sanitizer reported errors or did not finish")


if __name__ == "__main__":
    main()

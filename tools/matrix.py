"""Runs the CPU tests of one wheel file under several Pythons and versions of torch.

    python tools/matrix.py                     the four environments below, made in .venv-matrix/
    python tools/matrix.py PYTHON [PYTHON …]   these interpreters; each must have torch and the tests' needs

The wheel is unpacked beside each interpreter, not into it, so given environments stay as they are.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import wheels

CHECKOUT = wheels.CHECKOUT

# Oldest and newest that are promised, and CPU torch: Python's version, what pip is asked for.
ENVIRONMENTS = (
    ("3.11", "torch==2.13.0"),
    ("3.10", "torch==2.14.1"),
    ("3.13", "torch"),
    ("3.12", "torch==2.10.0"),
)
TEST_NEEDS = ("hypothesis", "numpy", "pybind11", "pytest>=8", "rich", "matplotlib")


@dataclass
class Result:
    python: str
    torch: str
    passed: bool
    summary: str


def find_python(version: str) -> str:
    """pythonX.Y on PATH that starts, else pyenv's.

    Raises:
        FileNotFoundError: this machine has no such Python.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [
        shutil.which(f"python{version}"),
        *map(str, sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True)),
    ]
    for candidate in candidates:
        if candidate and subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0:
            return candidate
    raise FileNotFoundError(f"no Python {version} on PATH or in {pyenv}")


def make_environment(version: str, torch: str) -> str:
    """A virtual environment with that Python and torch; made once, then kept."""
    folder = CHECKOUT / ".venv-matrix" / f"{version}-{torch.replace('==', '-')}"
    python = folder / "bin/python"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([find_python(version), "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", torch, *TEST_NEEDS], check=True)
        (folder / "complete").touch()
    return str(python)


def run_tests(python: str, wheel: Path) -> Result:
    """The CPU tests of the wheel under one interpreter."""
    query = "import platform, torch; print(platform.python_version(), torch.__version__)"
    asked = subprocess.run([python, "-c", query], capture_output=True, text=True)
    if asked.returncode != 0:
        return Result(python, "?", False, (asked.stderr.splitlines() or ["does not start"])[-1])
    version, torch = asked.stdout.split()
    with tempfile.TemporaryDirectory() as site:
        pip = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site]
        subprocess.run([*pip, str(wheel)], check=True)
        environment = {**os.environ, "PYTHONPATH": site, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "cpu"]
        done = subprocess.run(command, cwd=CHECKOUT / "tests", env=environment, stdout=subprocess.PIPE, text=True)
    print(done.stdout if done.returncode else done.stdout[-400:], flush=True)
    return Result(version, torch, done.returncode == 0, (done.stdout.splitlines() or ["no output"])[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pythons", nargs="*", metavar="PYTHON")
    given = parser.parse_args().pythons
    try:
        wheel = wheels.find_wheel()
        pythons = given or [make_environment(*environment) for environment in ENVIRONMENTS]
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"convt_ext: {error}") from None
    results = []
    for python in pythons:
        print(f"== {python}", flush=True)
        results.append(run_tests(python, wheel))
    print(f"\n{wheel.name}")
    for result in results:
        verdict = "ok    " if result.passed else "FAILED"
        print(f"{verdict} Python {result.python:<8} torch {result.torch:<14} {result.summary}")
    sys.exit(not all(result.passed for result in results))


if __name__ == "__main__":
    main()

"""Runs the CPU tests of one wheel file under several versions of Python and torch.

    python tools/matrix.py                        use the four environments below, created in .venv-matrix/
    python tools/matrix.py PYTHON [PYTHON …]      use these interpreters, which need torch and the tests' requirements
    python tools/matrix.py --make 3.12,oldest,cpu use one supported environment: a Python version, the oldest or newest
                                                  torch for it, a CPU or CUDA build of torch
    python tools/matrix.py --github               print all wheels and environments as a GitHub Actions matrix
    … --wheel FILE                                this wheel; the default is the one in dist/ built from this tree
    … --discard                                   remove each environment after its tests
    … --only 3.12                                 only the one of the four with this Python
    … --quick                                     omit tests that depend little on the environment

Called by `make matrix-test`, .ci/run and wheels.yml. New environments get the wheel with its extras. For given
interpreters the wheel is unpacked into a temporary folder. The tests run from a copy without the sources.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import install_torch
import targets
import wheels

CHECKOUT = wheels.CHECKOUT
FOLDER = CHECKOUT / ".venv-matrix"

# The supported versions. pip finds the newest torch that has a wheel for a Python.
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.14t")
TORCHES = {"oldest": "torch==2.10.*", "newest": "torch"}
BUILDS = ("cpu", "cuda")

# The default environments: old and new versions of Python and torch.
ENVIRONMENTS = (("3.11", "torch==2.13.0"), ("3.10", "torch"), ("3.13", "torch"), ("3.12", "torch==2.10.*"))

# Tests of the benchmark, of explain() and of memory, which depend little on the environment: --quick omits them. CI
# runs them once, with `make test`.
SAME_EVERYWHERE = ("test_bench*.py", "test_neighbour*.py", "test_explain*.py", "test_resident_memory.py")

# Options of pytest-xdist. The tests of a file run in one process, because they share fixtures.
ALL_CORES = ("-n", "auto", "--dist", "loadfile")


@dataclass
class Result:
    python: str
    torch: str
    passed: bool
    summary: str


def find_python(version: str) -> str:
    """Returns the first of pythonX.Y on PATH and pyenv's versions that starts.

    Raises:
        FileNotFoundError: this machine has no such Python.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    of_pyenv = sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True)
    for candidate in (shutil.which(f"python{version}"), *map(str, of_pyenv)):
        if candidate and subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0:
            return candidate
    raise FileNotFoundError(f"no Python {version} on PATH or in {pyenv}")


def make_environment(version: str, torch: str, build: str, wheel: Path) -> str:
    """Creates a virtual environment with that Python and torch if missing, and installs the wheel with pip."""
    folder = FOLDER / f"{version}-{torch.replace('==', '-').replace('.*', '')}-{build}"
    python = str(folder / "bin/python")
    pip = [python, "-m", "pip", "install", "--quiet"]
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([find_python(version), "-m", "venv", str(folder)], check=True)
        install_torch.install(python, torch, build)
        (folder / "complete").touch()
    subprocess.run([*pip, f"{wheel}[test,bench]"], check=True)
    subprocess.run([*pip, "--no-deps", "--no-index", "--force-reinstall", str(wheel)], check=True)
    return python


def copy_tests(folder: Path) -> Path:
    """Copies the tests and the files that they read, without the sources, so that only the wheel can be imported."""
    ignored = shutil.ignore_patterns("__pycache__", "build", "results")
    for name in ("tests", "examples", "benchmarks"):
        shutil.copytree(CHECKOUT / name, folder / name, ignore=ignored)
    shutil.copy(CHECKOUT / "pyproject.toml", folder)
    return folder / "tests"


def run_tests(python: str, unpack: Path | None, chosen: Sequence[str] = ("cpu",)) -> Result:
    """Runs the chosen tests under one interpreter; `unpack` is a wheel to unpack for it if it is not installed."""
    query = "import platform, torch; print(platform.python_version(), torch.__version__)"
    asked = subprocess.run([python, "-c", query], capture_output=True, text=True)
    if asked.returncode != 0:
        return Result(python, "?", False, (asked.stderr.splitlines() or ["does not start"])[-1])
    version, torch = asked.stdout.split()
    with tempfile.TemporaryDirectory() as name:
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        environment.pop("PYTHONPATH", None)
        if unpack is not None:
            site = f"{name}/site"
            pip = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site]
            subprocess.run([*pip, str(unpack)], check=True)
            environment["PYTHONPATH"] = site
        tests = copy_tests(Path(name))
        subprocess.run([python, "-m", "convt_ext", "info"], cwd=tests, env=environment)
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen]
        done = subprocess.run(command, cwd=tests, env=environment, stdout=subprocess.PIPE, text=True)
    print(done.stdout if done.returncode else done.stdout[-400:], flush=True)
    return Result(version, torch, done.returncode == 0, (done.stdout.splitlines() or ["no output"])[-1])


def made(version: str, torch: str, build: str, wheel: Path, discard: bool, quick: bool = False) -> Result:
    chosen = ("cpu", *ALL_CORES, *(f"--ignore-glob=*/{name}" for name in SAME_EVERYWHERE if quick))
    print(f"== Python {version}, {torch}, build: {build}", flush=True)
    try:
        return run_tests(make_environment(version, torch, build, wheel), None, chosen)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        return Result(version, torch, False, str(error))
    finally:
        if discard:
            shutil.rmtree(FOLDER, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="*", metavar="PYTHON")
    parser.add_argument("--make", metavar="PYTHON,oldest|newest,cpu|cuda")
    parser.add_argument("--github", action="store_true")
    parser.add_argument("--wheel", type=Path)
    parser.add_argument("--discard", action="store_true")
    parser.add_argument("--only", metavar="PYTHON")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    if arguments.github:
        tags = [target.tag for target in targets.TARGETS]
        print(json.dumps({"tag": tags, "python": list(PYTHONS), "torch": list(TORCHES), "build": list(BUILDS)}))
        return
    wheel = arguments.wheel.resolve(strict=True) if arguments.wheel else wheels.find_wheel()
    if arguments.make:
        version, age, build = arguments.make.split(",")
        results = [made(version, TORCHES[age], build, wheel, arguments.discard)]
    elif arguments.pythons:
        results = [run_tests(python, wheel) for python in arguments.pythons]
    else:
        chosen = [environment for environment in ENVIRONMENTS if arguments.only in (None, environment[0])]
        results = [made(*environment, "any", wheel, arguments.discard, arguments.quick) for environment in chosen]
    print(f"\n{wheel.name}")
    for result in results:
        mark = "ok    " if result.passed else "FAILED"
        print(f"{mark} Python {result.python:<8} torch {result.torch:<14} {result.summary}")
    sys.exit(not all(result.passed for result in results))


if __name__ == "__main__":
    main()

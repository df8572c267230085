"""Installs one wheel file under several Pythons and torches, away from the sources, and runs the CPU tests.

    python tools/matrix.py                        the four environments below, made in .venv-matrix/
    python tools/matrix.py PYTHON [PYTHON …]      these interpreters; each must have torch and the tests' needs
    python tools/matrix.py --make 3.12,oldest,cpu one environment of what is promised: a Python version, the oldest
                                                  or newest torch for it, a CPU or CUDA build of torch
    python tools/matrix.py --github               all of what is promised, for every wheel, as a GitHub Actions matrix
    … --wheel FILE                                this wheel instead of the one in dist/ that is of this tree
    … --discard                                   remove each environment after its tests
    … --only 3.12                                 of the four, the one with this Python
    … --quick                                     without tests of what is mostly the same under all of them

Into environments that are made the wheel is installed as users do it, with its extras. Beside given interpreters
it is unpacked, so that they stay as they are. The tests run from a copy, with no sources beside them.
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

# What is promised. pip finds the newest torch that has a wheel for a Python.
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.14t")
TORCHES = {"oldest": "torch==2.10.*", "newest": "torch"}
BUILDS = ("cpu", "cuda")

# What a machine with four Pythons runs: oldest and newest of both, and CPU torch where pip finds one.
ENVIRONMENTS = (
    ("3.11", "torch==2.13.0"),
    ("3.10", "torch"),
    ("3.13", "torch"),
    ("3.12", "torch==2.10.*"),
)


# Tests of the benchmark, of plans in words and of memory: --quick runs them under one Python and torch alone, by `make
# test`, as most of what they ask is the same under all.
SAME_EVERYWHERE = ("test_bench*.py", "test_neighbour*.py", "test_explain*.py", "test_resident_memory.py")

# pytest-xdist's; a file's tests stay together, as they share what they have made.
ALL_CORES = ("-n", "auto", "--dist", "loadfile")


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


def make_environment(version: str, torch: str, build: str, wheel: Path) -> str:
    """A virtual environment with that Python and torch, made once, and the wheel as `pip install` puts it there."""
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
    """The tests, and what they read, without the package and the kernels: nothing but the wheel can be imported."""
    for name in ("tests", "examples"):
        shutil.copytree(CHECKOUT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "build"))
    shutil.copy(CHECKOUT / "pyproject.toml", folder)
    return folder / "tests"


def run_tests(python: str, unpack: Path | None, chosen: Sequence[str] = ("cpu",)) -> Result:
    """The CPU tests, or some files of them, under one interpreter; `unpack` is a wheel that is not installed there."""
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


def github_matrix() -> dict[str, list[str]]:
    tags = [target.tag for target in targets.TARGETS]
    return {"tag": tags, "python": list(PYTHONS), "torch": list(TORCHES), "build": list(BUILDS)}


def find_wheel(given: Path | None) -> Path:
    try:
        return given.resolve(strict=True) if given else wheels.find_wheel()
    except FileNotFoundError as error:
        raise SystemExit(f"convt_ext: {error}") from None


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
        print(json.dumps(github_matrix()))
        return
    wheel = find_wheel(arguments.wheel)
    environments = [(version, torch) for version, torch in ENVIRONMENTS if arguments.only in (None, version)]
    if arguments.make:
        version, age, build = arguments.make.split(",")
        results = [made(version, TORCHES[age], build, wheel, arguments.discard)]
    elif arguments.pythons:
        results = [run_tests(python, wheel) for python in arguments.pythons]
    else:
        results = [
            made(version, torch, "any", wheel, arguments.discard, arguments.quick) for version, torch in environments
        ]
    print(f"\n{wheel.name}")
    for result in results:
        verdict = "ok    " if result.passed else "FAILED"
        print(f"{verdict} Python {result.python:<8} torch {result.torch:<14} {result.summary}")
    sys.exit(not all(result.passed for result in results))


if __name__ == "__main__":
    main()

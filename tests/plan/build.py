"""Builds the C++ modules that only tests use: `_plan` (the planner), `_launches` (the launchers, whose launches are
written down), `_oracle` (exact sums in scalar loops) and `_emulated` (kernels whose threads are fibers on the host).

    python tests/plan/build.py --out build/plan

Needs a C++17 compiler ($CXX, else c++, g++ or clang++) and pybind11. A module is compiled again only when its
sources, the headers it includes or its command line have changed, and of its sources those that have.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_OUT = ROOT / "build" / "plan"
FLAGS = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-fPIC"]
# Arithmetic of the planner that has no meaning ends the process (SIGILL), in every test: sizes are a user's.
TRAPS = [
    "-fsanitize=signed-integer-overflow,integer-divide-by-zero,shift,float-cast-overflow,bounds",
    "-fsanitize-undefined-trap-on-error",
]


# The fixtures that are these modules (plan/conftest.py, oracle/plugin.py); tests/conftest.py builds what is asked for.
MODULES = ("_plan", "_launches", "_oracle", "_emulated")
FIXTURES = {"plan_module": "_plan", "launch_module": "_launches", "oracle": "_oracle", "emulated": "_emulated"}


class NoCompiler(RuntimeError):
    """No C++ compiler on this machine, or no CUDA headers where a module needs them."""


def find_compiler() -> list[str]:
    """The C++ compiler as a command. Raises NoCompiler."""
    candidates = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    for candidate in candidates:
        command = shlex.split(candidate)
        if shutil.which(command[0]):
            return command
    raise NoCompiler(f"no C++ compiler found (tried {', '.join(candidates)}); install g++ or set CXX")


def _module(name: str) -> tuple[list[Path], list[Path], list[str]]:
    """Sources of one module alone, headers that they depend on, and flags. Sources of kernels/ are shared."""
    kernels, tests = ROOT / "kernels", ROOT / "tests"
    headers = [*kernels.rglob("*.h"), *(tests / "launch").glob("*.h"), tests / "plan/module/values.h"]
    includes = ["-I", str(kernels), "-I", str(tests), "-I", str(tests / "plan")]
    if name == "_plan":
        return sorted((tests / "plan/module").glob("*.cpp")), sorted(headers), [*includes, *TRAPS]
    if name == "_launches":
        flags = [*includes, *TRAPS, "-isystem", str(cuda_headers())]
        return sorted((tests / "launch").rglob("*.cpp")), sorted(headers), flags
    if name == "_oracle":
        # The oracle writes std::fma where it means one: no other product and sum may be fused.
        fma = ["-mfma"] if platform.machine() in ("x86_64", "AMD64") else []
        return [tests / "oracle/oracle.cpp"], [], ["-ffp-contract=off", *fma]
    if name == "_emulated":
        # The emulator's twins of kernels/ptx come first.
        emulator = tests / "emulator"
        headers += [*kernels.rglob("*.cu*"), *emulator.rglob("*.h"), *emulator.rglob("*.cuh")]
        device_code = ["-std=c++20", "-O1", "-w", "-fno-extern-tls-init"]
        flags = ["-I", str(emulator), *includes, *device_code, "-isystem", str(cuda_headers())]
        return sorted(emulator.glob("*.cpp")), sorted(headers), flags
    raise ValueError(f"unknown module {name!r}, expected one of {', '.join(MODULES)}")


def _shared(name: str) -> dict[Path, list[str]]:
    """Sources of kernels/ in the module, with their flags. They are compiled once for all modules."""
    if name == "_oracle":
        return {}
    flags = ["-I", str(ROOT / "kernels"), *TRAPS]
    shared = dict.fromkeys(planners(), flags)
    if name != "_plan":
        cuda = ["-isystem", str(cuda_headers())]
        shared |= {source: [*flags, *cuda] for source in launchers()}
    if name == "_emulated":  # tests/emulator/reduce.cpp replaces these
        for path in ("reduce/launch.cpp", "epilogue/launch.cpp"):
            del shared[ROOT / "kernels" / path]
    return shared


def is_launcher(source: Path) -> bool:
    """It needs CUDA's headers, as all in these folders and, in the families' folders, what is named so."""
    return source.parent.name == "launch" or source.stem.endswith("launch")


def planners() -> list[Path]:
    """C++ files that need neither torch nor CUDA."""
    kernels = ROOT / "kernels"
    return sorted(path for path in kernels.rglob("*.cpp") if path.parent.name != "binding" and not is_launcher(path))


def launchers() -> list[Path]:
    """Those that need CUDA's headers, but for what puts a launch into a stream: tests/launch/recorder.cpp does so."""
    kernels = ROOT / "kernels"
    return sorted(path for path in set(kernels.rglob("*.cpp")) - {kernels / "launch/kernel.cpp"} if is_launcher(path))


def cuda_headers() -> Path:
    """The folder of CUDA's headers. Raises NoCompiler where there is no toolkit."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import cuda_toolkit
    finally:
        sys.path.pop(0)
    try:
        return cuda_toolkit.find(ROOT) / "include"
    except cuda_toolkit.ToolkitError as error:
        raise NoCompiler(str(error)) from error


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Parallel test workers build a module once."""
    import fcntl

    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _digest(command: list[str], files: list[Path]) -> str:
    digest = hashlib.sha256("\0".join(command).encode())
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _make(name: str, command: list[str], files: list[Path], target: Path) -> Path:
    """Runs the command that makes the target from these files and no others, unless it has; returns the target."""
    digest, stamp = _digest(command, files), target.with_suffix(".digest")
    if target.exists() and stamp.exists() and stamp.read_text() == digest:
        return target
    # Made beside the target and moved: a process that has the old file mapped keeps it whole.
    unfinished = target.with_suffix(f".{os.getpid()}.tmp")
    try:
        result = subprocess.run([*command, "-o", str(unfinished)], capture_output=True, text=True)
        if result.returncode:
            raise RuntimeError(f"{name} does not compile:\n{shlex.join(command)}\n{result.stderr}")
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    stamp.write_text(digest)
    return target


def build(name: str, out: Path = DEFAULT_OUT) -> Path:
    """Compiles a module into `out` unless it is there and current; returns the path of the extension."""
    import pybind11

    sources, headers, flags = _module(name)
    includes = ["-I", pybind11.get_include(), "-I", sysconfig.get_paths()["include"]]
    compiler = [*find_compiler(), *FLAGS]
    out = Path(out).resolve()
    for folder in (name, "kernels"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    shared, headers_of_shared = _shared(name), sorted((ROOT / "kernels").rglob("*.h"))

    def compile_source(source: Path) -> Path:
        path = source.relative_to(ROOT).with_suffix(".o")  # names alone are not unique
        target = out / ("kernels" if source in shared else name) / "-".join(path.parts)
        words = [*compiler, *shared.get(source, [*flags, *includes]), "-c", str(source)]
        return _make(name, words, [source, *(headers_of_shared if source in shared else headers)], target)

    kernels = _locked(out / "kernels.lock") if shared else contextlib.nullcontext()
    with _locked(out / f"{name}.lock"), kernels, ThreadPoolExecutor(os.cpu_count()) as pool:
        compiled = list(pool.map(compile_source, [*sources, *shared]))  # the largest first
        target = out / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
        return _make(name, [*compiler, "-shared", *map(str, compiled)], compiled, target)


def load(name: str, out: Path = DEFAULT_OUT) -> ModuleType:
    """Builds a module if necessary and imports it."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, build(name, out))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module
    return module


def load_or_skip(name: str) -> ModuleType:
    """For fixtures: as `load`; the test is skipped where the machine cannot build the module."""
    import pytest

    try:
        return load(name)
    except NoCompiler as error:
        pytest.skip(str(error))


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the C++ modules that only tests use.")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="directory for the extensions")
    parser.add_argument("--module", choices=MODULES, action="append", help="default: all")
    arguments = parser.parse_args()
    for name in arguments.module or MODULES:
        try:
            print(build(name, arguments.out))
        except (RuntimeError, ImportError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

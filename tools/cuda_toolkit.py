"""Prints the folder of a CUDA toolkit to build with, and installs one from PyPI if the machine has none.

    python tools/cuda_toolkit.py                 print the toolkit's folder; install a toolkit if necessary
    python tools/cuda_toolkit.py --no-fetch      print it, or fail with a remedy
    python tools/cuda_toolkit.py --release 13.5  print the folder of that CUDA release from PyPI: .cuda/13.5/nvidia/cu13

Called by `make build` and .ci/run. Installs CUDA 13's compiler, headers and static runtime into `.cuda/` of the
checkout, so that a machine needs only Python and a C++ compiler. setup.py calls `find`, which installs nothing. Needs
only the standard library.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

OLDEST = (12, 8)  # the first nvcc that supports architectures 10.0 and 12.0

# The architectures of a release by CUDA major version. CUDA 13 supports 7.5 and newer. 9.0a has Hopper's own
# instructions, so its PTX does not run on other GPUs. 12.0's PTX runs on future GPUs.
ARCHITECTURES = {12: "7.0;7.5;8.0;8.6;8.9;9.0a;10.0;12.0+PTX", 13: "7.5;8.0;8.6;8.9;9.0a;10.0;12.0+PTX"}

# The packages that compile and link a CUDA file; they share one folder, nvidia/cu13.
PYPI_PACKAGES = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-runtime")
CCCL = "nvidia-cuda-cccl"
PYPI_RELEASE = "13.0"

REMEDY = (
    "set CUDA_HOME to a CUDA toolkit, or run `python tools/cuda_toolkit.py` in the checkout, "
    "which installs CUDA 13's compiler from PyPI into .cuda/"
)


class ToolkitError(RuntimeError):
    """No usable toolkit. The message is one line with a remedy."""


def find(checkout: Path) -> Path:
    """Returns the first toolkit of: $CUDA_HOME or $CUDA_PATH, /usr/local/cuda, nvcc on PATH, .cuda/, site-packages.

    Raises:
        ToolkitError: no toolkit is found, $CUDA_HOME is not a toolkit, or the toolkit is older than CUDA 12.8.
    """
    named = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if named:
        home = Path(named)
        if not is_toolkit(home):
            raise ToolkitError(
                f"CUDA_HOME={named} contains no CUDA toolkit (bin/nvcc, headers, libcudart_static.a): {REMEDY}"
            )
        return _new_enough(home)
    site = Path(sysconfig.get_paths()["purelib"])
    candidates = [Path("/usr/local/cuda"), _behind_nvcc_on_path(), *_pypi_homes(checkout / ".cuda"), *_pypi_homes(site)]
    for candidate in candidates:
        if candidate is not None and is_toolkit(candidate):
            return _new_enough(candidate)
    raise ToolkitError(
        f"nvcc was not found (searched CUDA_HOME, /usr/local/cuda, PATH, .cuda/, site-packages): {REMEDY}"
    )


def is_toolkit(home: Path) -> bool:
    """Returns whether `home` contains the compiler, the runtime's headers and the static runtime."""
    libraries = ("lib64", "lib", *(f"targets/{machine}-linux/lib" for machine in ("x86_64", "sbsa")))
    has_library = any((home / name / "libcudart_static.a").is_file() for name in libraries)
    return (home / "bin/nvcc").is_file() and (home / "include/cuda_runtime.h").is_file() and has_library


def release(home: Path) -> tuple[int, int]:
    """Returns the toolkit's version, such as (13, 0)."""
    text = subprocess.run([str(home / "bin/nvcc"), "--version"], capture_output=True, text=True).stdout
    match = re.search(r"release (\d+)\.(\d+)", text)
    if match is None:
        raise ToolkitError(f"{home}/bin/nvcc --version prints no release: {REMEDY}")
    return int(match[1]), int(match[2])


def release_architectures(home: Path) -> str:
    """Returns the architectures of a release with this toolkit. An unlisted CUDA major gets the newest list."""
    major, _ = release(home)
    return ARCHITECTURES.get(major, ARCHITECTURES[max(ARCHITECTURES)])


def architectures(home: Path) -> set[str]:
    """Returns the architectures that this nvcc supports, such as "7.5" or "9.0a"."""
    text = subprocess.run([str(home / "bin/nvcc"), "--list-gpu-code"], capture_output=True, text=True).stdout
    return {f"{major}.{minor}" for major, minor in re.findall(r"sm_(\d+)(\d[a-z]?)\b", text)}


def fetch(target: Path, cuda_release: str) -> Path:
    """Installs that CUDA release's compiler from PyPI into the folder and returns the toolkit's folder in it."""
    packages = [f"{name}=={cuda_release}.*" for name in PYPI_PACKAGES]
    # Since CUDA 13.3 CCCL has its own version numbers; a toolkit accepts newer CCCL headers.
    packages.append(CCCL if _numbers(cuda_release) >= (13, 3) else f"{CCCL}=={cuda_release}.*")
    print(f"installing CUDA {cuda_release} from PyPI into {target}", file=sys.stderr)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run([*command, "--target", str(target), *packages], stdout=sys.stderr)
    homes = [home for home in _pypi_homes(target) if is_toolkit(home)]
    if done.returncode != 0 or not homes:
        raise ToolkitError(f"pip could not install {', '.join(packages)}: {REMEDY}")
    return homes[0]


def pypi_release(checkout: Path, cuda_release: str) -> Path:
    """Returns the toolkit of that release in `.cuda/`, and installs it first if it is missing."""
    target = checkout / ".cuda" / cuda_release
    homes = [home for home in _pypi_homes(target) if is_toolkit(home)]
    return homes[0] if homes else fetch(target, cuda_release)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _behind_nvcc_on_path() -> Path | None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        return None
    # The nvcc on PATH may be a script or a link. Its --dryrun output contains the real location.
    text = subprocess.run([nvcc, "--dryrun", "-x", "cu", os.devnull], capture_output=True, text=True).stderr
    match = re.search(r"^#\$ TOP=(.*)$", text, re.MULTILINE)
    return Path(match[1]).resolve() if match else None


def _pypi_homes(site: Path) -> list[Path]:
    return sorted(site.glob("nvidia/cu1[3-9]"), reverse=True)


def _new_enough(home: Path) -> Path:
    version = release(home)
    if version < OLDEST:
        got, need = (".".join(map(str, pair)) for pair in (version, OLDEST))
        raise ToolkitError(f"the CUDA toolkit in {home} is {got}, but convt_ext needs {need} or newer: {REMEDY}")
    return home


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-fetch", action="store_true")
    parser.add_argument("--release", metavar="MAJOR.MINOR")
    arguments = parser.parse_args()
    checkout = Path(__file__).resolve().parent.parent
    try:
        if arguments.release:
            home = pypi_release(checkout, arguments.release)
        elif arguments.no_fetch or os.environ.get("CUDA_HOME"):
            home = find(checkout)
        else:
            home = find_or_fetch(checkout)
    except ToolkitError as error:
        raise SystemExit(f"convt_ext: {error}") from None
    print(home)


def find_or_fetch(checkout: Path) -> Path:
    try:
        return find(checkout)
    except ToolkitError:
        return fetch(checkout / ".cuda", PYPI_RELEASE)


if __name__ == "__main__":
    main()

"""Finds a CUDA toolkit to build with, and as a command fetches one when there is none.

setup.py calls `find`, which only looks. `make` runs this file as a command: where nothing is found
it installs CUDA 13's compiler, headers and static runtime from PyPI into `.cuda/` of the checkout,
so that a machine with Python and a C++ compiler is enough. Needs only the standard library.

    python tools/cuda_toolkit.py            print the toolkit's folder, fetching one if need be
    python tools/cuda_toolkit.py --no-fetch print it, or fail with what to do
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

OLDEST = (12, 8)  # the first nvcc that knows the 10.0 and 12.0 architectures

# The pieces that compile and link a CUDA file; they share one folder, nvidia/cu13.
PYPI_PACKAGES = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-runtime", "nvidia-cuda-cccl")
PYPI_RELEASE = "13.0"

REMEDY = (
    "set CUDA_HOME to a CUDA toolkit, or run `python tools/cuda_toolkit.py` in the checkout, "
    "which installs CUDA 13's compiler from PyPI into .cuda/"
)


class ToolkitError(RuntimeError):
    """No usable toolkit. The text is one line that says what to do."""


def find(checkout: Path) -> Path:
    """The folder of the toolkit to use: $CUDA_HOME, /usr/local/cuda, nvcc on PATH, .cuda/, site-packages.

    Raises:
        ToolkitError: there is none, $CUDA_HOME is not one, or the one found is older than CUDA 12.8.
    """
    named = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if named:
        home = Path(named)
        if not is_toolkit(home):
            raise ToolkitError(f"CUDA_HOME={named} holds no CUDA toolkit (bin/nvcc and include/): {REMEDY}")
        return _new_enough(home)
    site = Path(sysconfig.get_paths()["purelib"])
    candidates = [Path("/usr/local/cuda"), _behind_nvcc_on_path(), *_pypi_homes(checkout / ".cuda"), *_pypi_homes(site)]
    for home in candidates:
        if home is not None and is_toolkit(home):
            return _new_enough(home)
    raise ToolkitError(
        f"nvcc was not found (looked at CUDA_HOME, /usr/local/cuda, PATH, .cuda/, site-packages): {REMEDY}"
    )


def is_toolkit(home: Path) -> bool:
    """Whether `home` has the compiler, the runtime's headers and the static runtime."""
    libraries = ("lib64/libcudart_static.a", "lib/libcudart_static.a", "targets/x86_64-linux/lib/libcudart_static.a")
    has_library = any((home / name).is_file() for name in libraries)
    return (home / "bin/nvcc").is_file() and (home / "include/cuda_runtime.h").is_file() and has_library


def release(home: Path) -> tuple[int, int]:
    """The toolkit's version, such as (13, 0)."""
    text = subprocess.run([str(home / "bin/nvcc"), "--version"], capture_output=True, text=True).stdout
    match = re.search(r"release (\d+)\.(\d+)", text)
    if match is None:
        raise ToolkitError(f"{home}/bin/nvcc --version prints no release: {REMEDY}")
    return int(match[1]), int(match[2])


def architectures(home: Path) -> set[str]:
    """What this nvcc can compile for, as "7.5" or "9.0a"."""
    text = subprocess.run([str(home / "bin/nvcc"), "--list-gpu-code"], capture_output=True, text=True).stdout
    return {f"{major}.{minor}" for major, minor in re.findall(r"sm_(\d+)(\d[a-z]?)\b", text)}


def fetch(checkout: Path) -> Path:
    """Installs the compiler from PyPI into `.cuda/` of the checkout and returns the toolkit's folder."""
    target = checkout / ".cuda"
    packages = [f"{name}=={PYPI_RELEASE}.*" for name in PYPI_PACKAGES]
    print(f"no nvcc on this machine: installing CUDA {PYPI_RELEASE} from PyPI into {target}", file=sys.stderr)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run([*command, "--target", str(target), *packages], stdout=sys.stderr)
    if done.returncode != 0:
        raise ToolkitError(f"pip could not install {', '.join(packages)}: {REMEDY}")
    return find(checkout)


def _behind_nvcc_on_path() -> Path | None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        return None
    # The nvcc on PATH may be a script or a link: the compiler itself says where it lives.
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
    checkout = Path(__file__).resolve().parent.parent
    try:
        print(find(checkout))
    except ToolkitError as error:
        if "--no-fetch" in sys.argv[1:] or os.environ.get("CUDA_HOME"):
            raise SystemExit(f"convt_ext: {error}") from None
        try:
            print(fetch(checkout))
        except ToolkitError as failure:
            raise SystemExit(f"convt_ext: {failure}") from None


if __name__ == "__main__":
    main()

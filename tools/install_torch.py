"""Installs torch for the running Python: pip's choice, or a CPU or CUDA build.

    python tools/install_torch.py "torch==2.13.0" [--build any|cpu|cuda] [--needs-installed]

Called by the Makefile, .ci/run, gpu_job.sh, matrix.py and cibuildwheel. On Linux, pip's default index mostly contains
CUDA builds. The variable TORCH_CPU_INDEX is the address of PyTorch's index of CPU builds; `--build cpu` fails without
it. `any` installs a CPU build if the variable is set. Only torch comes from that index, and its dependencies from the
default index, so that each name is looked up in one index. --needs-installed fails if a dependency is missing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

BUILDS = ("any", "cpu", "cuda")


def chosen_build(build: str) -> str:
    return "cpu" if build == "any" and os.environ.get("TORCH_CPU_INDEX") else build


def pip_words(torch: str, build: str, needs_installed: bool = False) -> list[list[str]]:
    """Returns the arguments of each `pip install` command.

    >>> pip_words("torch==2.10.*", "cuda")
    [['torch==2.10.*']]

    Raises:
        SystemExit: a CPU build is requested and TORCH_CPU_INDEX is not set.
    """
    place = os.environ.get("TORCH_CPU_INDEX")
    is_cpu = chosen_build(build) == "cpu"
    if is_cpu and not place:
        raise SystemExit(
            "convt_ext: a CPU build of torch is requested, but TORCH_CPU_INDEX is not set: set it to the address of "
            "the index of torch's CPU builds (for the workflows: the repository variable of that name)"
        )
    if not is_cpu and not needs_installed:
        return [[torch]]
    index = ["--index-url", str(place)] if is_cpu else []
    # The second command keeps the installed torch, because it matches, and installs its dependencies.
    return [[torch, "--no-deps", *index], [torch, "--no-index"] if needs_installed else [torch]]


def install(python: str, torch: str, build: str, needs_installed: bool = False) -> None:
    """Installs torch for that interpreter and verifies that it is the requested build.

    Raises:
        subprocess.CalledProcessError: pip failed, or installed the other build.
    """
    for words in pip_words(torch, build, needs_installed):
        subprocess.run([python, "-m", "pip", "install", "--quiet", *words], check=True)
    wanted = chosen_build(build)
    if wanted != "any":
        program = f"import torch; assert (torch.version.cuda is None) == {wanted == 'cpu'}, torch.__version__"
        subprocess.run([python, "-c", program], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("torch")
    parser.add_argument("--build", choices=BUILDS, default="any")
    parser.add_argument("--needs-installed", action="store_true")
    arguments = parser.parse_args()
    try:
        install(sys.executable, arguments.torch, arguments.build, arguments.needs_installed)
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"convt_ext: {error}") from None


if __name__ == "__main__":
    main()

"""Installs torch for the running Python: pip's choice, or a CPU or CUDA build.

    python tools/install_torch.py "torch==2.13.0" [--build any|cpu|cuda]

On Linux the packages that pip finds by itself are mostly CUDA builds. CPU builds lie in an index of PyTorch's own,
which the variable TORCH_CPU_INDEX names; without it, asking for one is an error.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

BUILDS = ("any", "cpu", "cuda")


def pip_words(torch: str, build: str) -> list[str]:
    """What stands behind `pip install` for that build.

    >>> pip_words("torch==2.10.*", "cuda")
    ['torch==2.10.*']

    Raises:
        SystemExit: a CPU build, and nothing says where these are.
    """
    if build != "cpu":
        return [torch]
    place = os.environ.get("TORCH_CPU_INDEX")
    if not place:
        raise SystemExit(
            "convt_ext: a CPU build of torch is asked for, and TORCH_CPU_INDEX is not set: set it to the address of "
            "the index of torch's CPU builds (for the workflows: the repository variable of that name)"
        )
    return [torch, "--index-url", place]


def install(python: str, torch: str, build: str) -> None:
    """Installs it for that interpreter and makes sure that it is the build that was asked for.

    Raises:
        subprocess.CalledProcessError: pip failed, or installed the other build.
    """
    subprocess.run([python, "-m", "pip", "install", "--quiet", *pip_words(torch, build)], check=True)
    if build != "any":
        program = f"import torch; assert (torch.version.cuda is None) == {build == 'cpu'}, torch.__version__"
        subprocess.run([python, "-c", program], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("torch")
    parser.add_argument("--build", choices=BUILDS, default="any")
    arguments = parser.parse_args()
    try:
        install(sys.executable, arguments.torch, arguments.build)
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"convt_ext: {error}") from None


if __name__ == "__main__":
    main()

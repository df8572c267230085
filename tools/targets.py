"""The wheels of a release: for which CUDA version, built in which image, named how.

    python tools/targets.py               print them
    python tools/targets.py --github      the same as a GitHub Actions matrix, in one line of JSON
    python tools/targets.py --build 12.9  build that wheel with cibuildwheel (needs docker, and the variables
                                          MANYLINUX_IMAGE and TORCH_CPU_INDEX) into wheelhouse/cu129/
    python tools/targets.py --build 12.9 --print-build-identifiers
                                          what cibuildwheel would build; further words are passed on to it

The only list of CUDA versions: the workflows, the index of a release and the check of the configuration read it.
How cibuildwheel builds is in pyproject.toml; which architectures a CUDA version gets is in tools/cuda_toolkit.py.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent

# The manylinux images with a CUDA toolkit that cibuildwheel's documentation names, at a dated tag: what stands behind
# the registry's host in the variable MANYLINUX_IMAGE. {machine} and {cuda} are filled in.
IMAGE = "manylinux_cuda/manylinux_2_28_{machine}_cuda{cuda}:2026.06.30-1"


@dataclass(frozen=True)
class Target:
    cuda: str  # "12.9"
    is_default: bool  # its wheel has no local version, and is the one that a package index gets

    @property
    def tag(self) -> str:
        """Its index folder, and the local version of every wheel but the default one: "cu129"."""
        return "cu" + self.cuda.replace(".", "")

    @property
    def local_version(self) -> str:
        return "" if self.is_default else self.tag

    def image(self, machine: str) -> str:
        """Where it is built.

        Raises:
            SystemExit: MANYLINUX_IMAGE is not set, has no host, or could mean another image tomorrow.
        """
        text = os.environ.get("MANYLINUX_IMAGE", "")
        remedy = (
            f"set it to the image's full name, REGISTRY/{IMAGE} with the registry's host for REGISTRY "
            "(for the workflows: the repository variable of that name)"
        )
        if not text:
            raise SystemExit(f"convt_ext: MANYLINUX_IMAGE is not set: {remedy}")
        # As docker reads a name: without a dot or a port in front it looks at a registry of its own choice.
        if not re.match(r"[\w-]*[.:][\w.:-]*/", text):
            raise SystemExit(f"convt_ext: MANYLINUX_IMAGE={text} names no registry: {remedy}")
        if not re.search(r"(:\d{4}\.\d\d\.\d\d-\d+|@sha256:[0-9a-f]{64})$", text):
            raise SystemExit(f"convt_ext: MANYLINUX_IMAGE={text} ends in no dated tag or digest: {remedy}")
        return text.format(machine=machine, cuda=self.cuda.replace(".", "_"))


TARGETS = (Target("13.0", is_default=True), Target("12.9", is_default=False))
RUNNERS = {"x86_64": "ubuntu-24.04"}  # aarch64 is "ubuntu-24.04-arm", as soon as somebody has run the wheel there


def find_target(cuda: str) -> Target:
    for target in TARGETS:
        if target.cuda == cuda:
            return target
    known = ", ".join(target.cuda for target in TARGETS)
    raise SystemExit(f"convt_ext: there is no wheel for CUDA {cuda!r}: choose one of {known}")


def facts(target: Target) -> dict[str, str | bool]:
    return {"cuda": target.cuda, "tag": target.tag, "is_default": target.is_default}


def github_matrix() -> dict[str, list[dict[str, str | bool]]]:
    jobs = [
        {**facts(target), "machine": machine, "runner": runner}
        for target in TARGETS
        for machine, runner in RUNNERS.items()
    ]
    return {"include": jobs}


def make_sdist() -> Path:
    """The source distribution that every wheel of a release is built from. Making one needs neither torch nor nvcc."""
    folder = CHECKOUT / "wheelhouse" / "sdist"
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--skip-dependency-check"]
    subprocess.run([*command, "--outdir", str(folder), str(CHECKOUT)], check=True, stdout=sys.stderr)
    (sdist,) = folder.glob("*.tar.gz")
    return sdist


def build_variables(target: Target, machine: str) -> dict[str, str]:
    """What the build of a target needs in its environment."""
    return {
        f"CIBW_MANYLINUX_{machine.upper()}_IMAGE": target.image(machine),
        "CONVT_EXT_LOCAL_VERSION": target.local_version,
        "CONVT_EXT_CUDA": target.cuda,
    }


def build(target: Target, more: list[str]) -> int:
    """cibuildwheel on the source distribution, in the image of the target."""
    only_names = "--print-build-identifiers" in more
    variables = {} if only_names else build_variables(target, platform.machine())
    source = CHECKOUT if only_names else make_sdist()
    command = [sys.executable, "-m", "cibuildwheel", "--platform", "linux", *more, str(source)]
    command += ["--output-dir", str(CHECKOUT / "wheelhouse" / target.tag)]
    return subprocess.run(command, cwd=CHECKOUT, env={**os.environ, **variables}).returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--github", action="store_true")
    parser.add_argument("--build", metavar="CUDA")
    arguments, more = parser.parse_known_args()
    if arguments.build:
        sys.exit(build(find_target(arguments.build), more))
    if more:
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    if arguments.github:
        print(json.dumps(github_matrix()))
        return
    for target in TARGETS:
        what = "default, no local version" if target.is_default else f"+{target.local_version}"
        print(f"CUDA {target.cuda}: {what}; {', '.join(RUNNERS)}")


if __name__ == "__main__":
    main()

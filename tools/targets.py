"""Lists the wheels of a release with CUDA version, image and local version, and builds them.

    python tools/targets.py               print the wheels
    python tools/targets.py --github      print them as a GitHub Actions matrix, in one line of JSON
    python tools/targets.py --build 12.9  build that wheel with cibuildwheel into wheelhouse/cu129/ (needs docker and
                                          the variables MANYLINUX_IMAGE and TORCH_CPU_INDEX)
    python tools/targets.py --build 12.9 --print-build-identifiers
                                          print cibuildwheel's builds; further arguments are passed to cibuildwheel

Called by wheels.yml and lint_ci.py. This is the only list of CUDA versions: workflows, release.py and checks read it.
pyproject.toml configures cibuildwheel. tools/cuda_toolkit.py lists the architectures of each CUDA version.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

from required import require

CHECKOUT = Path(__file__).resolve().parent.parent

# The manylinux images with a CUDA toolkit from cibuildwheel's documentation, at a dated tag. The variable
# MANYLINUX_IMAGE is this name after the registry's host. {machine} and {cuda} are replaced.
IMAGE = "manylinux_cuda/manylinux_2_28_{machine}_cuda{cuda}:2026.06.30-1"


@dataclasses.dataclass(frozen=True)
class Target:
    cuda: str  # "12.9"
    is_default: bool  # its wheel has no local version and is uploaded to the package index

    @property
    def tag(self) -> str:
        """Returns the index folder, and the local version of every wheel except the default one: "cu129"."""
        return "cu" + self.cuda.replace(".", "")

    @property
    def local_version(self) -> str:
        return "" if self.is_default else self.tag

    def image(self, machine: str) -> str:
        """Returns the image of the build.

        Raises:
            SystemExit: MANYLINUX_IMAGE is not set, has no host, or has no dated tag or digest.
        """
        text = os.environ.get("MANYLINUX_IMAGE", "")
        remedy = (
            f"set it to the image's full name, REGISTRY/{IMAGE} with the registry's host for REGISTRY "
            "(for the workflows: the repository variable of that name)"
        )
        require(text, f"MANYLINUX_IMAGE is not set: {remedy}")
        # Without a host with a dot or a port, docker uses its default registry.
        has_host = re.match(r"[\w-]*[.:][\w.:-]*/", text)
        require(has_host, f"MANYLINUX_IMAGE={text} names no registry: {remedy}")
        is_pinned = re.search(r"(:\d{4}\.\d\d\.\d\d-\d+|@sha256:[0-9a-f]{64})$", text)
        require(is_pinned, f"MANYLINUX_IMAGE={text} ends in no dated tag or digest: {remedy}")
        return text.format(machine=machine, cuda=self.cuda.replace(".", "_"))


TARGETS = (Target("13.0", is_default=True), Target("12.9", is_default=False))
RUNNERS = {"x86_64": "ubuntu-24.04"}  # aarch64 is "ubuntu-24.04-arm", once a wheel has been tested there


def find_target(cuda: str) -> Target:
    known = {target.cuda: target for target in TARGETS}
    require(cuda in known, f"there is no wheel for CUDA {cuda!r}: choose one of {', '.join(known)}")
    return known[cuda]


def github_matrix() -> dict[str, list[dict[str, str | bool]]]:
    jobs: list[dict[str, str | bool]] = [
        {**dataclasses.asdict(target), "tag": target.tag, "machine": machine, "runner": runner}
        for target in TARGETS
        for machine, runner in RUNNERS.items()
    ]
    return {"include": jobs}


def make_sdist() -> Path:
    """Makes the source distribution for all wheels of a release. Needs neither torch nor nvcc."""
    folder = CHECKOUT / "wheelhouse" / "sdist"
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--skip-dependency-check"]
    subprocess.run([*command, "--outdir", str(folder), str(CHECKOUT)], check=True, stdout=sys.stderr)
    (sdist,) = folder.glob("*.tar.gz")
    return sdist


def build_variables(target: Target, machine: str) -> dict[str, str]:
    """Returns the environment variables for the build of a target."""
    return {
        f"CIBW_MANYLINUX_{machine.upper()}_IMAGE": target.image(machine),
        "CONVT_EXT_LOCAL_VERSION": target.local_version,
        "CONVT_EXT_CUDA": target.cuda,
    }


def build(target: Target, more: list[str]) -> int:
    """Runs cibuildwheel on the source distribution, in the image of the target."""
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

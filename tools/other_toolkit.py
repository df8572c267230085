"""Builds a wheel from the source distribution with another CUDA release, tests it and deletes it.

    python tools/other_toolkit.py 13.5 [--architectures 9.0a]

Called by `make toolkit-test`. The compiler comes from PyPI (tools/cuda_toolkit.py). The wheel must pass check_wheel.py
for that CUDA release, and the CPU tests that use the binary.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import check_wheel
import cuda_toolkit
import matrix
import targets
from required import require

TESTS_OF_THE_BINARY = ("cpu/test_ops.py", "cpu/test_planner.py", "cpu/test_explain.py", "cpu/test_cli.py")


def build(home: Path, architectures: str, folder: Path) -> Path:
    """Builds a wheel in `folder` from the source distribution, with the toolkit in `home`."""
    sdist = targets.make_sdist()
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    sources = folder / sdist.name.removesuffix(".tar.gz")
    environment = {**os.environ, "CUDA_HOME": str(home), "TORCH_CUDA_ARCH_LIST": architectures}
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(sources)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    require(done.returncode == 0, f"the build with {home} failed:\n{done.stdout[-6000:]}")
    (wheel,) = folder.glob("*.whl")
    return wheel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cuda", metavar="CUDA")
    parser.add_argument("--architectures", default="9.0a")
    arguments = parser.parse_args()
    try:
        home = cuda_toolkit.pypi_release(targets.CHECKOUT, arguments.cuda)
    except cuda_toolkit.ToolkitError as error:
        raise SystemExit(f"convt_ext: {error}") from None
    with tempfile.TemporaryDirectory() as folder:
        wheel = build(home, arguments.architectures, Path(folder))
        check_wheel.check(wheel, arguments.architectures, arguments.cuda)
        result = matrix.run_tests(sys.executable, wheel, TESTS_OF_THE_BINARY)
    print(f"CUDA {arguments.cuda}, Python {result.python}, torch {result.torch}: {result.summary}")
    sys.exit(not result.passed)


if __name__ == "__main__":
    main()

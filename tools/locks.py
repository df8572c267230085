"""What a release installs, pinned with hashes: tools/locks/*.txt, written by uv from the lists of names.

    python tools/locks.py              write them anew; what still fits keeps its version
    python tools/locks.py --upgrade    with the newest versions

`pip install --no-deps --only-binary :all: --require-hashes -r tools/locks/NAME.txt` installs one. They are for Linux;
the hashes are of all files of a version, so that x86_64 and aarch64 use the same list.
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
    python: str  # the one that installs it
    names: tuple[str, ...]  # files beside this one

    def inputs(self) -> list[Path]:
        return [TOOLS / name for name in self.names]


LOCKS = {
    "release": Lock("3.12", ("release_requirements.txt",)),  # starts cibuildwheel
    "upload": Lock("3.12", ("upload_requirements.txt",)),  # beside an identity token
    "wheel": Lock("3.10", ("wheel_requirements.txt", "torch_requirements.txt")),  # inside the image, before torch
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
        if subprocess.run(command(name, sys.argv[1:]), cwd=TOOLS.parent).returncode != 0:
            raise SystemExit(f"convt_ext: uv could not write tools/locks/{name}.txt")
        print(f"tools/locks/{name}.txt")


if __name__ == "__main__":
    main()

"""Checks style and types of all sources; with --fix rewrites them. Called by `make lint` and `make format`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from required import require

CHECKOUT = Path(__file__).resolve().parent.parent


def cxx_files() -> list[str]:
    found = [path for folder in ("kernels", "tests") for path in (CHECKOUT / folder).rglob("*")]
    suffixes = (".h", ".cuh", ".cu", ".cpp")
    return sorted(str(path.relative_to(CHECKOUT)) for path in found if path.suffix in suffixes)


def main() -> None:
    fix = sys.argv[1:] == ["--fix"]
    python = [sys.executable, "-m"]
    clang_format = [str(Path(sys.executable).parent / "clang-format"), *(["-i"] if fix else ["--dry-run", "-Werror"])]
    commands = [
        [*python, "ruff", "check", *(["--fix"] if fix else []), "."],
        [*python, "ruff", "format", *([] if fix else ["--check"]), "."],
        [*clang_format, *cxx_files()],
    ]
    if not fix:
        commands.append([*python, "mypy"])
    failed = []
    for command in commands:
        name = " ".join(part for part in command[:4] if part not in python)
        print(f"$ {name} …" if command[0] == clang_format[0] else f"$ {name}", flush=True)
        if subprocess.run(command, cwd=CHECKOUT).returncode != 0:
            failed.append(Path(name.split()[0]).name)
    require(not failed, f"these checks failed: {', '.join(failed)}; `make format` corrects style")


if __name__ == "__main__":
    main()

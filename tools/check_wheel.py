"""Checks what is promised of the wheel in dist/: one abi3 file that loads beside any torch.

abi3audit --strict passes; the binary asks for no CUDA library, and of torch for libtorch and
libtorch_cpu alone; auditwheel finds no other dependency; the size stays below a limit.
"""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import wheels

MAX_WHEEL_MIB = 25
ALLOWED = (
    "libtorch.so",
    "libtorch_cpu.so",
    "libstdc++.so.6",
    "libgcc_s.so.1",
    "libm.so.6",
    "libc.so.6",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
)


def needed_libraries(wheel: Path) -> list[str]:
    """The NEEDED entries of the binary, as `readelf -d` shows them."""
    from elftools.elf.elffile import ELFFile

    with zipfile.ZipFile(wheel) as archive:
        binary = io.BytesIO(archive.read(wheels.BINARY))
    tags = ELFFile(binary).get_section_by_name(".dynamic").iter_tags("DT_NEEDED")
    return [tag.needed for tag in tags]


def run(module: str, *arguments: str) -> None:
    print(f"$ {module} {' '.join(arguments)}", flush=True)
    done = subprocess.run([sys.executable, "-m", module, *arguments])
    if done.returncode != 0:
        raise SystemExit(f"convt_ext: {module} found fault with the wheel")


def main() -> None:
    try:
        wheel = wheels.find_wheel()
    except FileNotFoundError as error:
        raise SystemExit(f"convt_ext: {error}") from None
    if "-cp310-abi3-" not in wheel.name:
        raise SystemExit(f"convt_ext: {wheel.name} is no cp310-abi3 wheel")
    mib = wheel.stat().st_size / 2**20
    print(f"{wheel.name}: {mib:.2f} MiB")
    if mib > MAX_WHEEL_MIB:
        raise SystemExit(f"convt_ext: the wheel has {mib:.1f} MiB, the limit is {MAX_WHEEL_MIB}")
    needed = needed_libraries(wheel)
    print("needs", ", ".join(needed))
    foreign = [name for name in needed if name not in ALLOWED]
    if foreign:
        raise SystemExit(f"convt_ext: the binary needs {', '.join(foreign)}, which must not be linked")
    run("abi3audit", "--strict", str(wheel))
    run("auditwheel", "show", str(wheel))


if __name__ == "__main__":
    main()

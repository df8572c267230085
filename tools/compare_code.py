"""Which kernels have other machine code in one wheel than in another, for changes that should touch none or few.

    python tools/compare_code.py BEFORE.whl AFTER.whl

Compares the instructions of every function for every architecture that both have. Ends with status 1 where any
differ. A kernel whose code is the same needs no new measurement; its tests still judge the code that launches it.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import check_wheel
import wheels
from elftools.elf.elffile import ELFFile

Code = dict[tuple[str, str], str]  # (architecture, function) -> digest of its instructions


def plain_name(section: str) -> str:
    """The function of a section of instructions, without what the path of its file makes of an anonymous namespace.

    >>> plain_name(".text._ZN5convt6reduce40_GLOBAL__N__1d1a4190_8_slabs_cu_ac33b22816add_slabs_kernelE")
    '_ZN5convt6reduce40_GLOBAL__N_add_slabs_kernelE'
    """
    return re.sub(r"(_GLOBAL__N_)_\w{8}_\d+_\w+?_cu_\w{8}\d+(?=[a-z])", r"\1", section.removeprefix(".text."))


def code_of(wheel: Path) -> Code:
    found: Code = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with zipfile.ZipFile(wheel) as archive:
            archive.extract(wheels.BINARY, folder)
        command = [check_wheel.find_cuobjdump(), "--extract-elf", "all", str(folder / wheels.BINARY)]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        for path in sorted(folder.glob("*.cubin")):
            architecture = path.suffixes[-2].removeprefix(".")
            with path.open("rb") as file:
                for section in ELFFile(file).iter_sections():
                    if section.name.startswith(".text."):
                        key = architecture, plain_name(section.name)
                        found[key] = hashlib.sha256(section.data()).hexdigest()
    return found


def compare(before: Code, after: Code) -> list[str]:
    """A line for each function that differs.

    >>> compare({("sm_80", "f"): "1", ("sm_90a", "f"): "2"}, {("sm_80", "f"): "3", ("sm_80", "g"): "4"})
    ['changed  sm_80 f', 'new      sm_80 g']
    """
    both = {architecture for architecture, _ in before} & {architecture for architecture, _ in after}
    lines = []
    for key in sorted(before.keys() | after.keys()):
        if key[0] not in both or before.get(key) == after.get(key):
            continue
        word = "new" if key not in before else "gone" if key not in after else "changed"
        lines.append(f"{word:8} {' '.join(key)}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    arguments = parser.parse_args()
    before, after = code_of(arguments.before), code_of(arguments.after)
    lines = compare(before, after)
    print("\n".join([*lines, f"{len(before)} functions before, {len(after)} after, {len(lines)} differ"]))
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()

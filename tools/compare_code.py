"""Prints the kernels whose machine code differs between two wheels.

    python tools/compare_code.py BEFORE.whl AFTER.whl

Run by hand. Compares the instructions of every function, for every architecture that both wheels contain. Matches a
renamed function by its code. A function that differs only in addresses of constant memory, which contains kernel
parameters, is reported as moved: its speed is the same. Exits with 1 if other functions differ. A kernel with unchanged
code needs no new measurement; its tests still cover the code that launches it.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter, defaultdict
from pathlib import Path

import check_wheel
import wheels
from elftools.elf.elffile import ELFFile

Key = tuple[str, str]  # architecture, function
Code = dict[Key, str]  # digests of functions
Places = dict[Key, tuple[Path, str]]  # file and section of functions


def plain_name(section: str) -> str:
    """Returns the function name of a section, without the file-dependent part of an anonymous namespace.

    >>> plain_name(".text._ZN5convt6reduce40_GLOBAL__N__1d1a4190_8_slabs_cu_ac33b22816add_slabs_kernelE")
    '_ZN5convt6reduce40_GLOBAL__N_add_slabs_kernelE'
    """
    return re.sub(r"(_GLOBAL__N_)_\w{8}_\d+_\w+?_cu_\w{8}\d+(?=[a-z])", r"\1", section.removeprefix(".text."))


def without_constants(listing: str) -> str:
    """Returns disassembled instructions without addresses in constant memory, with labels numbered from 0.

    >>> print(without_constants("/*0010*/ IMAD R1, R2, c[0x0][0x28], R3 ; /* 0x0f */\\n/*0020*/ BRA `(.L_x_17) ;"))
    IMAD R1, R2, c[0x0][], R3 ;
    BRA `(.L_x_0) ;
    """
    lines = []
    labels: dict[str, str] = {}
    for line in listing.splitlines():
        found = re.match(r"\s*/\*[0-9a-f]{4,}\*/\s*(.*?;)", line)
        if found:
            line = re.sub(r"(cx?\[[^\]]*\])\[[^\]]*\]", r"\1[]", found[1])
            lines.append(re.sub(r"\.L_x_\d+", lambda label: labels.setdefault(label[0], f".L_x_{len(labels)}"), line))
    return "\n".join(lines)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def cubins(wheel: Path, folder: Path) -> list[Path]:
    with zipfile.ZipFile(wheel) as archive:
        archive.extract(wheels.BINARY, folder)
    command = [check_wheel.find_program("cuobjdump"), "--extract-elf", "all", str(folder / wheels.BINARY)]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return sorted(folder.glob("*.cubin"))


def read(wheel: Path, folder: Path) -> tuple[Code, Places]:
    """Returns digests of the instructions of all functions, and where they are."""
    code, places = {}, {}
    for path in cubins(wheel, folder):
        architecture = path.suffixes[-2].removeprefix(".")
        with path.open("rb") as file:
            for section in ELFFile(file).iter_sections():
                if section.name.startswith(".text."):
                    key = architecture, plain_name(section.name)
                    code[key] = digest(section.data())
                    places[key] = path, section.name.removeprefix(".text.")
    return code, places


def relaxed(code: Code, places: Places) -> Code:
    """Returns digests of the functions without addresses in constant memory, but with registers and shared memory."""
    by_file: dict[Path, list[Key]] = defaultdict(list)
    for key in code:
        by_file[places[key][0]].append(key)
    digests = {}
    for path, keys in by_file.items():
        command = [check_wheel.find_program("nvdisasm"), "--print-code", str(path)]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        parts = re.split(r"^\s*\.section\s+\.text\.", text, flags=re.MULTILINE)
        listings = {re.split(r"[,\s]", part, maxsplit=1)[0]: part for part in parts}
        with path.open("rb") as file:
            sections = {section.name: section for section in ELFFile(file).iter_sections()}
            for key in keys:
                name = places[key][1]
                registers = sections[f".text.{name}"]["sh_info"] >> 24
                shared = sections.get(f".nv.shared.{name}")
                size = 0 if shared is None else shared["sh_size"]
                digests[key] = digest(f"{registers} {size}\n{without_constants(listings[name])}".encode())
    return digests


def unmatched(before: Code, after: Code) -> tuple[Code, Code]:
    """Returns the functions of each side without equal code on the other side, under the same or another name.

    >>> unmatched({("sm_80", "f"): "1", ("sm_80", "g"): "2"}, {("sm_80", "f"): "3", ("sm_80", "h"): "2"})
    ({('sm_80', 'f'): '1'}, {('sm_80', 'f'): '3'})
    """

    def left(mine: Code, theirs: Code) -> Code:
        supply = Counter((key[0], code) for key, code in theirs.items() if mine.get(key) != code)
        rest = {}
        for key, code in sorted(mine.items()):
            if theirs.get(key) == code:
                continue
            if supply[key[0], code] > 0:
                supply[key[0], code] -= 1
            else:
                rest[key] = code
        return rest

    return left(before, after), left(after, before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        before, in_before = read(arguments.before, Path(one))
        after, in_after = read(arguments.after, Path(other))
        both = {architecture for architecture, _ in before} & {architecture for architecture, _ in after}
        of_both = ({key: code for key, code in side.items() if key[0] in both} for side in (before, after))
        old, new = unmatched(*of_both)
        gone, changed = unmatched(relaxed(old, in_before), relaxed(new, in_after))
    moved = sorted(new.keys() - changed.keys())
    for key in sorted({*gone, *changed}):
        word = "changed" if key in gone and key in changed else "gone" if key in gone else "new"
        print(f"{word:8} {' '.join(key)}")
    for key in moved:
        print(f"moved    {' '.join(key)}")
    num_different = len({*gone, *changed})
    words = f"{num_different} differ, {len(moved)} differ only in constant addresses"
    print(f"{len(before)} functions before, {len(after)} after, {words}")
    sys.exit(num_different > 0)


if __name__ == "__main__":
    main()

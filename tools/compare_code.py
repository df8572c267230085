"""Prints the kernels whose machine code differs between two wheels.

    python tools/compare_code.py BEFORE.whl AFTER.whl

Run by hand. Compares the instructions of every function, for every architecture that both wheels contain. Matches a
renamed function by its code. A function that differs only in addresses of constant memory, which contains kernel
parameters, is reported as moved: its speed is the same. Exits with 1 if other functions differ. A kernel with unchanged
code needs no new measurement; its tests still cover the code that launches it.
"""

from __future__ import annotations

import argparse
import dataclasses
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


@dataclasses.dataclass(frozen=True)
class Function:
    """Digests of a function: of its instructions, and of these without addresses in constant memory.

    The second digest includes the sizes of registers and shared memory. It is empty if no listing was made.
    """

    exact: str
    relaxed: str = ""


Code = dict[Key, Function]


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


def code_of(files: list[Path]) -> tuple[Code, dict[Key, tuple[Path, str]]]:
    """Returns the functions, and the file and section of each function."""
    found: Code = {}
    places = {}
    for path in files:
        architecture = path.suffixes[-2].removeprefix(".")
        with path.open("rb") as file:
            for section in ELFFile(file).iter_sections():
                if section.name.startswith(".text."):
                    key = architecture, plain_name(section.name)
                    found[key] = Function(digest(section.data()))
                    places[key] = path, section.name.removeprefix(".text.")
    return found, places


def relaxed(places: dict[Key, tuple[Path, str]], keys: list[Key]) -> dict[Key, str]:
    """Returns the relaxed digests of these functions."""
    by_file: dict[Path, list[Key]] = defaultdict(list)
    for key in keys:
        by_file[places[key][0]].append(key)
    digests = {}
    for path, those in by_file.items():
        command = [check_wheel.find_program("nvdisasm"), "--print-code", str(path)]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        parts = re.split(r"^\s*\.section\s+\.text\.", text, flags=re.MULTILINE)
        listings = {re.split(r"[,\s]", part, maxsplit=1)[0]: part for part in parts}
        with path.open("rb") as file:
            sections = {section.name: section for section in ELFFile(file).iter_sections()}
            for key in those:
                name = places[key][1]
                shared = sections.get(f".nv.shared.{name}")
                registers = sections[f".text.{name}"]["sh_info"] >> 24
                size = 0 if shared is None else shared["sh_size"]
                digests[key] = digest(f"{registers} {size}\n{without_constants(listings[name])}".encode())
    return digests


def unmatched(before: Code, after: Code) -> tuple[list[Key], list[Key]]:
    """Returns the functions of each wheel without equal code in the other one, for architectures that both contain.

    >>> a = {("sm_80", "f"): Function("1"), ("sm_80", "g"): Function("2"), ("sm_75", "g"): Function("9")}
    >>> unmatched(a, {("sm_80", "f"): Function("3"), ("sm_80", "h"): Function("2")})
    ([('sm_80', 'f')], [('sm_80', 'f')])
    """
    both = {architecture for architecture, _ in before} & {architecture for architecture, _ in after}
    ones, others = (
        {key: code for key, code in mine.items() if key[0] in both and theirs.get(key) != code}
        for mine, theirs in ((before, after), (after, before))
    )
    have, want = (Counter((key[0], code.exact) for key, code in side.items()) for side in (others, ones))
    left: list[Key] = []
    right: list[Key] = []
    for side, supply, rest in ((ones, have, left), (others, want, right)):
        for key, code in sorted(side.items()):
            if supply[key[0], code.exact] > 0:
                supply[key[0], code.exact] -= 1
            else:
                rest.append(key)
    return left, right


def compare(before: Code, after: Code) -> tuple[list[str], list[str]]:
    """Returns a line for each function that differs, and one for each that differs only in constant addresses.

    Functions without equal code are matched by their names.

    >>> compare({("sm_80", "f"): Function("1")}, {("sm_80", "f"): Function("3"), ("sm_80", "g"): Function("4")})
    (['changed  sm_80 f', 'new      sm_80 g'], [])
    >>> compare({("sm_80", "f"): Function("1", "r")}, {("sm_80", "g"): Function("3", "r")})
    ([], ['moved    sm_80 g'])
    """
    left, right = unmatched(before, after)
    supply: dict[Key, list[Key]] = defaultdict(list)
    for key in left:
        supply[key[0], before[key].relaxed].append(key)
    moved = []
    for key in list(right):
        same = supply[key[0], after[key].relaxed] if after[key].relaxed else []
        if same:
            other = key if key in same else same[0]
            same.remove(other)
            left.remove(other)
            right.remove(key)
            moved.append(f"moved    {' '.join(key)}")
    lines = []
    for key in sorted({*left, *right}):
        word = "changed" if key in left and key in right else "gone" if key in left else "new"
        lines.append(f"{word:8} {' '.join(key)}")
    return lines, moved


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        (before, in_before), (after, in_after) = (
            code_of(cubins(wheel, Path(folder)))
            for wheel, folder in ((arguments.before, one), (arguments.after, other))
        )
        left, right = unmatched(before, after)
        for code, places, keys in ((before, in_before, left), (after, in_after, right)):
            for key, value in relaxed(places, keys).items():
                code[key] = Function(code[key].exact, value)
    lines, moved = compare(before, after)
    print("\n".join([*lines, *moved]))
    words = f"{len(lines)} differ, {len(moved)} differ only in constant addresses"
    print(f"{len(before)} functions before, {len(after)} after, {words}")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()

"""Checks that a wheel loads into every supported Python and torch, and contains code for its architectures.

    python tools/check_wheel.py                the wheel in dist/ that was built from this tree
    python tools/check_wheel.py FILE           this wheel
    … --architectures "7.5;8.0;12.0+PTX"       it must be for exactly these architectures
    … --release 12.9                           it must be a release's wheel for this CUDA version

Called by `make check-wheel`, .ci/run and cibuildwheel. The binary must link no CUDA library, only libtorch and
libtorch_cpu of torch, and no symbol of Python. cuobjdump must list the machine code and PTX that the binary reports,
for every kernel file. The binary must contain no path of the machine that built it. The size is limited. auditwheel and
twine must pass. Needs torch, because the package is imported.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import cuda_toolkit
import nvcc
import targets
import wheels
from required import require

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

MAX_WHEEL_MIB = 25
EXECUTABLE = 4  # SHF_EXECINSTR: a section of machine code
NEWEST_LIBC = (2, 28)
ALLOWED = (
    "libtorch.so", "libtorch_cpu.so", "libstdc++.so.6", "libgcc_s.so.1", "libm.so.6", "libc.so.6", "libpthread.so.0",
    "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1",
)  # fmt: skip


def elf_of(wheel: Path) -> ELFFile:
    """Returns the binary as pyelftools' object."""
    from elftools.elf.elffile import ELFFile

    with zipfile.ZipFile(wheel) as archive:
        return ELFFile(io.BytesIO(archive.read(wheels.BINARY)))


def needed_libraries(elf: ELFFile) -> list[str]:
    """Returns the NEEDED entries of the binary, as `readelf -d` prints them."""
    from elftools.elf.dynamic import DynamicSection

    section = elf.get_section_by_name(".dynamic")
    assert isinstance(section, DynamicSection)
    return [tag.needed for tag in section.iter_tags("DT_NEEDED")]  # type: ignore[attr-defined]


def python_symbols(elf: ELFFile) -> list[str]:
    """Returns the symbols of Python that the binary needs; a library for every Python needs none."""
    table = elf.get_section_by_name(".dynsym")
    names = [symbol.name for symbol in table.iter_symbols() if symbol["st_shndx"] == "SHN_UNDEF"]  # type: ignore[union-attr]
    return [name for name in names if re.match("_?Py", name)]


def absolute_paths(data: bytes) -> list[str]:
    """Returns the absolute file paths in data, except system paths, which the CUDA runtime reads.

    >>> absolute_paths(b"\\0/proc/self/maps\\0in /home/me/x.cpp:3\\0kernels/y.cpp\\0a / b\\0https://host/page")
    ['/home/me/x.cpp']
    """
    found = re.findall(rb"(?<![\w.)%*/-])/(?:[\w.+@,~-]{2,}/)+[\w.+-]+", data)
    return sorted({path.decode() for path in found if not path.startswith((b"/proc/", b"/sys/", b"/dev/"))})


def build_paths(elf: ELFFile) -> list[str]:
    """Returns paths of the machine that built the binary. Skips machine code of CPU and GPU, which contains no text."""
    texts = [
        section.data()
        for section in elf.iter_sections()
        if section["sh_type"] != "SHT_NOBITS" and not section["sh_flags"] & EXECUTABLE and section.name != ".nv_fatbin"
    ]
    return absolute_paths(b"\0".join(texts))


def code_in(listing: str) -> dict[str, int]:
    """Counts the code objects that cuobjdump lists for each architecture.

    >>> code_in("ELF file    1: a.1.sm_90a.cubin\\nELF file    2: a.2.sm_90a.cubin\\nPTX file    1: a.1.sm_120.ptx")
    {'9.0a': 2, '12.0+PTX': 1}
    """
    found = re.findall(r"\.sm_(\d+)(\d[af]?)\.(cubin|ptx)\b", listing)
    return dict(Counter(f"{major}.{minor}{'+PTX' if kind == 'ptx' else ''}" for major, minor, kind in found))


def expected_code(architectures: list[str], sources: list[Path]) -> dict[str, int]:
    """Counts the kernel files that have code for each architecture by the rules of tools/nvcc.py: machine code, and PTX
    if an entry ends in +PTX.

    >>> sources = [nvcc.KERNELS / name for name in ("simt/a.cu", "portable/b.cu", "flat_sm90a/c.cu")]
    >>> expected_code(["8.0", "8.6", "9.0a", "12.0+PTX"], sources)
    {'8.0': 2, '8.6': 1, '9.0a': 3, '12.0': 2, '12.0+PTX': 2}
    >>> expected_code(["8.0", "8.6+PTX"], sources)
    {'8.0': 3, '8.6': 1, '8.6+PTX': 2}
    """
    numbers = [entry.removesuffix("+PTX") for entry in architectures]
    kept = {source: nvcc.architectures_of(source, numbers) for source in sources}
    counts = {}
    for entry, number in zip(architectures, numbers, strict=True):
        counts[number] = sum(number in names for names in kept.values())
        if entry != number:
            counts[entry] = sum(number in names or not nvcc.is_for_hopper(source) for source, names in kept.items())
    return counts


def kernel_files() -> list[Path]:
    """Returns the kernel files of this checkout."""
    return list(nvcc.KERNELS.rglob("*.cu"))


def find_program(name: str) -> str:
    """Returns the path of a CUDA tool."""
    found = list(Path(sysconfig.get_paths()["purelib"]).glob(f"nvidia/cu1[3-9]/bin/{name}"))
    require(found, f"{name} is not installed: install nvidia-cuda-{name} with pip")
    return str(found[0])


def check_code(binary: Path, architectures: list[str]) -> None:
    """Checks that the binary contains the architectures that it reports, for every kernel file."""
    program = find_program("cuobjdump")
    listing = ""
    for option in ("--list-elf", "--list-ptx"):
        # cuobjdump fails if the binary contains no code of the requested kind.
        listing += subprocess.run([program, option, str(binary)], capture_output=True, text=True).stdout
    found = code_in(listing)
    print("code", ", ".join(f"{name} × {count}" for name, count in found.items()) or "none")
    expected = expected_code(architectures, kernel_files())
    contents = ";".join(found) or "no code"
    require(set(found) == set(expected), f"the binary reports {';'.join(architectures)} but contains {contents}")
    for name, count in expected.items():
        message = f"{found[name]} kernel files have code for {name}, expected {count}: see tools/nvcc.py"
        require(found[name] == count, message)


def build_info(site: Path) -> dict:
    """Returns convt_ext.build_info() of the unpacked wheel."""
    program = "import convt_ext, json; print(json.dumps(convt_ext.build_info()))"
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=site, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    require(done.returncode == 0, f"the wheel cannot be imported: {(done.stderr.splitlines() or [''])[-1]}")
    info = json.loads(done.stdout)
    require(info["cuda"] is not None, f"the binary does not load: {info.get('reason')}")
    return info


def run(module: str, *arguments: str) -> None:
    print(f"$ {module} {' '.join(arguments)}", flush=True)
    done = subprocess.run([sys.executable, "-m", module, *arguments])
    require(done.returncode == 0, f"{module} rejects the wheel")


def check_release(wheel: Path, cuda: str) -> None:
    """Checks the local version and the manylinux tag in the file's name against the CUDA version."""
    _, version, _, _, platform = wheel.stem.split("-")
    local = targets.find_target(cuda).local_version
    message = f"{wheel.name} is for CUDA {cuda} and must have the local version {local or '(none)'}"
    require(version.partition("+")[2] == local, message)
    libcs = [tuple(map(int, tag)) for tag in re.findall(r"manylinux_(\d+)_(\d+)_", platform)]
    message = f"{wheel.name} needs a newer Linux than manylinux_2_28: build it in that image"
    require(libcs and min(libcs) <= NEWEST_LIBC, message)


def check(wheel: Path, architectures: str | None, cuda: str | None) -> None:
    require("-py3-none-" in wheel.name, f"{wheel.name} is not a py3-none wheel")
    mib = wheel.stat().st_size / 2**20
    print(f"{wheel.name}: {mib:.2f} MiB")
    require(mib <= MAX_WHEEL_MIB, f"the wheel has {mib:.1f} MiB, the limit is {MAX_WHEEL_MIB} MiB")
    elf = elf_of(wheel)
    needed = needed_libraries(elf)
    print("needs", ", ".join(needed))
    foreign = ", ".join(name for name in needed if name not in ALLOWED)
    require(not foreign, f"the binary links {foreign}, expected only {', '.join(ALLOWED)}")
    of_python, paths = ", ".join(python_symbols(elf)), ", ".join(build_paths(elf))
    require(not of_python, f"the binary uses symbols of Python: {of_python}")
    require(not paths, f"the binary contains paths of the machine that built it: {paths}")
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
        info = build_info(site)
        found = ";".join(info["architectures"])
        print(f"reports version {info['version']}, CUDA {info['cuda']}, {found}")
        if cuda is not None:
            require(info["cuda"] == cuda, f"the wheel is for CUDA {info['cuda']}, expected {cuda}")
            require(info["optimized"], "the wheel was built with CONVT_EXT_FAST_COMPILE: unset it and build again")
        require(architectures in (None, found), f"the wheel is for {found}, expected {architectures}")
        check_code(site / wheels.BINARY, info["architectures"])
    run("auditwheel", "show", str(wheel))
    run("twine", "check", "--strict", str(wheel))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", nargs="?", type=Path)
    parser.add_argument("--architectures")
    parser.add_argument("--release", metavar="CUDA")
    arguments = parser.parse_args()
    wheel = arguments.wheel or wheels.find_wheel()
    architectures = arguments.architectures
    if arguments.release:
        check_release(wheel, arguments.release)
        architectures = cuda_toolkit.ARCHITECTURES[int(arguments.release.partition(".")[0])]
    check(wheel, architectures, arguments.release)


if __name__ == "__main__":
    main()

"""tools/nvcc.py: which architectures a file is compiled for, whatever command the compiler is."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
EXACT = CHECKOUT / "kernels/reduce/slabs.cu"
PORTABLE = CHECKOUT / "kernels/portable/instances/convolve.cu"
HOPPERS = CHECKOUT / "kernels/scatter_sm90a/instances/scatter.cu"


@pytest.fixture
def nvcc(monkeypatch):
    monkeypatch.syspath_prepend(str(CHECKOUT / "tools"))
    return importlib.import_module("nvcc")


def flags(*names: str) -> list[str]:
    """Returns the flags as setup.py spells them; "120+PTX" is both kinds of code."""
    words = []
    for name in names:
        number = name.removesuffix("+PTX")
        kinds = ["sm", "compute"] if name.endswith("+PTX") else ["sm"]
        words += [f"-gencode=arch=compute_{number},code={kind}_{number}" for kind in kinds]
    return words


def command(gencode: list[str], source: Path) -> list[str]:
    compile_words = ["nvcc", "-MD", "-MF", "x.o.d", "-I/usr/include", "-O3", *gencode]
    return [*compile_words, "-c", str(source), "-o", f"build/{source.stem}.o", "--time=times.csv"]


@pytest.mark.parametrize(
    ("source", "chosen", "left"),
    [
        (HOPPERS, ["75", "80", "86", "89", "90a", "100", "120+PTX"], ["90a"]),
        (HOPPERS, ["80", "90a+PTX"], ["90a+PTX"]),
        (HOPPERS, ["90a"], ["90a"]),
        (HOPPERS, ["80", "86", "120+PTX"], ["80"]),
        (HOPPERS, ["120+PTX", "80"], ["120+PTX"]),
        (HOPPERS, ["90", "80"], ["90"]),
        (HOPPERS, [], []),
        (EXACT, ["75", "80", "86", "89", "90a", "100", "120+PTX"], ["75", "80", "90a", "100", "120+PTX"]),
        (EXACT, ["70", "75", "80", "86", "90a"], ["70", "80", "90a"]),
        (EXACT, ["90a"], ["90a"]),
        (EXACT, ["90", "90a", "100", "103"], ["90", "90a", "100"]),
        (EXACT, [], []),
    ],
)
def test_architectures_of_files(nvcc, source, chosen, left):
    assert nvcc.command(command(flags(*chosen), source)) == command(flags(*left), source)


def test_ptx_of_exact_files_stays(nvcc):
    """It is what GPUs of later generations run."""
    gencode = flags("86", "89+PTX")
    assert nvcc.command(command(gencode, EXACT)) == command([gencode[0], gencode[2]], EXACT)


def test_portable_files_keep_every_architecture(nvcc):
    words = command(flags("75", "80", "86", "89", "90a", "120+PTX"), PORTABLE)
    assert nvcc.command(words) == words


def test_a_checkout_in_a_folder_of_that_name(nvcc, tmp_path, monkeypatch):
    """Only the folder below kernels/ counts."""
    kernels = tmp_path / "work_sm90a" / "kernels"
    monkeypatch.setattr(nvcc, "KERNELS", kernels)
    assert not nvcc.is_for_hopper(kernels / "simt/instances/x.cu")
    assert nvcc.is_for_hopper(kernels / "flat_sm90a/instances/x.cu")


def test_kernels_in_hoppers_folders_are_hoppers(nvcc):
    """The feature macro encloses their bodies, so that nothing is missing if they are not compiled."""
    found = 0
    for path in nvcc.KERNELS.rglob("*_sm90a/**/*.cu*"):
        text = path.read_text()
        kernels = re.findall(r"__global__[^{]*\{\n(.*)", text)
        assert len(kernels) == text.count("__global__"), path
        assert all(line.startswith("#ifdef CONVT_HAS_WGMMA") for line in kernels), path
        found += len(kernels)
    assert found


def test_kernels_of_other_folders_do_not_come_into_hoppers_files_alone(nvcc):
    """A template that is instantiated there and elsewhere would be registered twice, once without code."""
    for path in nvcc.KERNELS.rglob("*.cu*"):
        if not nvcc.is_for_hopper(path) and path.parent.name != "hopper":
            for header in ("pack/weights_sm90a/pack_weights.cuh", "hopper/instance.cuh"):
                assert f'#include "{header}"' not in path.read_text(), (path, header)


def test_the_real_compiler_is_started(tmp_path):
    """With a stand-in for `ccache nvcc`; its exit status is the build's."""
    program = tmp_path / "ccache"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 3\n')
    program.chmod(0o755)
    words = command(flags("80", "90a"), HOPPERS)
    done = subprocess.run([sys.executable, CHECKOUT / "tools/nvcc.py", program, *words], capture_output=True, text=True)
    assert done.returncode == 3
    assert done.stdout.splitlines() == command(flags("90a"), HOPPERS)


# Of the files of the test below.
COUNTS = {"8.0": 3, "8.6": 1, "9.0a": 5, "12.0": 3, "12.0+PTX": 3}


def listing(counts: dict[str, int]) -> str:
    """Returns the text in cuobjdump's format."""
    words = []
    for name, count in counts.items():
        kind = "ptx" if name.endswith("+PTX") else "cubin"
        number = name.removesuffix("+PTX").replace(".", "")
        words += [f"{kind.upper()} file {i}: x.{i}.sm_{number}.{kind}" for i in range(count)]
    return "\n".join(words)


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        (COUNTS, None),
        ({**COUNTS, "12.0+PTX": 0}, "the binary reports 8.0;8.6;9.0a;12.0[+]PTX but contains 8.0;8.6;9.0a;12.0"),
        ({**COUNTS, "8.0": 5}, "5 kernel files have code for 8.0, expected 3"),
        ({**COUNTS, "8.6": 3}, "3 kernel files have code for 8.6, expected 1"),
        ({**COUNTS, "9.0a": 3}, "3 kernel files have code for 9.0a, expected 5"),
        ({**COUNTS, "12.0+PTX": 2}, "2 kernel files have code for 12.0[+]PTX, expected 3"),
    ],
)
def test_the_check_of_a_wheel_counts_files(nvcc, monkeypatch, tmp_path, found, fault):
    check_wheel = importlib.import_module("check_wheel")
    names = ["simt/a.cu", "simt/b.cu", "portable/c.cu", "flat_sm90a/d.cu", "flat_sm90a/e.cu"]
    monkeypatch.setattr(check_wheel, "kernel_files", lambda: [nvcc.KERNELS / name for name in names])
    program = tmp_path / "cuobjdump"
    program.write_text(f"#!/bin/sh\n[ $1 = --list-elf ] || exit 255\ncat <<END\n{listing(found)}\nEND\n")
    program.chmod(0o755)
    monkeypatch.setattr(check_wheel, "find_program", lambda name: str(tmp_path / name))
    architectures = ["8.0", "8.6", "9.0a", "12.0+PTX"]
    if fault is None:
        check_wheel.check_code(tmp_path / "binary", architectures)
        return
    with pytest.raises(SystemExit, match=fault):
        check_wheel.check_code(tmp_path / "binary", architectures)

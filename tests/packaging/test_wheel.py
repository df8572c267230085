"""The wheel as a file, the package as it was installed from it, and the source distribution."""

from __future__ import annotations

import email
import importlib.metadata
import os
import re
import runpy
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import convt_ext

CHECKOUT = Path(__file__).resolve().parents[2]
BINARY = "convt_ext/libconvt_ext.so"


@pytest.fixture(scope="module")
def wheel(tools):
    try:
        return tools("wheels").find_wheel()
    except SystemExit as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.fixture(scope="module")
def metadata(wheel, names):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        return email.message_from_string(archive.read(name).decode())


def test_one_file_for_every_python(wheel, names):
    assert re.match(rf"convt_ext-{re.escape(convt_ext.__version__)}(\+cu\d+)?-py3-none-", wheel.name)
    assert [name for name in names if name.endswith(".so")] == [BINARY]


def test_the_binary_needs_no_cuda_library(tools, wheel):
    pytest.importorskip("elftools")
    check = tools("check_wheel")
    needed = check.needed_libraries(check.elf_of(wheel))
    assert "libtorch_cpu.so" in needed
    assert not [name for name in needed if "cuda" in name or "cudart" in name or name.startswith("libc10")]
    assert set(needed) <= set(check.ALLOWED)


def test_the_binary_uses_nothing_of_python(tools, wheel):
    """So that one file loads into every Python, free-threaded ones included."""
    elftools = pytest.importorskip("elftools.elf.elffile")
    check = tools("check_wheel")
    assert check.python_symbols(check.elf_of(wheel)) == []
    module = next(Path(sysconfig.get_path("stdlib"), "lib-dynload").glob("*.so"))
    with module.open("rb") as file:
        assert check.python_symbols(elftools.ELFFile(file))


def test_the_binary_does_not_say_where_it_was_built(tools, wheel):
    """Checks print the file that they stand in; a folder of the machine that built it helps no user."""
    pytest.importorskip("elftools")
    check = tools("check_wheel")
    assert check.build_paths(check.elf_of(wheel)) == []


def test_the_binary_exports_its_two_functions_alone(tools, wheel):
    pytest.importorskip("elftools")
    table = tools("check_wheel").elf_of(wheel).get_section_by_name(".dynsym")
    defined = [symbol for symbol in table.iter_symbols() if symbol["st_shndx"] != "SHN_UNDEF"]
    exported = {symbol.name for symbol in defined if symbol["st_info"]["bind"] == "STB_GLOBAL"}
    marks = {"_edata", "_end", "__bss_start", "_init", "_fini"}  # the linker's own
    # If the symbols of the CUDA runtime were visible, the next loaded library could bind them.
    assert exported - marks == {"convt_ext_build_info", "convt_ext_has_autocast"}


def test_only_the_package_is_shipped(names):
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"convt_ext"}
    assert not [name for name in names if "test" in name.lower() or name.endswith((".cu", ".cuh", ".cpp", ".h"))]
    assert "convt_ext/py.typed" in names
    assert [name for name in names if name.endswith("licenses/LICENSE")]
    modules = {path.relative_to(CHECKOUT).as_posix() for path in (CHECKOUT / "convt_ext").rglob("*.py")}
    assert modules == {name for name in names if name.endswith(".py")}


def test_metadata(metadata):
    assert metadata["Name"] == "convt_ext"
    assert metadata["Requires-Python"] == ">=3.10"
    assert metadata["License-Expression"] == "MIT"
    assert [text for text in metadata.get_all("Requires-Dist") if "extra ==" not in text] == ["torch>=2.10"]
    assert set(metadata.get_all("Provides-Extra")) == {"bench", "check", "test"}
    assert metadata.get_payload().strip() == (CHECKOUT / "README.md").read_text().strip()


def test_every_version_is_the_same():
    public, _, _ = importlib.metadata.version("convt_ext").partition("+")
    assert public == convt_ext.__version__ == convt_ext.build_info()["version"]
    assert f"## {convt_ext.__version__}" in (CHECKOUT / "CHANGELOG.md").read_text()


# ---- the source distribution holds everything that the digest covers and that a build needs


SOURCES = runpy.run_path(str(CHECKOUT / "convt_ext/_sources.py"))


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """A source distribution of the checkout, unpacked. Making one needs no nvcc."""
    pytest.importorskip("setuptools", minversion="77")
    folder = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-W", "ignore", "setup.py", "-q", "egg_info", "-e", folder, "sdist", "-d", folder]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def test_it_has_the_digest_of_the_checkout(unpacked):
    assert SOURCES["source_files"](unpacked) == SOURCES["source_files"](CHECKOUT)
    assert SOURCES["sources_digest"](unpacked) == SOURCES["sources_digest"](CHECKOUT)


def test_it_has_what_a_person_and_a_build_need(unpacked):
    for name in ("README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile", "PKG-INFO",
                 "tools/cuda_toolkit.py", "tools/nvcc.py", "tools/locks/wheel.txt"):  # fmt: skip
        assert (unpacked / name).is_file(), name


def test_it_has_nothing_generated_and_no_records_of_runs(unpacked):
    """The GPU report has megabytes, is about a checkout, and neither a build nor a test needs it."""
    generated = (".so", ".o", ".pyc", ".whl")
    assert not [path for path in unpacked.rglob("*") if path.name.endswith(generated)]
    assert not [path for path in unpacked.rglob(".*") if path.is_dir()]  # caches of tools
    assert not (unpacked / "tests/gpu_report.json").exists()
    assert [path.name for path in (unpacked / "benchmarks").iterdir()] == ["harness"]
    assert sum(path.stat().st_size for path in unpacked.rglob("*") if path.is_file()) < 8 * 2**20


def test_the_package_builds_from_it(unpacked, tmp_path):
    """Without its binary, which `.ci/run` builds from the source distribution."""
    command = [sys.executable, "-W", "ignore", "setup.py", "-q", "bdist_wheel", "-d", str(tmp_path)]
    environment = {**os.environ, "CONVT_EXT_CPU_ONLY": "1"}
    done = subprocess.run(command, cwd=unpacked, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        built = {name for name in archive.namelist() if name.startswith("convt_ext/")}
    files = [path for path in (CHECKOUT / "convt_ext").rglob("*") if path.suffix in (".py", ".typed", ".json")]
    assert built == {path.relative_to(CHECKOUT).as_posix() for path in files}

"""The source distribution holds everything that the digest covers and that a build needs."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
SOURCES = runpy.run_path(str(CHECKOUT / "convt_ext/_sources.py"))

pytest.importorskip("setuptools", minversion="77")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """A source distribution of the checkout, unpacked. Making one needs no nvcc."""
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

"""Messages of builds that cannot work: one line that names the cause and the remedy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]

pytest.importorskip("setuptools", minversion="77")  # older ones do not support the metadata of pyproject.toml

FAKE_NVCC = """#!/bin/sh
case "$1" in
  --version) echo "Cuda compilation tools, release {release}, V{release}.1" ;;
  --list-gpu-code) printf 'sm_75\\nsm_80\\nsm_90\\nsm_120\\n' ;;
esac
"""


@pytest.fixture
def toolkit(tmp_path):
    """A folder that looks like a CUDA toolkit, so that these tests need none."""
    return make_toolkit(tmp_path / "cuda", "13.0")


def make_toolkit(home: Path, release: str) -> Path:
    for name in ("bin", "include", "lib64"):
        (home / name).mkdir(parents=True)
    (home / "bin/nvcc").write_text(FAKE_NVCC.format(release=release))
    (home / "bin/nvcc").chmod(0o755)
    (home / "include/cuda_runtime.h").touch()
    (home / "lib64/libcudart_static.a").touch()
    return home


def build_message(tmp_path: Path, prepare: str = "", **environment: str) -> str:
    """The standard error of a build that stops before it compiles."""
    program = f"{prepare}\nimport sys, runpy\nsys.argv = ['setup.py', '-q', 'build_ext', '-b', {str(tmp_path)!r}]\n"
    program += f"runpy.run_path({str(CHECKOUT / 'setup.py')!r}, run_name='__main__')"
    kept = {key: value for key, value in os.environ.items() if key not in ("CUDA_HOME", "CUDA_PATH")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=CHECKOUT,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("convt_ext: ")]
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_cuda_home_without_a_toolkit(tmp_path):
    message = build_message(tmp_path, CUDA_HOME=str(tmp_path / "nowhere"))
    assert "nowhere contains no CUDA toolkit" in message
    assert "tools/cuda_toolkit.py" in message


def test_missing_nvcc(tmp_path):
    # Whatever this machine has, the build is told that no folder is a toolkit.
    prepare = (
        "from pathlib import Path\nPath.is_file = lambda self, _is=Path.is_file: _is(self) and self.name != 'nvcc'"
    )
    message = build_message(tmp_path, prepare)
    assert "nvcc was not found" in message
    assert "set CUDA_HOME to a CUDA toolkit, or run `python tools/cuda_toolkit.py`" in message


def test_too_old_toolkit(tmp_path):
    old = make_toolkit(tmp_path / "old", "11.8")
    message = build_message(tmp_path, CUDA_HOME=str(old))
    assert "is 11.8, but convt_ext needs 12.8 or newer" in message


def test_too_old_torch(tmp_path, toolkit):
    message = build_message(tmp_path, "import torch\ntorch.__version__ = '2.9.1'", CUDA_HOME=str(toolkit))
    assert "torch 2.9.1" in message
    assert 'pip install "torch>=2.10"' in message


def test_missing_torch(tmp_path, toolkit):
    message = build_message(tmp_path, "import sys\nsys.modules['torch'] = None", CUDA_HOME=str(toolkit))
    assert "building needs torch, which is not installed" in message
    assert "(pip: --no-build-isolation, build: --no-isolation)" in message


@pytest.mark.parametrize(
    ("architectures", "words"),
    [
        ("6.1", "the kernels need compute capability 7.0 or newer, but TORCH_CUDA_ARCH_LIST names 6.1"),
        ("7.0", "this nvcc cannot compile for 7.0 (it knows 7.5, 8.0, 9.0, 12.0)"),
        ("8.0 9.0+PTX", "exist in code for 9.0a alone, not in PTX of 9.0"),
        ("8.0;Hopper", "names 'Hopper', which is no compute capability"),
        ("8.0 15.0+PTX", "this nvcc cannot compile for 15.0+PTX (it knows 7.5, 8.0, 9.0, 12.0)"),
    ],
)
def test_unsupported_architecture(tmp_path, toolkit, architectures, words):
    message = build_message(tmp_path, CUDA_HOME=str(toolkit), TORCH_CUDA_ARCH_LIST=architectures)
    assert words in message
    assert 'set TORCH_CUDA_ARCH_LIST to compute capabilities such as "8.0;9.0a"' in message


def test_a_local_version_that_is_none(tmp_path, toolkit):
    message = build_message(tmp_path, CUDA_HOME=str(toolkit), CONVT_EXT_LOCAL_VERSION="CUDA 12.9")
    assert "CONVT_EXT_LOCAL_VERSION='CUDA 12.9' is no local version" in message
    assert 'such as "cu129"' in message

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


def make_toolkit(home: Path, release: str) -> Path:
    """A folder that looks like a CUDA toolkit, so that these tests need none."""
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
    command = [sys.executable, "-W", "ignore", "-c", program]
    environment = {**kept, **environment}
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("convt_ext: ")]
    assert len(lines) == 1, done.stderr
    return lines[0]


# Whatever this machine has, the build is told that no folder is a toolkit.
NO_NVCC = "from pathlib import Path\nPath.is_file = lambda self, _is=Path.is_file: _is(self) and self.name != 'nvcc'"


@pytest.mark.parametrize(
    ("release", "prepare", "environment", "words"),
    [
        (None, "", {}, ("cuda contains no CUDA toolkit", "tools/cuda_toolkit.py")),
        ("11.8", "", {}, ("is 11.8, but convt_ext needs 12.8 or newer",)),
        ("13.0", "import torch\ntorch.__version__ = '2.9.1'", {}, ("torch 2.9.1", 'pip install "torch>=2.10"')),
        ("13.0", "import sys\nsys.modules['torch'] = None", {},
         ("building needs torch, which is not installed", "(pip: --no-build-isolation, build: --no-isolation)")),
        ("13.0", "", {"CONVT_EXT_LOCAL_VERSION": "CUDA 12.9"},
         ("CONVT_EXT_LOCAL_VERSION='CUDA 12.9' is no local version", 'such as "cu129"')),
        *(("13.0", "", {"TORCH_CUDA_ARCH_LIST": architectures},
           (words, 'set TORCH_CUDA_ARCH_LIST to compute capabilities such as "8.0;9.0a"'))
          for architectures, words in (
              ("6.1", "the kernels need compute capability 7.0 or newer, but TORCH_CUDA_ARCH_LIST names 6.1"),
              ("7.0", "this nvcc cannot compile for 7.0 (it knows 7.5, 8.0, 9.0, 12.0)"),
              ("8.0 9.0+PTX", "exist in code for 9.0a alone, not in PTX of 9.0"),
              ("8.0;Hopper", "names 'Hopper', which is no compute capability"),
              ("8.0 15.0+PTX", "this nvcc cannot compile for 15.0+PTX (it knows 7.5, 8.0, 9.0, 12.0)"),
          )),
    ],
)  # fmt: skip
def test_messages(tmp_path, release, prepare, environment, words):
    home = tmp_path / "cuda"
    if release is not None:
        make_toolkit(home, release)
    message = build_message(tmp_path, prepare, CUDA_HOME=str(home), **environment)
    assert [one for one in words if one not in message] == [], message


def test_missing_nvcc(tmp_path):
    message = build_message(tmp_path, NO_NVCC)
    assert "nvcc was not found" in message
    assert "set CUDA_HOME to a CUDA toolkit, or run `python tools/cuda_toolkit.py`" in message

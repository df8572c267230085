"""Messages of builds that cannot work: one line that names the cause and the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from cpu.python_process import run_each

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


BUILD = """
import os, runpy, sys
os.chdir(CHECKOUT)
for name in ("CUDA_HOME", "CUDA_PATH"):
    os.environ.pop(name, None)
os.environ.update(ENVIRONMENT)
sys.argv = ["setup.py", "-q", "build_ext", "-b", FOLDER]
PREPARE
try:
    runpy.run_path("setup.py", run_name="__main__")
except SystemExit as error:
    print(error)
else:
    raise AssertionError("it compiles")
"""
# Whatever this machine has, the build is told that no folder is a toolkit.
NO_NVCC = "from pathlib import Path\nPath.is_file = lambda self, _is=Path.is_file: _is(self) and self.name != 'nvcc'"
# The release of the toolkit, what happens before, variables, and words of the message.
MESSAGES = [
    (None, NO_NVCC, {}, ("nvcc was not found",
                         "set CUDA_HOME to a CUDA toolkit, or run `python tools/cuda_toolkit.py`")),
    (None, "", {"CUDA_HOME": "/nowhere"}, ("/nowhere contains no CUDA toolkit", "tools/cuda_toolkit.py")),
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
]  # fmt: skip


def test_messages(tmp_path):
    programs = []
    for release, prepare, environment, _ in MESSAGES:
        if release is not None:
            home = tmp_path / release
            environment = {"CUDA_HOME": str(home if home.exists() else make_toolkit(home, release)), **environment}
        values = {"CHECKOUT": str(CHECKOUT), "ENVIRONMENT": environment, "FOLDER": str(tmp_path)}
        program = BUILD.replace("PREPARE", prepare)
        for name, value in values.items():
            program = program.replace(name, repr(value), 1)
        programs.append(program)
    found = run_each("import torch", programs)
    for (*_, expected), message in zip(MESSAGES, found, strict=True):
        assert message.startswith("convt_ext: ")
        assert message.count("\n") == 1
        assert [words for words in expected if words not in message] == [], message

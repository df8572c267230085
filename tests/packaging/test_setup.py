"""setup.py: effects of its switches, and messages of builds that cannot work, which name cause and remedy."""

from __future__ import annotations

import email
import importlib
import inspect
import os
import runpy
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from cpu.python_process import run_each

setuptools = pytest.importorskip("setuptools", minversion="77")  # older ones do not support pyproject.toml's metadata

CHECKOUT = Path(__file__).resolve().parents[2]
SWITCHES = (
    "TORCH_CUDA_ARCH_LIST", "CONVT_EXT_LOCAL_VERSION", "CONVT_EXT_CPU_ONLY", "CONVT_EXT_FAST_COMPILE", "MAX_JOBS",
    "PYTORCH_NVCC",
)  # fmt: skip
NVCC_13 = {"7.5", "8.0", "8.6", "8.9", "9.0", "9.0a", "10.0", "12.0"}


@pytest.fixture
def setup_py(monkeypatch):
    """setup.py's functions with given switches; what it would build is under "arguments"."""

    def load(**switches):
        for name in SWITCHES:
            monkeypatch.delenv(name, raising=False)
        for name, value in switches.items():
            monkeypatch.setenv(name, value)
        arguments = {}
        monkeypatch.setattr(setuptools, "setup", lambda **given: arguments.update(given))
        return {**runpy.run_path(str(CHECKOUT / "setup.py")), "arguments": arguments}

    return load


def test_version_and_sources(setup_py):
    arguments = setup_py()["arguments"]
    version = runpy.run_path(str(CHECKOUT / "convt_ext/_version.py"))["__version__"]
    assert arguments["version"] == version
    assert setup_py(CONVT_EXT_LOCAL_VERSION="cu129")["arguments"]["version"] == f"{version}+cu129"
    (extension,) = arguments["ext_modules"]
    assert extension.name == "convt_ext._C"
    kernels = {path.relative_to(CHECKOUT).as_posix() for path in (CHECKOUT / "kernels").rglob("*.c[pu]*")}
    assert set(extension.sources) == {name for name in kernels if name.endswith((".cpp", ".cu"))}


def test_names_of_wheel_and_library(setup_py):
    """Neither depends on the Python that builds: the library uses nothing of it."""
    arguments = setup_py()["arguments"]
    distribution = setuptools.Distribution({"ext_modules": arguments["ext_modules"]})
    assert arguments["cmdclass"]["bdist_wheel"](distribution).get_tag()[:2] == ("py3", "none")
    build = arguments["cmdclass"]["build_ext"](distribution)
    build.ensure_finalized()
    assert build.get_ext_fullpath("convt_ext._C") == f"{build.build_lib}/convt_ext/libconvt_ext.so"
    assert build.get_ext_filename("convt_ext._C") == "convt_ext/libconvt_ext.so"


@pytest.mark.parametrize("cuda_major", [12, 13, 14])
def test_architectures_of_a_release(setup_py, monkeypatch, cuda_major):
    toolkit = runpy.run_path(str(CHECKOUT / "tools/cuda_toolkit.py"))
    of_a_release = toolkit["release_architectures"]
    monkeypatch.setitem(of_a_release.__globals__, "release", lambda _: (cuda_major, 0))
    oldest = ["7.0"] if cuda_major == 12 else []
    chosen = setup_py()["chosen_architectures"](of_a_release(Path()), {*oldest, *NVCC_13})
    assert chosen == [*oldest, "7.5", "8.0", "8.6", "8.9", "9.0a", "10.0", "12.0+PTX"]


def test_chosen_architectures(setup_py):
    """Code for 9.0 has no wgmma, so 9.0a replaces it."""
    functions = setup_py(TORCH_CUDA_ARCH_LIST="8.0 9.0;9.0a, 12.0+PTX;")
    chosen = functions["chosen_architectures"]("7.5", NVCC_13)
    assert chosen == ["8.0", "9.0a", "12.0+PTX"]
    assert functions["gencode_flags"](chosen) == [
        f"-gencode=arch=compute_{name},code={code}"
        for name, code in (("80", "sm_80"), ("90a", "sm_90a"), ("120", "sm_120"), ("120", "compute_120"))
    ]


@pytest.mark.parametrize(
    ("switches", "compiler"),
    [({}, ["sccache", "/a toolkit/bin/nvcc"]), ({"PYTORCH_NVCC": "ccache /cuda/nvcc"}, ["ccache", "/cuda/nvcc"])],
)
def test_the_compiler(setup_py, switches, compiler):
    """Ours stands in front of what torch would take, or of what the user names."""
    command = setup_py(**switches)["compiler_command"](Path("/a toolkit"), lambda nvcc: ["sccache", nvcc])
    assert shlex.split(command) == [sys.executable, str(CHECKOUT / "tools/nvcc.py"), *compiler]


@pytest.fixture
def words_of_a_build(setup_py, monkeypatch, tmp_path):
    """Returns the flags for C++ and for CUDA files, with a toolkit in `tmp_path`."""

    def words(**switches) -> dict[str, list[str]]:
        cpp_extension = pytest.importorskip("torch.utils.cpp_extension")
        functions = setup_py(**switches)
        for name in ("PYTORCH_NVCC", "MAX_JOBS"):
            monkeypatch.setenv(name, "1")  # so that what `configure` leaves there is undone
        monkeypatch.setattr(cpp_extension, "CUDA_HOME", None)
        monkeypatch.setattr("torch.version.cuda", None)  # as in a CPU build
        configure = functions["configure"]
        monkeypatch.setitem(configure.__globals__, "find_cuda_home", lambda: (tmp_path, "9.0a", {"9.0", "9.0a"}))
        (extension,) = functions["arguments"]["ext_modules"]
        configure(extension)
        return extension.extra_compile_args

    return words


def test_flags_of_a_build(words_of_a_build, tmp_path):
    """Checks print __FILE__, here and in torch's headers, and test_wheel.py checks the binary for folders.

    The sources need C++20, and torch before 2.13 adds -std=c++17 where no standard is named.
    """
    words = words_of_a_build()
    torch_headers = Path(importlib.import_module("torch").__file__).parent / "include"
    for folder in (CHECKOUT, torch_headers, tmp_path / "include"):
        flag = f"-ffile-prefix-map={folder}/="
        assert flag in words["cxx"]
        assert words["nvcc"][words["nvcc"].index(flag) - 1] == "-Xcompiler"
    assert all("-std=c++20" in of_compiler for of_compiler in words.values())


@pytest.mark.parametrize("switches", [{}, {"CONVT_EXT_FAST_COMPILE": "1"}], ids=["optimized", "fast"])
def test_a_fast_compilation_is_reported(words_of_a_build, switches):
    words = words_of_a_build(**switches)
    assert ("--Ofast-compile=max" in words["nvcc"]) == bool(switches)
    assert f'-DCONVT_OPTIMIZED="{"false" if switches else "true"}"' in words["cxx"]


def test_a_changed_header_compiles_cuda_files_again(words_of_a_build, tmp_path):
    """Ninja tracks the headers of CUDA files only if torch has a version of CUDA."""
    words_of_a_build()
    write = importlib.import_module("torch.utils.cpp_extension")._write_ninja_file
    arguments = {name: [] for name in inspect.signature(write).parameters}
    known = {"path": str(tmp_path / "build.ninja"), "sources": ["a.cu"], "objects": ["a.o"], "ldflags": None,
             "library_target": None, "with_cuda": True}  # fmt: skip
    write(**{**arguments, **known})
    rule = (tmp_path / "build.ninja").read_text().split("rule cuda_compile")[1].split("\n\n")[0]
    assert "depfile = $out.d" in rule


@pytest.mark.parametrize(
    ("cores", "gib", "switches", "jobs"),
    [(64, 500.0, {}, 64), (64, 24.0, {}, 8), (2, 24.0, {}, 2), (8, 1.0, {}, 1), (2, 24.0, {"MAX_JOBS": "7"}, 7)],
)
def test_compilers_at_once_fit_into_memory(setup_py, monkeypatch, cores, gib, switches, jobs):
    limit_jobs = setup_py(**switches)["limit_jobs"]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setitem(limit_jobs.__globals__, "available_memory_gib", lambda: gib)
    limit_jobs()
    assert os.environ["MAX_JOBS"] == str(jobs)


def run_python(arguments: list[str], folder: Path, **environment: str) -> str:
    command, environment = [sys.executable, *arguments], {**os.environ, **environment}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_a_binary(tmp_path):
    """CONVT_EXT_CPU_ONLY needs neither torch nor a compiler; what comes out imports, and PyTorch does the work."""
    program = "import sys, runpy; sys.modules['torch'] = None; sys.argv = ['setup.py', '-q', 'egg_info', '-e', {0!r}, "
    program += "'build', '-b', {0!r}, 'bdist_wheel', '-d', {0!r}]; runpy.run_path('setup.py', run_name='__main__')"
    without = {"CONVT_EXT_CPU_ONLY": "1", "CUDA_HOME": str(tmp_path / "nowhere"), "CXX": "false"}
    run_python(["-W", "ignore", "-c", program.format(str(tmp_path))], CHECKOUT, **without)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("+cpu-py3-none-any.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (metadata,) = site.glob("*.dist-info/METADATA")
    assert "torch>=2.10" in email.message_from_string(metadata.read_text()).get_all("Requires-Dist")
    use = "import convt_ext as ct, torch; x, w = torch.ones(1, 1, 2, 2), torch.ones(1, 1, 2, 2)\n"
    use += "print(tuple(ct.conv_transpose2d(x, w, stride=2).shape), ct.build_info()['reason'])"
    printed = run_python(["-c", use], site, PYTHONPATH=str(site))
    assert "(1, 1, 4, 4)" in printed
    assert "libconvt_ext.so is not installed" in printed


# ---- messages


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
# The build finds no toolkit, even if this machine has one.
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

"""Builds the wheel: the Python package and one binary, convt_ext/libconvt_ext.so.

The binary is a shared library that uses nothing of Python, on PyTorch's stable ABI (2.10 and newer), with
the CUDA runtime inside, so one file per CUDA version runs under every Python, free-threaded ones included,
and every such torch, CPU builds included. It may be built against any torch from 2.10 on, a CPU build too.

    python -m build --wheel --no-isolation

Nothing is downloaded. What decides the result (environment):

    CUDA_HOME                 the toolkit; else /usr/local/cuda, nvcc on PATH, .cuda/ (`make build` fills
                              it), or nvidia-cuda-nvcc and its companions in site-packages
    TORCH_CUDA_ARCH_LIST      the GPUs, such as "9.0a" or "8.0;9.0a"; "+PTX" on an entry adds the code
                              that newer GPUs can translate. Unset: all that a release has, which
                              tools/cuda_toolkit.py lists
    CONVT_EXT_LOCAL_VERSION   what stands behind the version's "+", such as "cu129" for a wheel that is not
                              of the default CUDA version; unset: nothing
    CONVT_EXT_CPU_ONLY        1: no binary, and neither torch nor a compiler is needed. The wheel is for any
                              platform, its version ends in "+cpu", and PyTorch computes everything
    CONVT_EXT_FAST_COMPILE    1: nvcc optimizes next to nothing, and takes a tenth of the time. For work on what lies
                              around the kernels, whose results are right and many times slower. The binary says so
                              (convt_ext.build_info()), and no GPU report, measurement or release takes it
    CONVT_EXT_NVCC_EXTRA      more nvcc flags, for developers: "-lineinfo", "-Xptxas -v"
    PYTORCH_NVCC              the command that compiles CUDA files, such as "ccache nvcc"; unset: the toolkit's nvcc,
                              behind ccache or sccache where torch finds one
    MAX_JOBS                  compilers at once; unset: as many as cores and memory allow
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel as PlainBdistWheel
from setuptools.command.build_ext import build_ext as PlainBuildExt

ROOT = Path(__file__).resolve().parent
VERSION = runpy.run_path(str(ROOT / "convt_ext/_version.py"))["__version__"]

LIBRARY = "libconvt_ext.so"

OLDEST_TORCH = (2, 10)
OLDEST_ARCHITECTURE = (7, 0)

TORCH_TARGET_VERSION = "0x020a000000000000"  # torch 2.10: one byte each for major, minor, patch; then the tag

JOB_MEMORY_GIB = 3  # one nvcc at work on a file of templates

# Needs of a torch CUDA extension that this binary does without: c10 and the CUDA libraries of torch
# (the ABI lives in libtorch_cpu), and the shared CUDA runtime.
LIBRARIES = ["torch", "torch_cpu", "cudart_static", "rt", "dl", "pthread"]


def fail(message: str) -> NoReturn:
    raise SystemExit(f"convt_ext: {message}")


def check_torch() -> None:
    """Ends the build with one line when torch is missing or too old."""
    remedy = 'pip install "torch>=2.10" and build beside it (pip: --no-build-isolation, build: --no-isolation)'
    try:
        import torch
    except ImportError:
        fail(f"building needs torch, which is not installed in {sys.executable}: {remedy}")
    match = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if match is None or (int(match[1]), int(match[2])) < OLDEST_TORCH:
        fail(f"torch {torch.__version__} has no stable ABI 2.10; convt_ext needs torch 2.10 or newer: {remedy}")


def is_set(variable: str) -> bool:
    return os.environ.get(variable, "") not in ("", "0")


def is_cpu_only() -> bool:
    return is_set("CONVT_EXT_CPU_ONLY")


def full_version() -> str:
    """The version with its local part (PEP 440), which tells wheels of one version apart."""
    local = os.environ.get("CONVT_EXT_LOCAL_VERSION") or ("cpu" if is_cpu_only() else "")
    if not local:
        return VERSION
    if not re.fullmatch(r"[a-z0-9]+(\.[a-z0-9]+)*", local):
        fail(
            f'CONVT_EXT_LOCAL_VERSION={local!r} is no local version: set lower-case letters and digits such as "cu129"'
        )
    return f"{VERSION}+{local}"


def find_cuda_home() -> tuple[Path, str, set[str]]:
    """The CUDA toolkit, the architectures of a release with it, and all that it compiles for."""
    toolkit = runpy.run_path(str(ROOT / "tools/cuda_toolkit.py"))
    try:
        home = toolkit["find"](ROOT)
        of_a_release = toolkit["release_architectures"](home)
    except toolkit["ToolkitError"] as error:
        fail(str(error))
    return home, of_a_release, toolkit["architectures"](home)


def chosen_architectures(of_a_release: str, available: set[str]) -> list[str]:
    """TORCH_CUDA_ARCH_LIST, or a release's list, checked against what the sources and nvcc know."""
    text = os.environ.get("TORCH_CUDA_ARCH_LIST") or of_a_release
    chosen = re.split(r"[;,\s]+", text.strip(" ;,"))
    for entry in chosen:
        match = re.fullmatch(r"(\d+)\.(\d)([af]?)(\+PTX)?", entry)
        example = 'set TORCH_CUDA_ARCH_LIST to compute capabilities such as "8.0;9.0a"'
        if match is None:
            fail(f"TORCH_CUDA_ARCH_LIST names {entry!r}, which is no compute capability: {example}")
        if (int(match[1]), int(match[2])) < OLDEST_ARCHITECTURE:
            fail(f"the kernels need compute capability 7.0 or newer, but TORCH_CUDA_ARCH_LIST names {entry}: {example}")
        number = entry.removesuffix("+PTX")
        if number.rstrip("af") not in available:
            known = ", ".join(sorted((name for name in available if name[-1].isdigit()), key=float))
            fail(f"this nvcc cannot compile for {entry} (it knows {known}): {example}, or use another CUDA toolkit")
        if entry == "9.0+PTX":
            fail(f"Hopper's tensor-core kernels exist in code for 9.0a alone, not in PTX of 9.0: {example}")
    # So 9.0 means 9.0a.
    return list(dict.fromkeys("9.0a" if entry == "9.0" else entry for entry in chosen))


def gencode_flags(architectures: list[str]) -> list[str]:
    """nvcc's spelling. Giving it here keeps torch, whose own list may be older than nvcc, out of it."""
    flags = []
    for entry in architectures:
        number = entry.removesuffix("+PTX").replace(".", "")
        flags.append(f"-gencode=arch=compute_{number},code=sm_{number}")
        if entry.endswith("+PTX"):
            flags.append(f"-gencode=arch=compute_{number},code=compute_{number}")
    return flags


def available_memory_gib() -> float:
    """What this machine, or the container it is, can still give to compilers."""
    limits = [float(2**20)]
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            limits.append(int(line.split()[1]) / 2**20)
    for line in _lines("/sys/fs/cgroup/memory.max"):
        if line.strip().isdigit():
            limits.append(int(line) / 2**30)
    return min(limits)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def limit_jobs() -> None:
    """Sets MAX_JOBS, which torch's build reads, unless the user did."""
    cores = len(os.sched_getaffinity(0))
    jobs = max(1, min(cores, int(available_memory_gib() // JOB_MEMORY_GIB)))
    os.environ.setdefault("MAX_JOBS", str(jobs))


def compiler_command(home: Path, wrap: Callable[[str], list[str]]) -> str:
    """PYTORCH_NVCC for torch's build: tools/nvcc.py in front of the user's own, or of the toolkit's nvcc."""
    compiler = os.environ.get("PYTORCH_NVCC") or shlex.join(wrap(str(home / "bin/nvcc")))
    return f"{shlex.join([sys.executable, str(ROOT / 'tools/nvcc.py')])} {compiler}"


def path_flags(*folders: str | Path) -> list[str]:
    """What keeps the build machine's folders out of the binary: __FILE__, which checks print, begins below them.

    A folder inside of another stands behind it: of several that fit, the compiler takes the last.
    """
    return [f"-ffile-prefix-map={folder}/=" for folder in sorted(map(str, folders), key=len)]


def through_nvcc(flags: list[str]) -> list[str]:
    """Flags of the host compiler as nvcc takes them: it parts a word at its commas, then a shell reads the parts."""
    return [word for flag in flags for word in ("-Xcompiler", shlex.quote(flag).replace(",", r"\,"))]


def configure(extension: Extension) -> None:
    """Fills in everything that needs torch and the toolkit; only a build comes here, an sdist does not."""
    import torch
    from torch.utils import cpp_extension

    home, of_a_release, available = find_cuda_home()
    architectures = chosen_architectures(of_a_release, available)
    limit_jobs()
    # A CPU build of torch leaves CUDA_HOME unset, and its helpers then refuse to compile CUDA files. Without a version
    # of CUDA, its ninja files ignore the headers of CUDA files.
    cpp_extension.CUDA_HOME = str(home)
    torch.version.cuda = torch.version.cuda or "unknown"
    # torch 2.13 puts ccache in front of nvcc where it is installed, older ones do not.
    wrap = getattr(cpp_extension, "_wrap_compiler", lambda nvcc: [nvcc])
    os.environ["PYTORCH_NVCC"] = compiler_command(home, wrap)
    others = cpp_extension.include_paths(device_type="cuda")  # headers of torch and CUDA
    extension.include_dirs = [str(ROOT / "kernels"), *others]
    extension.library_dirs = cpp_extension.library_paths(device_type="cuda")
    # Where the static runtime lies in toolkits without lib64: x86_64-linux, or sbsa-linux on aarch64.
    extension.library_dirs += sorted(map(str, home.glob("targets/*-linux/lib")))
    digest = runpy.run_path(str(ROOT / "convt_ext/_sources.py"))["sources_digest"](ROOT)
    # torch before 2.13 would choose C++17.
    common = [f"-DTORCH_TARGET_VERSION={TORCH_TARGET_VERSION}", "-std=c++20", "-O3"]
    # Only C++ files get what changes with every edit, so that an edit does not recompile the kernels.
    optimized = not is_set("CONVT_EXT_FAST_COMPILE")
    facts = {
        "CONVT_VERSION": VERSION,
        "CONVT_ARCHITECTURES": ";".join(architectures),
        "CONVT_SOURCES_DIGEST": digest,
        "CONVT_OPTIMIZED": "true" if optimized else "false",
    }
    hidden = "-fvisibility=hidden"
    paths = path_flags(ROOT, *others)
    extension.extra_compile_args = {
        "cxx": [
            *(*common, *paths, hidden, "-fvisibility-inlines-hidden", "-Wall"),
            *(f'-D{k}="{v}"' for k, v in facts.items()),
        ],
        "nvcc": [
            *common,
            *("--expt-relaxed-constexpr", "-Xcompiler", f"{hidden},-Wall"),
            *through_nvcc(paths),
            "--compress-mode=size",  # a sixth less of a wheel than nvcc's own choice
            *gencode_flags(architectures),
            *([] if optimized else ["--Ofast-compile=max"]),
            *shlex.split(os.environ.get("CONVT_EXT_NVCC_EXTRA", "")),
        ],
    }
    # The CUDA runtime's own symbols stay inside: torch brings another copy into the process.
    extension.extra_link_args = ["-Wl,--exclude-libs,ALL", "-Wl,--strip-all"]


def build_ext_command() -> type[PlainBuildExt]:
    """torch's build_ext, or where torch is missing one that says so when a build is asked for."""
    try:
        from torch.utils import cpp_extension
    except ImportError:

        class BuildWithoutTorch(PlainBuildExt):
            def run(self) -> None:
                check_torch()

        return BuildWithoutTorch

    # pip puts ninja beside the interpreter, which is on PATH only in an activated environment.
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])

    class BuildBinary(cpp_extension.BuildExtension):  # type: ignore[name-defined, misc]
        def run(self) -> None:
            check_torch()
            for extension in self.extensions:
                configure(extension)
            # torch refuses a toolkit of another CUDA major than its own. This binary brings its own
            # runtime and takes nothing of torch's CUDA, so that rule is not about it.
            cpp_extension._check_cuda_version = lambda *_: None
            super().run()

        def get_ext_filename(self, fullname: str) -> str:
            return os.path.join(*fullname.split(".")[:-1], LIBRARY)

    return BuildBinary


class WheelForEveryPython(PlainBdistWheel):
    """Names the wheel py3-none, with the platform of the binary."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


def sources() -> list[str]:
    # Relative and sorted: the same tree gives the same command lines everywhere.
    found = [path for suffix in ("cpp", "cu") for path in (ROOT / "kernels").rglob(f"*.{suffix}")]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def binary() -> dict[str, Any]:
    """What makes the wheel one of a binary; nothing of it in a CPU-only build."""
    if is_cpu_only():
        return {}
    # With py_limited_api, torch's build_ext does not link libtorch_python.
    extension = Extension("convt_ext._C", sources(), libraries=LIBRARIES, language="c++", py_limited_api=True)
    return {
        "ext_modules": [extension],
        "cmdclass": {"build_ext": build_ext_command(), "bdist_wheel": WheelForEveryPython},
    }


setup(version=full_version(), zip_safe=False, **binary())

"""Compiles the kernels' device code with NVRTC of CUDA 12.9.

    python tools/cuda12_device_code.py [--architectures "7.0;9.0a"] [FILE.cu …]
    python tools/cuda12_device_code.py --quick     the first file of each folder, for one architecture and with few
                                                   optimizations: 9.0a in folders *_sm90a, otherwise 7.0, which
                                                   CUDA 13 does not support

Called by `make cuda12-check` and, with --quick, by .ci/run. PyPI has no nvcc 12, but it has NVRTC 12.9, which is the
same compiler for device code. Compiles each .cu file to machine code for the architectures of its build (by default
of a CUDA 12 release), and checks that it contains a kernel. This verifies language, headers and instructions, but not
host code, linking or execution.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import cuda_toolkit
import nvcc

CHECKOUT = Path(__file__).resolve().parent.parent
FOLDER = CHECKOUT / ".cuda" / "nvrtc-12.9"
PACKAGES = ("nvidia-cuda-nvrtc-cu12==12.9.*", "nvidia-cuda-runtime-cu12==12.9.*", "nvidia-cuda-cccl-cu12==12.9.*")

# NVRTC has no C++ standard library. CCCL provides the headers that device code uses.
FROM_CCCL = (
    "array", "climits", "cmath", "cstddef", "cstdint", "limits", "numeric", "type_traits", "utility",
)  # fmt: skip
# Standard headers that have another name in this release of CCCL.
NAMED_OTHERWISE = {"algorithm": "__algorithm_"}
IN_STD = "namespace std { using namespace cuda::std; }\n"
# C headers. The CUDA driver's header includes the first two. NVRTC has the built-in functions of the last.
OF_C = {"stdlib.h": "", "stdint.h": "#include <cuda/std/cstdint>\nusing namespace cuda::std;\n", "cstring": ""}
# Definitions of nvcc's prologue.
PROLOGUE = b"#include <limits>\n#include <type_traits>\n#define INFINITY __int_as_float(0x7f800000)\n"
# Headers of host types that device code only needs declared.
DECLARED = ("memory", "string", "vector")
DECLARATIONS = "class string; template <class T> class vector {}; template <class T> class shared_ptr;"
# Headers of kernels/ for the host that headers of device code include, and what those need of them.
FOR_HOST = {
    "plan/tile.h": "#include <vector>\n#define CONVT_TILE_FIELDS(...)\nnamespace convt { struct TileField {};\n"
    "template <class... T> std::vector<TileField> list_fields(T...) { return {}; } }\n",
}


def fetch() -> None:
    if (FOLDER / "complete").exists():
        return
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*command, "--target", str(FOLDER), *PACKAGES], check=True, stdout=sys.stderr)
    (FOLDER / "complete").touch()


def write_headers(folder: Path) -> None:
    of_cccl = {name: name for name in FROM_CCCL} | NAMED_OTHERWISE
    texts = {
        **{name: f"#include <cuda/std/{theirs}>\n{IN_STD}" for name, theirs in of_cccl.items()},
        **dict.fromkeys(DECLARED, f"namespace std {{ {DECLARATIONS} }}\n"),
        **OF_C,
        **FOR_HOST,
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"#pragma once\n{text}")


def compile_file(source: Path, architecture: str, headers: Path, optimizes: bool) -> str | None:
    """Returns None, or the error: NVRTC's log, or that the machine code contains no kernel."""
    nvidia = FOLDER / "nvidia"
    ctypes.CDLL(str(nvidia / "cuda_nvrtc/lib/libnvrtc-builtins.so.12.9"), ctypes.RTLD_GLOBAL)
    nvrtc = ctypes.CDLL(str(nvidia / "cuda_nvrtc/lib/libnvrtc.so.12"))
    folders = (headers, CHECKOUT / "kernels", nvidia / "cuda_runtime/include", nvidia / "cuda_cccl/include")
    options = [f"-arch=sm_{architecture.replace('.', '')}", "-std=c++20", "-default-device", "-w"]
    options += [] if optimizes else ["--Ofast-compile=max"]
    words = [word.encode() for word in (*options, *(f"-I{path}" for path in folders))]
    text = PROLOGUE + source.read_bytes()
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, source.name.encode(), 0, None, None)
    if nvrtc.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words)) != 0:
        return _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode(errors="replace")
    code = _text(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    return None if b".text._Z" in code else "the machine code contains no kernel"


def _text(size_of, contents_of, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    size_of(program, ctypes.byref(size))
    contents = ctypes.create_string_buffer(size.value)
    contents_of(program, contents)
    return contents.raw


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--architectures", default=cuda_toolkit.ARCHITECTURES[12])
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    fetch()
    sources = arguments.files or sorted((CHECKOUT / "kernels").rglob("*.cu"))
    architectures = [entry.removesuffix("+PTX") for entry in arguments.architectures.split(";")]
    wanted = {source: nvcc.architectures_of(source, architectures) for source in sources}
    if arguments.quick:
        first = {source.parent: source for source in sorted(sources, reverse=True)}
        wanted = {source: ["9.0a" if nvcc.is_for_hopper(source) else "7.0"] for source in first.values()}
    with tempfile.TemporaryDirectory() as name, ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        write_headers(Path(name))
        jobs = {
            (source, architecture): pool.submit(compile_file, source, architecture, Path(name), not arguments.quick)
            for source, chosen in wanted.items()
            for architecture in chosen
        }
        faults = {name: fault for name, job in jobs.items() if (fault := job.result())}
    for (source, architecture), fault in faults.items():
        print(f"{source.name} for {architecture}: {fault[:4000]}")
    which = "quick" if arguments.quick else arguments.architectures
    print(f"CUDA 12.9 device code: {len(jobs) - len(faults)} of {len(jobs)} compiled ({which})")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()

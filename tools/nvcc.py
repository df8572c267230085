"""Runs nvcc for only those architectures of a build that a file needs.

    python tools/nvcc.py COMPILER [WORD ...] ARGUMENT ...

Called by torch's build as its nvcc (setup.py sets PYTORCH_NVCC). COMPILER is nvcc or the user's own PYTORCH_NVCC, such
as `ccache nvcc`. Files in folders *_sm90a are compiled only for 9.0a, because their kernels are empty for other
architectures. If the build does not include 9.0a, they are compiled for its first architecture, because the host code
refers to the kernels. Files of the portable engine, whose instructions and tiles differ within a GPU generation, are
compiled for every architecture. All other files are compiled once per generation: GPUs of 8.6 and 8.9 run code for 8.0.
Requested PTX is kept for future GPUs, except in folders *_sm90a. Needs only the standard library.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

KERNELS = Path(__file__).resolve().parent.parent / "kernels"
HOPPER = "90a"
PORTABLE = "portable"


def is_portable(source: Path) -> bool:
    """Returns whether the file belongs to the portable engine: tensor-core kernels for every architecture.

    >>> is_portable(KERNELS / "portable/instances/convolve.cu"), is_portable(KERNELS / "simt/instances/convolve_co8.cu")
    (True, False)
    """
    return source.resolve().is_relative_to(KERNELS / PORTABLE)


def is_for_hopper(source: Path) -> bool:
    """Returns whether the file is in a folder *_sm90a of kernels/.

    >>> is_for_hopper(KERNELS / "flat_sm90a/instances/convolve.cu"), is_for_hopper(KERNELS / "simt/x_sm90a.cu")
    (True, False)
    """
    folder = source.resolve().parent
    return folder.is_relative_to(KERNELS) and any(part.endswith("_sm90a") for part in folder.relative_to(KERNELS).parts)


def architecture_of_hopper(names: Sequence[str]) -> str:
    """Returns the architecture of a build for files in folders *_sm90a: 9.0a, or the first one if 9.0a is missing.

    >>> architecture_of_hopper(["80", "90a"]), architecture_of_hopper(["8.0", "9.0a"]), architecture_of_hopper(["8.0"])
    ('90a', '9.0a', '8.0')
    """
    return next((name for name in names if name.replace(".", "") == HOPPER), names[0])


def one_of_each_generation(names: Sequence[str]) -> list[str]:
    """Returns the first architecture of each generation, which all later GPUs of it run, and all "a".

    >>> one_of_each_generation(["7.5", "8.0", "8.6", "8.9", "9.0a", "10.0", "12.0"])
    ['7.5', '8.0', '9.0a', '10.0', '12.0']
    >>> one_of_each_generation(["86", "80", "90", "90a", "100"])
    ['80', '90', '90a', '100']
    """
    first: dict[str, str] = {}
    for name in sorted(names):
        if name[-1].isdigit():
            first.setdefault(name[:-1], name)
    return [name for name in names if not name[-1].isdigit() or first[name[:-1]] == name]


def architectures_of(source: Path, names: Sequence[str]) -> list[str]:
    """Returns the architectures of a build that the file is compiled to machine code for."""
    if is_for_hopper(source):
        return [architecture_of_hopper(names)]
    return list(names) if is_portable(source) else one_of_each_generation(names)


def command(words: list[str]) -> list[str]:
    """Returns the words without the -gencode options of architectures that the source is not compiled for.

    >>> flags = [f"-gencode=arch=compute_{name},code=sm_{name}" for name in ("80", "86", "90a")]
    >>> command([*flags, str(KERNELS / "reduce/slabs.cu")])[:-1] == [flags[0], flags[2]]
    True
    """
    sources = [Path(word) for word in words if word.endswith(".cu")]
    matches = [re.fullmatch(r"-gencode=arch=compute_(\w+),code=(sm|compute)_\w+", word) for word in words]
    names = list(dict.fromkeys(match[1] for match in matches if match))
    if not names or len(sources) != 1:
        return words
    kept, keeps_ptx = architectures_of(sources[0], names), not is_for_hopper(sources[0])
    return [
        word
        for word, match in zip(words, matches, strict=True)
        if match is None or match[1] in kept or (keeps_ptx and match[2] == "compute")
    ]


def main() -> None:
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    words = command(sys.argv[1:])
    try:
        os.execvp(words[0], words)
    except OSError as error:
        raise SystemExit(f"convt_ext: the compiler {words[0]} does not start: {error.strerror}") from None


if __name__ == "__main__":
    main()

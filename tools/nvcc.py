"""The compiler of a build: nvcc, which compiles the files of folders named *_sm90a for 9.0a alone.

    python tools/nvcc.py COMPILER [WORD ...] ARGUMENT ...

setup.py has torch's build call this in nvcc's place, with the real compiler in front: nvcc, or what the user's own
PYTORCH_NVCC says, such as `ccache nvcc`. Code in those folders stands behind the compiler's feature macro of 9.0a; for
every other architecture a file would be empty kernels, which take compiling and room in the wheel. Where 9.0a is not
among the architectures, the first one is left: the host's part of a file needs kernels to name. Needs only the
standard library.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

KERNELS = Path(__file__).resolve().parent.parent / "kernels"
HOPPER = "90a"


def is_for_hopper(source: Path) -> bool:
    """Whether the file lies in a folder of kernels/ that is named after Hopper.

    >>> is_for_hopper(KERNELS / "flat_sm90a/instances/tf32.cu"), is_for_hopper(KERNELS / "simt/x_sm90a.cu")
    (True, False)
    """
    folder = source.resolve().parent
    return folder.is_relative_to(KERNELS) and any(part.endswith("_sm90a") for part in folder.relative_to(KERNELS).parts)


def architecture_of_hopper(names: Sequence[str]) -> str:
    """Of the architectures of a build the one that Hopper's files are compiled for: 9.0a, or without it the first.

    >>> architecture_of_hopper(["80", "90a"]), architecture_of_hopper(["8.0", "9.0a"]), architecture_of_hopper(["8.0"])
    ('90a', '9.0a', '8.0')
    """
    return next((name for name in names if name.replace(".", "") == HOPPER), names[0])


def for_one_architecture(arguments: list[str]) -> list[str]:
    """The arguments with the machine code and PTX of 9.0a, or else of the first architecture, and of no other.

    >>> flags = [f"-gencode=arch=compute_{name},code=sm_{name}" for name in ("80", "90a")]
    >>> for_one_architecture(["-O3", *flags])
    ['-O3', '-gencode=arch=compute_90a,code=sm_90a']
    >>> for_one_architecture([flags[0], "-gencode=arch=compute_120,code=sm_120"])
    ['-gencode=arch=compute_80,code=sm_80']
    """
    matches = [re.fullmatch(r"-gencode=arch=compute_(\w+),code=\w+", word) for word in arguments]
    named = [match[1] if match else None for match in matches]
    architectures = [name for name in named if name]
    chosen = architecture_of_hopper(architectures) if architectures else None
    return [word for word, name in zip(arguments, named, strict=True) if name in (None, chosen)]


def command(words: list[str]) -> list[str]:
    """What is run: the words themselves, with fewer architectures where the file is Hopper's."""
    sources = [Path(word) for word in words if word.endswith(".cu")]
    return for_one_architecture(words) if any(map(is_for_hopper, sources)) else words


def main() -> None:
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    words = command(sys.argv[1:])
    try:
        os.execvp(words[0], words)
    except OSError as error:
        raise SystemExit(f"convt_ext: the compiler {words[0]} cannot be started: {error.strerror}") from None


if __name__ == "__main__":
    main()

"""Prints the TORCH_CUDA_ARCH_LIST that `make build` uses: this machine's GPUs, or Hopper without one."""

from __future__ import annotations

import subprocess

WITHOUT_GPU = "9.0a"


def architectures_of(text: str) -> str:
    """nvidia-smi's compute capabilities, one a line, as a list for setup.py.

    >>> architectures_of("9.0\\n8.0\\n9.0\\n")
    '8.0;9.0a'
    """
    found = {line.strip() for line in text.splitlines() if line.strip().replace(".", "", 1).isdigit()}
    # Hopper's own instructions exist under the name 9.0a alone.
    return ";".join("9.0a" if name == "9.0" else name for name in sorted(found, key=float)) or WITHOUT_GPU


def main() -> None:
    query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        text = subprocess.run(query, capture_output=True, text=True).stdout
    except OSError:
        text = ""
    print(architectures_of(text))


if __name__ == "__main__":
    main()

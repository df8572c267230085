"""Prints the default TORCH_CUDA_ARCH_LIST of `make build`: this machine's GPUs, or Hopper if it has none."""

from __future__ import annotations

import subprocess

WITHOUT_GPU = "9.0a"


def architectures_of(text: str) -> str:
    """Returns the architecture list for setup.py from nvidia-smi's compute capabilities, one per line.

    >>> architectures_of("9.0\\n8.0\\n9.0\\n")
    '8.0;9.0a'
    """
    found = {line.strip() for line in text.splitlines() if line.strip().replace(".", "", 1).isdigit()}
    # Only architecture 9.0a contains Hopper's own instructions.
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

"""Description of the machine in the record of a GPU run. Called by conftest.py and tools/sanitize.py."""

from __future__ import annotations

import subprocess


def gpu_facts() -> dict[str, str | int]:
    """GPU, number of GPUs, torch, its CUDA and the driver, as this process sees them."""
    import torch  # not sooner: conftest.py is imported before it sets torch's threads

    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        driver = subprocess.run(query, capture_output=True, text=True).stdout.split()
    except OSError:
        driver = []
    count = torch.cuda.device_count()
    return {
        "gpu": ", ".join(sorted({torch.cuda.get_device_name(index) for index in range(count)})),
        "gpus": count,
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "driver": driver[0] if driver else "unknown",
    }

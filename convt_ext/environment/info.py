"""``python -m convt_ext info``: prints the installation, the machine, and whether the kernels can run.

Plain text, no further packages: bug reports contain this output.
"""

from __future__ import annotations

import os
import platform

import torch

import convt_ext
from convt_ext.dispatch import precision
from convt_ext.environment import _driver, _extension, _torch
from convt_ext.tuning import files


def collect_info() -> dict[str, str]:
    reason = _extension.unavailable_reason()
    return {
        "convt_ext": convt_ext.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "CUDA of torch": torch.version.cuda or "none (CPU build)",
        "cuDNN": str(torch.backends.cudnn.version() or "none"),
        "system": f"{platform.platform()}, {' '.join(platform.libc_ver()) or 'no glibc'}",
        "driver": _driver_words(),
        **_binary(),
        **_gpus(),
        **_settings(),
        "kernels usable": "yes" if reason is None else "no",
        **({} if reason is None else {"reason": reason}),
    }


def print_info() -> int:
    info = collect_info()
    width = max(map(len, info))
    for name, value in info.items():
        print(f"{name:<{width}}  {value}")
    return 0


def _settings() -> dict[str, str]:
    cudnn = torch.backends.cudnn
    switches = {
        "cudnn.enabled": cudnn.enabled,
        "cudnn.benchmark": cudnn.benchmark,
        "cudnn.deterministic": cudnn.deterministic,
        "cudnn.conv.fp32_precision": precision.tf32_switch(),
        "deterministic algorithms": _torch.get_deterministic_algorithms(),
    }
    variables = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("CONVT_EXT_")]
    return {
        "switches": ", ".join(f"{name} {value}" for name, value in switches.items()),
        "variables": ", ".join(variables) or "none",
        "tuning files": ", ".join(name or "none" for name, _ in files.in_force()),
    }


def _driver_words() -> str:
    served = _driver.cuda_of_driver()
    most = f", supports CUDA {served[0]}.{served[1]}" if served else ""
    return (_driver.version() or "none found") + most


def _binary() -> dict[str, str]:
    build = convt_ext.build_info()
    if build["cuda"] is None:
        return {"binary": "not loaded"}
    return {
        "binary": f"version {build['version']}, CUDA {build['cuda']}"
        + ("" if build["optimized"] else ", not optimized (CONVT_EXT_FAST_COMPILE)"),
        "architectures": ", ".join(build["architectures"]),
        "sources": build["sources"],
    }


def _gpus() -> dict[str, str]:
    if not torch.cuda.is_available():
        return {"GPU": "none that torch can use"}
    gpus = {}
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        gpus[f"GPU {index}"] = (
            f"{properties.name}, compute capability {properties.major}.{properties.minor}, "
            f"{properties.multi_processor_count} SMs, {properties.total_memory / 2**30:.0f} GiB, "
            + ("the binary fits" if _extension.unsupported_reason(index) is None else "the binary does not fit")
        )
    return gpus

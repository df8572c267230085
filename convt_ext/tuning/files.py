"""Tuning files: measured plans and times of calls, kept, merged, committed and shipped as JSON.

    {"convt_ext_tuning": 1, "measured": [
      {"gpu": "NVIDIA H200", "device": [90, 132, ...], "kernels": "3f0c...", "cuda": "13.0", "torch": "2.11.0+cu130",
       "cudnn": 91900, "driver": "580.95.05", "calls": {
        "forward tf32 x=...": {"kernel": "...", "knobs": {"tile_h": 8}, "ours_us": 30.1, "torch_us": 38.8}
      }}]}

An entry identifies a plan by its kernel and its tile. It applies to GPUs with the same numbers, and to the measured
kernels, or to any kernels with such a plan if "kernels" is empty. PyTorch's time applies to its cuDNN, and with a
margin to others. An entry that does not fit is a miss, not an error. Called by choices, measuring and command.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..dispatch import planner
from ..dispatch.precision import CLASSES
from ..environment import _driver, _extension

VARIABLE = "CONVT_EXT_TUNING"
SHIPPED = Path(__file__).with_name("shipped.json")

_VERSION = 1
_DIRECTIONS = ("forward", "grad_input", "grad_weight")


class Environment(NamedTuple):
    """Identifies the GPU and the software of a measurement."""

    gpu: str  # the GPU's name; informational only
    device: tuple[int, ...]  # the GPU's six numbers, as in the planner
    kernels: str  # digest of the binary's sources; empty for any binary with such a plan
    cuda: str  # versions from here on
    torch: str
    cudnn: int | None
    driver: str


class Entry(NamedTuple):
    """Measurement of a call; `kernel` is None if convt_ext was not measured, `torch_us` is 0 if PyTorch was not."""

    kernel: str | None
    knobs: dict[str, Any]
    ours_us: float
    torch_us: float


class Found(NamedTuple):
    """An entry that applies here, with the number of its plan."""

    candidate: int
    ours_us: float
    torch_us: float
    same_cudnn: bool
    file: str


Measured = dict[Environment, dict[str, Entry]]


def here(device: int) -> Environment:
    info = _extension.build_info() or {}
    return Environment(
        torch.cuda.get_device_name(device), planner.device_numbers(device), str(info.get("sources", "")),
        str(torch.version.cuda), torch.__version__, torch.backends.cudnn.version(), _driver.version(),
    )  # fmt: skip


def key_of(problem: planner.Problem, direction: int) -> str | None:
    """Returns the key of a call in a file; None if its tensors are not dense, which files do not support."""
    input_format = _format_of(problem.input_size, problem.input_stride)
    weight_format = _format_of(problem.weight_size, problem.weight_stride)
    if input_format is None or weight_format is None:
        return None
    axes = {name: getattr(problem, name) for name in ("stride", "padding", "output_padding", "dilation")}
    return " ".join(
        (
            _DIRECTIONS[direction], CLASSES[problem.code] if problem.dtype is not torch.float64 else "float64",
            f"x={_by(problem.input_size)}:{input_format}", f"w={_by(problem.weight_size)}:{weight_format}",
            f"y={_formats(problem.input_size)[problem.channels_last]}",
            *(f"{name}={_by(axis)}" for name, axis in axes.items()),
            f"groups={problem.groups}",
        )
    )  # fmt: skip


def _by(numbers: Iterable[int]) -> str:
    return "x".join(map(str, numbers))


def _formats(size: Any) -> tuple[str, str]:
    return ("nchw", "nhwc") if len(size) == 4 else ("ncdhw", "ndhwc")


def _format_of(size: Any, stride: Any) -> str | None:
    """Returns the format in which a tensor is dense; an axis of one element may have any stride."""
    spatial = range(len(size) - 1, 1, -1)
    for name, order in zip(_formats(size), ((*spatial, 1, 0), (1, *spatial, 0)), strict=True):
        step = 1
        for axis in order:
            if size[axis] > 1 and stride[axis] != step:
                break
            step *= size[axis]
        else:
            return name
    return None


def read(path: Path | str) -> Measured:
    """Reads a file; skips entries that cannot be parsed.

    Raises:
        OSError: it does not exist or cannot be read.
        ValueError: it is not a tuning file, or has another version.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError:
        content = None
    if not isinstance(content, dict) or content.get("convt_ext_tuning") != _VERSION:
        raise ValueError(f"{path} is not a tuning file of version {_VERSION}: `python -m convt_ext tune` writes one")
    measured: Measured = {}
    for part in content.get("measured", ()):
        with contextlib.suppress(KeyError, TypeError, AttributeError):
            environment = Environment(*(part[name] for name in Environment._fields))
            environment = environment._replace(device=tuple(environment.device))
            measured.setdefault(environment, {}).update(_entries(part["calls"]))
    return measured


def _entries(calls: dict[str, Any]) -> Iterator[tuple[str, Entry]]:
    for key, value in calls.items():
        with contextlib.suppress(KeyError, TypeError, ValueError):
            entry = Entry(value["kernel"], dict(value["knobs"]), float(value["ours_us"]), float(value["torch_us"]))
            if (entry.kernel is None or entry.ours_us > 0) and entry.torch_us >= 0:
                yield key, entry


def write(path: Path | str, measured: Measured) -> None:
    parts = []
    for environment, calls in sorted(measured.items(), key=lambda item: str(item[0])):
        lines = ",\n".join(f"   {json.dumps(key)}: {json.dumps(calls[key]._asdict())}" for key in sorted(calls))
        head = json.dumps(environment._asdict())[1:-1]
        parts.append(f'  {{{head}, "calls": {{\n{lines}\n  }}}}')
    text = f'{{"convt_ext_tuning": {_VERSION}, "measured": [\n' + ",\n".join(parts) + "\n]}\n"
    replace_text(Path(path), text)


def replace_text(path: Path, text: str) -> None:
    """Replaces a file atomically: a reader sees the complete old file or the complete new one."""
    handle, name = tempfile.mkstemp(dir=path.parent)
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def check(path: Path | str) -> None:
    """Raises the errors of `add_to` (OSError, ValueError), before there is anything to write."""
    path = Path(path)
    if path.exists():
        read(path)
    try:
        with tempfile.TemporaryFile(dir=path.parent):  # `write` makes a new file and moves it into place
            pass
    except OSError as error:
        raise OSError(
            error.errno,
            f"convt_ext cannot write the tuning file {path}: {error.strerror}; create the folder {path.parent}, make "
            "it writable, or name a file elsewhere",
        ) from None


def add_to(path: Path | str, measured: Measured) -> None:
    """Adds entries to the current content of a file; it need not exist."""
    write(path, merged((read(path) if Path(path).is_file() else {}, measured)))


def merged(many: Iterable[Measured]) -> Measured:
    """Merges all entries; for duplicate calls of one environment the later one wins."""
    result: Measured = {}
    for measured in many:
        for environment, calls in measured.items():
            result.setdefault(environment, {}).update(calls)
    return result


_chosen: tuple[str, Measured] | None = None


def choose(name: str, measured: Measured) -> None:
    """Replaces the user's entries in force; the environment variable then has no effect."""
    global _chosen
    _chosen = name, measured


def add(measured: Measured) -> None:
    name, before = next(in_force())
    choose(name or "tune()", merged((before, measured)))


def in_force() -> Iterator[tuple[str, Measured]]:
    """Yields name and entries of the user's file and of the package's, in order of priority."""
    global _chosen
    if _chosen is None:
        _chosen = _of_variable()
    yield _chosen
    yield SHIPPED.name, _shipped()


def _of_variable() -> tuple[str, Measured]:
    path = os.environ.get(VARIABLE, "")
    if path:
        try:
            return path, read(path)
        except FileNotFoundError:  # nothing was measured yet
            pass
        except (OSError, ValueError) as error:
            warnings.warn(f"convt_ext ignores {VARIABLE}: {error}", RuntimeWarning, stacklevel=2)
    return path, {}


@functools.cache
def _shipped() -> Measured:
    return read(SHIPPED) if SHIPPED.is_file() else {}


def speak_of(device: tuple[int, ...]) -> bool:
    """Returns whether a file in force contains measurements of such a GPU."""
    return any(one.device == device for _, measured in in_force() for one in measured)


def find(problem: planner.Problem, direction: int) -> Found | None:
    """Returns the entry of a call on that GPU from the files in force; None if no file contains one."""
    key = None
    for name, measured in in_force():
        for environment in _fitting(measured, tuple(problem.device)):
            key = key or key_of(problem, direction)
            entry = measured[environment].get(key or "")
            candidate = None if entry is None else _candidate(problem, direction, entry)
            if entry is not None and candidate is not None:
                same = environment.cudnn == torch.backends.cudnn.version()
                return Found(candidate, entry.ours_us, entry.torch_us, same, name)
    return None


def _fitting(measured: Measured, device: tuple[int, ...]) -> list[Environment]:
    """Returns the environments that apply to a GPU and these kernels, those with this cuDNN first."""
    kernels = ("", str((_extension.build_info() or {}).get("sources", "")))
    fitting = [one for one in measured if one.device == device and one.kernels in kernels]
    return sorted(fitting, key=lambda one: one.cudnn != torch.backends.cudnn.version())


def _candidate(problem: planner.Problem, direction: int, entry: Entry) -> int | None:
    """Returns the number of an entry's plan, 0 if the entry has none; None if no such plan exists here."""
    if entry.kernel is None or (direction == 2 and problem.code in planner.EXACT_CODES):
        return 0  # the planner's choice determines the order of accumulation there
    try:
        answer = planner.plan(problem, direction)
    except ValueError:
        return None
    for number, plan in enumerate((answer or {}).get("candidates", ())):
        if _kernel_name(plan["kernel"]) == _kernel_name(entry.kernel) and all(
            plan.get(knob) == value for knob, value in entry.knobs.items()
        ):
            return number
    return None


def _kernel_name(kernel: str) -> str:
    """Returns the name without its half type: kernels of float16 and of bfloat16 differ only in name."""
    return kernel.replace("bf16", "f16")

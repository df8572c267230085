"""Times layers and models with PyTorch and with convt_ext, and compares each result with float64.

Calls are timed alternately. The error of convt_ext may exceed PyTorch's by the error limit of the precision for each
transposed convolution. Called by command.py, and by tests, which pass a CPU device and their own timer. Must not know
tables.
"""

from __future__ import annotations

import copy
import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

import convt_ext
from convt_ext.bench import runner
from convt_ext.bench.layers import Layer
from convt_ext.bench.modes import Mode, without_cudnn
from convt_ext.bench.operands import LAYOUTS, Reference, free_bytes, spread
from convt_ext.bench.timing import Timer
from convt_ext.demo.models import Model
from convt_ext.dispatch.precision import ERROR_LIMITS, class_by_switches
from convt_ext.epilogue.sequential import FusedSequential

CONVERTED, FUSED, COMPILED = "converted", "fused", "compiled"

# The classes that PyTorch's switches select: the demo's name and the error limit of each.
_CLASSES = {
    "tf32": ("TF32", ERROR_LIMITS["tf32"]),
    "ieee": ("float32", ERROR_LIMITS["float32"]),
    "aten": ("float32", ERROR_LIMITS["float32"]),
    "bf16": ("bfloat16", ERROR_LIMITS["bfloat16"]),
}
_H200 = (9, 0)  # the compute capability that selects the class on a CPU, for tests

_REFERENCE_IMAGES = 2  # images of a batch that are compared with float64


class Comparison(NamedTuple):
    """A call of PyTorch, and the same call with convt_ext."""

    name: str  # the layer, or the model and how it was converted
    precision: str  # "TF32", "float32" or "bfloat16"
    layout: str  # "nchw" or "nhwc"
    torch_us: float | None = None  # GPU times; None if not measured
    ours_us: float | None = None
    error: float = math.nan  # ||result - exact|| / ||exact|| of convt_ext; NaN if not measured
    allowed: float = math.nan  # the largest error that is accepted
    runs_torch: bool = False  # whether convt_ext chose PyTorch's operator
    skipped: str = ""  # why it was not measured, without being an error
    failure: str = ""  # the error that the call raised

    @property
    def speedup(self) -> float | None:
        return self.torch_us / self.ours_us if self.torch_us and self.ours_us else None

    @property
    def holds(self) -> bool:
        """Whether the error is within its limit, or the call was skipped."""
        if self.failure or self.skipped:
            return not self.failure
        return self.error <= self.allowed  # False for NaN


Step = tuple[str, Callable[[], list[Comparison]]]  # a name for the progress, and the function that measures


def steps_of_layers(
    layers: Sequence[Layer], modes: Sequence[Mode], device: torch.device, timer: Timer
) -> Iterator[Step]:
    """Yields a step for each layer and mode, which measures both layouts."""
    for layer, mode in itertools.product(layers, modes):
        yield f"{layer.name}, {_class(mode, device)[0]}", partial(compare_layer, layer, mode, device, timer)


def steps_of_models(
    models: Sequence[Model], compiled: Sequence[str], modes: Sequence[Mode], device: torch.device, timer: Timer
) -> Iterator[Step]:
    """Yields a step for each model, mode and layout, and one for each model to compile, in the first mode."""
    for model in models:
        for mode, layout in itertools.product(modes, LAYOUTS):
            words = f"{model.name}, {_class(mode, device)[0]}, {layout}"
            yield words, partial(compare_model, model, mode, layout, device, timer)
        if model.name in compiled:
            yield f"{model.name}, compiling", partial(compare_compiled, model, modes[0], device, timer)


def compare_layer(layer: Layer, mode: Mode, device: torch.device, timer: Timer) -> list[Comparison]:
    """Compares a layer's forward pass in both layouts; skips it if it does not fit into the GPU's memory."""
    settings = runner.Settings((layer,), (mode,), ("fwd",), LAYOUTS, device, with_first_calls=False)
    name, limit = _class(mode, device)
    found = []
    for item in runner.run(settings, timer, None, partial(free_bytes, device)):
        if isinstance(item, runner.Skipped):
            found += [Comparison(layer.name, name, layout, skipped=item.reason) for layout in LAYOUTS]
        elif failure := item.get("failure", ""):
            kind = "skipped" if torch.OutOfMemoryError.__name__ in failure else "failure"
            found.append(Comparison(layer.name, name, item["layout"], **{kind: failure}))
        else:
            times, allowed = (item["torch_us"], item["ours_us"]), item["torch_error"] + limit
            chosen = item["chosen"] == "torch"
            found.append(Comparison(layer.name, name, item["layout"], *times, item["error"], allowed, chosen))
    return found


def compare_model(model: Model, mode: Mode, layout: str, device: torch.device, timer: Timer) -> list[Comparison]:
    """Compares the converted model with the original; with `fuse=True` too, if that fuses anything."""
    original, input = prepared(model, mode, layout, device)
    versions = {CONVERTED: convt_ext.convert(copy.deepcopy(original))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # convert found nothing to fuse
        fused = convt_ext.convert(copy.deepcopy(original), fuse=True)
    if any(isinstance(module, FusedSequential) for module in fused.modules()):
        versions[FUSED] = fused
    return _compared(model.name, mode, layout, original, original, versions, input, timer)


def compare_compiled(model: Model, mode: Mode, device: torch.device, timer: Timer) -> list[Comparison]:
    """Compares the converted and compiled model with the compiled original, both in NCHW."""
    original, input = prepared(model, mode, LAYOUTS[0], device)
    versions = {COMPILED: torch.compile(convt_ext.convert(copy.deepcopy(original)), dynamic=False)}
    before = torch.compile(original, dynamic=False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice for users of torch.compile
            return _compared(model.name, mode, LAYOUTS[0], original, before, versions, input, timer)
    finally:
        torch.compiler.reset()


def prepared(model: Model, mode: Mode, layout: str, device: torch.device) -> tuple[nn.Module, torch.Tensor]:
    """Returns a copy of the model and an input, both in the dtype of the mode and in the layout."""
    memory_format = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}[layout]
    input = torch.randn(model.shape, device=device, generator=torch.Generator(device).manual_seed(0))
    original: Any = copy.deepcopy(model.module)
    placed = original.to(device=device, dtype=mode.dtype, memory_format=memory_format)
    return placed, input.to(mode.dtype).contiguous(memory_format=memory_format)


def _compared(
    name: str,
    mode: Mode,
    layout: str,
    original: nn.Module,
    before: Callable[[torch.Tensor], torch.Tensor],
    versions: Mapping[str, Callable[[torch.Tensor], torch.Tensor]],
    input: torch.Tensor,
    timer: Timer,
) -> list[Comparison]:
    precision, limit = _class(mode, input.device)
    empty = [Comparison(f"{name}, {version}", precision, layout) for version in versions]
    try:
        reference = _reference(original, input)
        torch_error = reference.relative_error(before(input))  # cuDNN searches here, before any benchmark
    except Exception as error:  # out of memory, or torch.compile finds no C compiler
        return [one._replace(skipped=f"PyTorch fails: {_one_line(error)}") for one in empty]
    try:
        errors = [reference.relative_error(version(input)) for version in versions.values()]
        torch_us, *ours_us = timer.times_us([partial(call, input) for call in (before, *versions.values())])
    except Exception as error:
        if isinstance(error, torch.OutOfMemoryError):
            return [one._replace(skipped=_one_line(error)) for one in empty]
        return [one._replace(failure=_one_line(error)) for one in empty]
    allowed = torch_error + limit * sum(isinstance(module, nn.ConvTranspose2d) for module in original.modules())
    return [
        one._replace(torch_us=torch_us, ours_us=us, error=error, allowed=allowed)
        for one, us, error in zip(empty, ours_us, errors, strict=True)
    ]


def _reference(model: nn.Module, input: torch.Tensor) -> Reference:
    """Computes the first and the last image in float64, with PyTorch's own algorithms."""
    index = torch.tensor(spread(len(input), _REFERENCE_IMAGES), device=input.device)
    with without_cudnn(), torch.no_grad():
        return Reference(index, copy.deepcopy(model).double()(input[index].double()))


def _class(mode: Mode, device: torch.device) -> tuple[str, float]:
    """Returns the name and the error limit of the precision that PyTorch's switches select in this mode."""
    capability = torch.cuda.get_device_capability(device) if device.type == "cuda" else _H200
    return _CLASSES[class_by_switches(mode.dtype, capability)]


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"

"""Operands of a layer, PyTorch's call for each direction, and the float64 reference for a slice of its result.

The reference is computed on the operands' device in float64, by PyTorch's own algorithm (cuDNN off, so independent of
the compared implementations), and only for a slice: float64 copies of the larger layers would need gigabytes.
"""

from __future__ import annotations

import dataclasses
import gc
import math
from collections.abc import Callable, Sequence

import torch

from convt_ext.bench.layers import Layer
from convt_ext.bench.modes import without_cudnn
from convt_ext.environment import _torch

DIRECTIONS = ("fwd", "dx", "dw")
LAYOUTS = ("nchw", "nhwc")

_MIN_REFERENCE_ELEMS = 4096  # the documented error bounds apply to samples of at least this size


@dataclasses.dataclass(frozen=True)
class Operands:
    """The tensors of one layer; ``grad_output`` only if a gradient is measured."""

    input: torch.Tensor  # [n, c_in, h, w], [n, c_in, w] or [n, c_in, depth, h, w]; the others likewise
    weight: torch.Tensor  # [c_in, c_out / g, kh, kw]
    bias: torch.Tensor | None  # [c_out]
    grad_output: torch.Tensor | None = None  # [n, c_out, oh, ow]

    def in_layout(self, layout: str) -> Operands:
        """Returns the operands with tensors in a layout (the weight too, as ``module.to(memory_format=...)``)."""
        channels_last = torch.channels_last if self.input.dim() == 4 else torch.channels_last_3d
        memory_format = {"nchw": torch.contiguous_format, "nhwc": channels_last}[layout]
        gradient = self.grad_output
        return Operands(
            self.input.contiguous(memory_format=memory_format),
            self.weight.contiguous(memory_format=memory_format),
            self.bias,
            None if gradient is None else gradient.contiguous(memory_format=memory_format),
        )


def layouts_of(layer: Layer, layouts: Sequence[str]) -> list[str]:
    """Returns those of the layouts that the layer's tensors can have: in one dimension there is no channels_last."""
    return [layout for layout in layouts if layout == "nchw" or layer.dims > 1]


def make_operands(
    layer: Layer, dtype: torch.dtype, device: torch.device, *, gradients: bool = False, seed: int = 0
) -> Operands:
    """Makes normally distributed contiguous operands, the same in every run on one device type."""
    generator = torch.Generator(device)
    generator.manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=dtype, device=device, generator=generator)

    return Operands(
        normal(*layer.input_shape),
        normal(*layer.weight_shape),
        normal(layer.c_out) if layer.bias else None,
        normal(*layer.output_shape) if gradients else None,
    )


def torch_call(layer: Layer, direction: str, operands: Operands) -> Callable[[], torch.Tensor]:
    input, weight, bias, grad_output = operands.input, operands.weight, operands.bias, operands.grad_output
    if direction == "fwd":
        return lambda: _torch.CONV_TRANSPOSE[layer.dims](input, weight, bias, **layer.arguments)
    if grad_output is None:
        raise ValueError(f"direction {direction!r} needs operands with a grad_output")
    which = {"dx": 0, "dw": 1}[direction]
    mask = [which == 0, which == 1, False]

    def backward() -> torch.Tensor:
        gradients = torch.ops.aten.convolution_backward(
            grad_output, input, weight, None, layer.s, layer.p, layer.d, True, layer.op, layer.g, mask
        )
        return gradients[which]

    return backward


@dataclasses.dataclass(frozen=True)
class Reference:
    """The float64 result of ``result[index]`` along dimension 0."""

    index: torch.Tensor
    value: torch.Tensor

    def relative_error(self, result: torch.Tensor) -> float:
        """Returns ||result - reference||_2 / ||reference||_2 over the slice; 0 for an exact zero."""
        squares = torch.zeros((), dtype=torch.float64, device=self.value.device)
        for i, row in enumerate(self.index.tolist()):  # row by row: no float64 copy of the whole slice
            squares += (result[row].double() - self.value[i]).square().sum()
        norm = torch.linalg.vector_norm(self.value)
        error = squares.sqrt()
        return 0.0 if error == 0 else (error / norm).item()


def make_reference(layer: Layer, direction: str, operands: Operands) -> Reference:
    """Computes the reference for the first, the last and evenly spread images (weight gradient: for the first input
    channels, in whole groups), with at least 4096 elements."""
    if direction == "dw":
        return _weight_gradient_reference(layer, operands)
    shape = layer.output_shape if direction == "fwd" else layer.input_shape
    images = spread(shape[0], _rows_needed(math.prod(shape[1:])))
    index = torch.tensor(images, device=operands.input.device)
    gradient = operands.grad_output
    part = Operands(
        operands.input[index].double(),
        operands.weight.double(),
        None if operands.bias is None else operands.bias.double(),
        None if gradient is None or direction == "fwd" else gradient[index].double(),
    )
    return _run_reference(layer, direction, index, part)


def _weight_gradient_reference(layer: Layer, operands: Operands) -> Reference:
    assert operands.grad_output is not None
    per_group_in, per_group_out = layer.c_in // layer.g, layer.c_out // layer.g
    channels = min(layer.c_in, _rows_needed(per_group_out * math.prod(layer.k)))
    if layer.g > 1:
        channels = per_group_in * math.ceil(channels / per_group_in)
    groups = max(1, channels // per_group_in) if layer.g > 1 else 1
    part = Operands(
        operands.input[:, :channels].double(),
        operands.weight[:channels].double(),
        None,
        operands.grad_output[:, : groups * per_group_out].double(),
    )
    sliced = dataclasses.replace(layer, c_in=channels, c_out=groups * per_group_out, g=groups)
    index = torch.arange(channels, device=operands.input.device)
    return _run_reference(sliced, "dw", index, part)


def _run_reference(layer: Layer, direction: str, index: torch.Tensor, part: Operands) -> Reference:
    with without_cudnn(), torch.no_grad():
        return Reference(index, torch_call(layer, direction, part)())


def needed_bytes(layer: Layer, itemsize: int, directions: tuple[str, ...]) -> int:
    """Returns an upper estimate of the memory for measuring a layer: operands in both layouts, two results, PyTorch's
    layout copies, and the float64 reference with its column matrix."""
    image_in, image_out = layer.c_in * math.prod(layer.size), layer.c_out * math.prod(layer.output_size)
    gradients = 2 if len(directions) > 1 or directions[0] != "fwd" else 0
    operands = itemsize * layer.n * (3 * image_in + (3 + gradients) * image_out)
    images = layer.n if "dw" in directions else min(layer.n, _rows_needed(min(image_in, image_out)))
    columns = layer.c_out // layer.g * math.prod(layer.k) * math.prod(layer.size)
    return operands + 8 * (images * (image_in + image_out) + columns)


def _rows_needed(row_elems: int) -> int:
    return max(2, math.ceil(_MIN_REFERENCE_ELEMS / max(1, row_elems)))


def spread(size: int, count: int) -> list[int]:
    """Returns `count` evenly spread indices below `size`, including the first and the last; all if there are fewer."""
    if count >= size:
        return list(range(size))
    return [round(i * (size - 1) / (count - 1)) for i in range(count)]


def free_memory(device: torch.device) -> None:
    gc.collect()  # a caught exception can keep the frame that holds them
    if device.type == "cuda":
        torch.cuda.empty_cache()


def free_bytes(device: torch.device) -> int | None:
    """Returns the free memory of a GPU after `free_memory`; None for a CPU."""
    free_memory(device)
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None

"""Lower bounds for the time of any implementation, from the bytes to move and the operations to compute.

floor = max(bytes / copy rate, useful operations / rate of their unit), with every tensor moved once, and counting only
products that contribute to the result. Pure arithmetic, independent of torch and a GPU.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from convt_ext.bench.layers import Layer
from convt_ext.environment.gpus import GPUS

_SECTOR_BYTES = 32  # the granularity of memory reads


@dataclasses.dataclass(frozen=True)
class Rates:
    """Ceilings of one GPU: device-to-device copy (read + written) and operations per second."""

    copy_bytes: float
    operations: Mapping[str, float]  # per precision


_HOPPER_OPERATIONS = {
    "ieee": 64e12,  # FFMA
    "aten": 64e12,
    "tf32": 480e12,  # wgmma
    "tf32x3": 160e12,  # three tf32 products per term
    "f16": 965e12,
    "bf16": 965e12,
    "f64": 33.5e12,  # DFMA
    "default": 480e12,  # PyTorch's default for convolutions is TF32
}

# Keys are substrings of the device's name; the longest match wins. H200: measured. H100 SXM: the same 132 SMs; its copy
# rate is 90 % of its memory bandwidth, as measured on the H200.
_RATES_BY_NAME = {"H200": Rates(4.30e12, _HOPPER_OPERATIONS), "H100 80GB HBM3": Rates(3.00e12, _HOPPER_OPERATIONS)}

H200 = _RATES_BY_NAME["H200"]


def _computed(gpu: str, ffma: float, halves: float, doubles: float) -> Rates:
    """Returns the vendor's peak rates (float32 accumulation; TF32: half of `halves`) and the planner's copy rate."""
    operations = {"ieee": ffma, "aten": ffma, "tf32": halves / 2, "tf32x3": halves / 6, "f16": halves, "bf16": halves}
    operations |= {"f64": doubles, "default": halves / 2}
    return Rates(1e9 * GPUS[gpu][-1], {name: 1e12 * rate for name, rate in operations.items()})


# Ceilings for `bench --dry-run`, by the names of environment/gpus.py; the computed ones are not measured.
BY_GPU = {
    "H200": H200,
    "H100": _RATES_BY_NAME["H100 80GB HBM3"],
    "A100": _computed("A100", 19.5, 312, 9.7),
    "A10": _computed("A10", 31.2, 125, 0.49),
    "L4": _computed("L4", 30.3, 121, 0.47),
    "RTX 4090": _computed("RTX 4090", 82.6, 165, 1.3),
    "RTX 5090": _computed("RTX 5090", 104.8, 209, 1.6),
}


def rates_of(gpu_name: str) -> Rates | None:
    matches = [name for name in _RATES_BY_NAME if name in gpu_name]
    return _RATES_BY_NAME[max(matches, key=len)] if matches else None


def rates_for(numbers: Sequence[int], gpu_name: str) -> Rates | None:
    """Returns the ceilings of the GPU of a plan: by its numbers if it is in `GPUS`, else by its name."""
    listed = [name for name, known in GPUS.items() if known == tuple(numbers)]
    return BY_GPU[listed[0]] if listed else rates_of(gpu_name)


def tap_positions(size_in: int, size_out: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """Counts pairs (input coordinate i, tap k) of one axis with an existing output: 0 <= i*s - p + k*d < out."""
    total = 0
    for k in range(kernel):
        offset = k * dilation - padding
        first = max(0, -(offset // stride))
        last = min(size_in - 1, (size_out - 1 - offset) // stride)
        total += max(0, last - first + 1)
    return total


def useful_operations(layer: Layer) -> int:
    """Counts multiplications and additions of one direction; the count is equal for all three directions."""
    positions = math.prod(tap_positions(*axis) for axis in _axes(layer))
    return 2 * layer.n * layer.c_in * (layer.c_out // layer.g) * positions


def moved_bytes(layer: Layer, direction: str, itemsize: int, layout: str) -> int:
    """Counts bytes that one direction must move if each tensor moves once.

    The gradients need only the elements of grad_output that some tap reaches, in whole sectors of memory.
    """
    input_elems, weight_elems = math.prod(layer.input_shape), math.prod(layer.weight_shape)
    if direction == "fwd":
        bias_elems = layer.c_out if layer.bias else 0
        return itemsize * (input_elems + weight_elems + bias_elems + math.prod(layer.output_shape))
    return itemsize * (input_elems + weight_elems) + _reached_bytes(layer, itemsize, layout)


def floor_us(layer: Layer, direction: str, precision: str, itemsize: int, layout: str, rates: Rates) -> float:
    move = moved_bytes(layer, direction, itemsize, layout) / rates.copy_bytes
    compute = useful_operations(layer) / rates.operations[precision]
    return 1e6 * max(move, compute)


def _axes(layer: Layer) -> list[tuple[int, int, int, int, int, int]]:
    return list(zip(layer.size, layer.output_size, layer.k, layer.s, layer.p, layer.d, strict=True))


def _reached(size_in: int, size_out: int, kernel: int, stride: int, padding: int, dilation: int) -> set[int]:
    """Returns the output coordinates of one axis that at least one tap reaches."""
    coordinates = (i * stride - padding + k * dilation for k in range(kernel) for i in range(size_in))
    return {o for o in coordinates if 0 <= o < size_out}


def _reached_bytes(layer: Layer, itemsize: int, layout: str) -> int:
    *others, columns = (_reached(*axis) for axis in _axes(layer))
    pixel_bytes = itemsize * layer.c_out if layout == "nhwc" else itemsize
    sectors = {
        sector
        for column in columns
        for sector in range(column * pixel_bytes // _SECTOR_BYTES, -(-(column + 1) * pixel_bytes // _SECTOR_BYTES))
    }
    planes = layer.n if layout == "nhwc" else layer.n * layer.c_out
    row_bytes = min(len(sectors) * _SECTOR_BYTES, layer.output_size[-1] * pixel_bytes)
    return planes * math.prod(map(len, others)) * row_bytes

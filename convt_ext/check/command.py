"""``python -m convt_ext check``: verifies the installation in seconds.

With a GPU: compares small problems in every precision and dtype with the definitions of reference.py, `exact` and
`aten` bit for bit. Without one: checks the binary, its planner and the CPU path, and reports what it did not check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch

import convt_ext
from convt_ext.bench.layers import Layer
from convt_ext.bench.operands import LAYOUTS, Operands, make_operands
from convt_ext.check import reference
from convt_ext.dispatch.precision import ERROR_LIMITS
from convt_ext.environment import _extension, _torch

# In this order: sizes that no tile divides; groups and gcd(stride, dilation) > 1; phases without a tap;
# output_padding >= stride; more channels than one tile stages.
PROBLEMS = (
    Layer("odd sizes", 2, 5, 7, 9, 11, (3, 3), (1, 1), bias=True),
    Layer("groups", 2, 8, 12, 6, 7, (3, 5), (2, 3), (1, 2), (1, 0), 4, (2, 3)),
    Layer("empty phases", 1, 4, 6, 5, 6, (3, 3), (5, 5), (1, 1), (0, 0), 1, (2, 2), bias=True),
    Layer("output_padding", 2, 3, 4, 4, 5, (2, 3), (1, 1), (0, 1), (1, 2), 1, (2, 3)),
    Layer("many channels", 1, 70, 66, 4, 4, (2, 2), (2, 2), bias=True),
)

_DEFINITIONS = {"exact": reference.forward_ieee, "aten": reference.forward_aten}


class Outcome(NamedTuple):
    name: str
    passed: bool
    detail: str


def run_check() -> int:
    """Prints one outcome per line; returns 0 if all passed, else 1. Kernels that cannot run here are not a failure."""
    on_gpu = convt_ext.is_available()
    failed = count = 0
    for outcome in (*check_binary(), *check_cpu_path(), *(check_kernels(torch.device("cuda")) if on_gpu else ())):
        count += 1
        failed += not outcome.passed
        print(f"{'ok    ' if outcome.passed else 'FAILED'}  {outcome.name}: {outcome.detail}")
    if not on_gpu:
        print(f"The kernels were not run: {_extension.unavailable_reason()}")
    result = f"{failed} of {count} checks failed" if failed else f"all {count} checks passed"
    print(result if on_gpu else f"{result}, and no kernel was checked")
    return 1 if failed else 0


def check_binary() -> Iterator[Outcome]:
    """Checks that the binary loads, has this package's version, and plans for an H200."""
    build = convt_ext.build_info()
    if build["cuda"] is None:
        yield Outcome("binary", False, build["reason"])
        return
    same = build["version"] == convt_ext.__version__
    yield Outcome("binary", same, f"version {build['version']}, package {convt_ext.__version__}")
    input, weight = torch.empty(8, 64, 64, 64, device="meta"), torch.empty(64, 64, 3, 3, device="meta")
    plan = convt_ext.explain(input, weight, precision="exact").plan
    yield Outcome("planner", plan is not None, f"{plan['plan']['kernel']} on an H200" if plan else "no plan")


def check_cpu_path() -> Iterator[Outcome]:
    """Checks that CPU tensors get PyTorch's result."""
    for layer in PROBLEMS:
        operands = make_operands(layer, torch.float32, torch.device("cpu"))
        arguments = operands.input, operands.weight, operands.bias
        ours, theirs = _ours(layer, operands, None), _torch.conv_transpose2d(*arguments, **layer.arguments)
        equal = torch.equal(ours, theirs)
        yield Outcome(f"CPU, {layer.name}", equal, "equal to PyTorch" if equal else "differs from PyTorch")


def check_kernels(device: torch.device) -> Iterator[Outcome]:
    """Checks every precision and dtype on the small problems, in both layouts."""
    for precision in ("exact", "aten", "tf32x3", "tf32"):
        yield _over_problems(f"float32 {precision}", torch.float32, precision, device)
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        yield _over_problems(f"{_word(dtype)} exact", dtype, "exact", device)


def _over_problems(name: str, dtype: torch.dtype, precision: str, device: torch.device) -> Outcome:
    exact = _DEFINITIONS.get(precision) if dtype is torch.float32 else None
    limit = ERROR_LIMITS.get(precision, ERROR_LIMITS[_word(dtype)])
    worst = 0.0
    for layer in PROBLEMS:
        operands = make_operands(layer, dtype, device)
        expected = _evaluate(reference.forward_float64, layer, operands)
        bits = None if exact is None else _evaluate(exact, layer, operands)
        for layout in LAYOUTS:
            try:
                result = _ours(layer, operands.in_layout(layout), precision)
                again = _ours(layer, operands.in_layout(layout), precision)
            except RuntimeError as failure:
                return Outcome(name, False, f"{layer.name}, {layout}: {failure}")
            if not torch.equal(result, again):
                return Outcome(name, False, f"{layer.name}, {layout}: a second run returns other bits")
            got = _numpy(result)
            if bits is not None and (differs := got.view(np.int32) != bits.view(np.int32)).any():
                index = tuple(int(i) for i in np.argwhere(differs)[0])
                detail = f"{layer.name}, {layout}: got {got[index]!r}, expected {bits[index]!r} at {index}"
                return Outcome(name, False, f"{detail} ({differs.sum()} of {got.size} differ)")
            error = float(np.linalg.norm(got - expected) / np.linalg.norm(expected))
            if not error <= limit:
                return Outcome(name, False, f"{layer.name}, {layout}: relative error {error:.1e}, allowed {limit:.0e}")
            worst = max(worst, error)
    promise = "every bit as documented, " if exact is not None else ""
    return Outcome(name, True, f"{promise}relative error {worst:.1e} (allowed {limit:.0e})")


def _ours(layer: Layer, operands: Operands, precision: str | None) -> torch.Tensor:
    backend = None if precision is None else "convt_ext"
    return convt_ext.conv_transpose2d(
        operands.input, operands.weight, operands.bias, **layer.arguments, precision=precision, backend=backend
    )


def _evaluate(definition: Callable[..., np.ndarray], layer: Layer, operands: Operands) -> np.ndarray:
    bias = None if operands.bias is None else _numpy(operands.bias)
    return definition(_numpy(operands.input), _numpy(operands.weight), bias, **layer.arguments)


def _numpy(tensor: torch.Tensor) -> np.ndarray:
    """Returns the exact values; numpy has no bfloat16, and float32 represents every float16 and bfloat16."""
    wide = tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()
    return wide.cpu().contiguous().numpy()


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")

"""Benchmarks the directions of a layer when a compiled program is loaded, before it runs.

Eager calls are benchmarked after some hundred calls (tuning/benchmark.py). A compiled program usually runs often, and a
CUDA graph keeps the choices of its first run. So the code of a program calls `choose` for each op of convt_ext when it
is loaded, also from a cache on disk; inductor.py writes these calls. Also called by choice.py for layers that train.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from .._torch import disable_current_modes
from ..auto_dispatch import AutoDispatch
from ..geometry import memory_format, output_size
from ..tuning.choices import FORWARD
from . import measure, traced_ops

Strided = tuple[Sequence[int], Sequence[int]]  # the sizes and strides of a tensor


def choose(
    directions: Sequence[int],
    input: Strided,
    weight: Strided,
    has_bias: bool,
    numbers: Sequence[int],
    dtype: torch.dtype,
    device: torch.device,
) -> None:
    """Makes the final choices for these directions if PyTorch's switches request benchmarks; else does nothing.

    Args:
        directions: numbers of choices.py.
        numbers: argument of `convt_ext::conv_transpose2d` (traced_ops.py).
    """
    if not measure.is_possible(device):
        return
    try:
        with torch.no_grad(), disable_current_modes():
            generator = torch.Generator(device).manual_seed(0)
            drawn = partial(measure.random_tensor, dtype=dtype, device=device, generator=generator)
            x, w = drawn(*input), drawn(*weight)
            size = output_size(x.shape, w.shape, *traced_ops.arguments_of(numbers))
            bias = drawn(size[1:2], (1,)) if has_bias else None
            chosen = traced_ops.directions_now(x, w, bias, numbers)
            if not isinstance(chosen, AutoDispatch):
                return
            grad_output = None
            if any(direction != FORWARD for direction in directions):
                channels_last = memory_format(traced_ops.result_format(x, w, numbers))
                grad_output = drawn(size, torch.empty(size, device="meta", memory_format=channels_last).stride())
            for direction in directions:
                chosen.choose_now(direction, x, w, bias, grad_output)
    except RuntimeError:  # usually out of memory: the cost model's choice then runs
        return

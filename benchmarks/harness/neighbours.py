"""The neighbour grid: some ordinary layers (bases), and layers that differ from a base in one argument (neighbours).

A kernel may be fast for the layers that it was written for, and slow for similar ones: one column less, another
padding, one channel more. The grid shows such cliffs. It is equal on every machine. The planner's tables and estimates
were not fitted to its layers. Called by command.py; independent of torch and a GPU.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable
from typing import Any

from convt_ext.bench.layers import Layer, select_layers


@dataclasses.dataclass(frozen=True)
class Neighbour(Layer):
    """A layer of the grid; its rows contain its base.

    Attributes:
        base: the name of its base; a base has its own name.
        change: the difference from the base, a key of `CHANGES`; None for a base.
    """

    base: str = ""
    change: str | None = None


# Kernels from 3 x 3 with stride 1 to 8 x 8 with stride 4, large and small images, few and many channels, one image or
# many. On an H200 each forward pass has a floor above 40 us, in TF32 and in half precision.
BASES: tuple[Layer, ...] = (
    Layer("up4", 32, 64, 64, 128, 128, (4, 4), (2, 2), (1, 1), bias=True),
    Layer("up3", 16, 128, 64, 112, 160, (3, 3), (2, 2), (1, 1), (1, 1), bias=True),
    Layer("up2", 16, 128, 64, 160, 160, (2, 2), (2, 2), bias=True),
    Layer("same3", 32, 64, 64, 160, 160, (3, 3), (1, 1), (1, 1), bias=True),
    Layer("wide8", 48, 64, 32, 64, 64, (8, 8), (4, 4), (2, 2)),
    Layer("few5", 16, 32, 16, 256, 256, (5, 5), (2, 2), (2, 2), (1, 1), bias=True),
    Layer("one_large4", 1, 64, 32, 768, 768, (4, 4), (2, 2), (1, 1)),
    Layer("one_deep3", 1, 768, 768, 80, 80, (3, 3), (1, 1), (1, 1), bias=True),
    Layer("small_deep4", 256, 256, 128, 16, 16, (4, 4), (2, 2), (1, 1)),
)


# Name of a change -> the changed argument of the base, and what is added to it. `batch` changes many images to one, or
# one to two; `bias` adds or removes a bias.
CHANGES: dict[str, tuple[str, Any]] = {
    "w-1": ("w", -1), "w+1": ("w", 1), "w-2": ("w", -2), "h-1": ("h", -1),
    "p-1": ("p", (-1, -1)), "p+1": ("p", (1, 1)), "pw+1": ("p", (0, 1)), "op-1": ("op", (-1, -1)),
    "op+1": ("op", (1, 1)), "k-1": ("k", (-1, -1)), "k+1": ("k", (1, 1)), "k+2": ("k", (2, 2)), "kw+1": ("k", (0, 1)),
    "s-1": ("s", (-1, -1)), "s+1": ("s", (1, 1)), "sw-1": ("s", (0, -1)), "d=2": ("d", (1, 1)), "g=2": ("g", 1),
    "g=4": ("g", 3), "c_in-1": ("c_in", -1), "c_out-1": ("c_out", -1), "c_out+1": ("c_out", 1), "batch": ("n", None),
    "bias": ("bias", None),
}  # fmt: skip


def is_legal(layer: Layer) -> bool:
    """Returns whether PyTorch accepts the arguments; the grid skips changes that it rejects."""
    return (
        min(layer.k) >= 1
        and min(layer.s) >= 1
        and min(*layer.p, *layer.op) >= 0
        and min(layer.output_size) >= 1
        and all(op < max(s, d) for op, s, d in zip(layer.op, layer.s, layer.d, strict=True))
        and layer.c_in % layer.g == layer.c_out % layer.g == 0
    )


def changed(base: Layer, change: str) -> Neighbour:
    """Returns a base with one argument changed, valid or not; its name is the base's, a slash and the change."""
    argument, step = CHANGES[change]
    value: Any = getattr(base, argument)
    if change == "batch":
        value = 1 if value > 1 else 2
    elif change == "bias":
        value = not value
    else:
        value = tuple(map(operator.add, value, step)) if isinstance(step, tuple) else value + step
    return Neighbour(**{**vars(base), argument: value, "name": f"{base.name}/{change}"}, base=base.name, change=change)


def grid() -> list[Neighbour]:
    """Returns each base, followed by its neighbours."""
    layers: list[Neighbour] = []
    for base in BASES:
        layers.append(Neighbour(**vars(base), base=base.name))
        layers += filter(is_legal, (changed(base, change) for change in CHANGES))
    return layers


def select_neighbours(patterns: Iterable[str]) -> list[Neighbour]:
    """Returns the layers of the grid that names and globs select, in grid order, always with their bases.

    Args:
        patterns: `up4` is a base with all its neighbours, `up4/w-1` one neighbour, `*/w-1` that neighbour of each base.

    Raises:
        ValueError: a pattern matches no layer of the grid.
    """
    layers = grid()
    named = {layer.name for layer in select_layers(layers, patterns)}
    bases = {name.partition("/")[0] for name in named}
    return [layer for layer in layers if not named.isdisjoint((layer.name, layer.base)) or layer.name in bases]

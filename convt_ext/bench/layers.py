"""The layers to measure: a built-in table, and CSV files with the same parameters.

Called by the benchmark and the demo. Independent of torch: a layer consists of numbers.
"""

from __future__ import annotations

import csv
import dataclasses
import fnmatch
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Sizes = tuple[int, ...]  # one number per axis: depth (volumes only), height (not in one dimension), width


@dataclasses.dataclass(frozen=True)
class Layer:
    """One transposed convolution: batch, channels, input size and PyTorch's parameters. `h` is 1 in one dimension."""

    name: str
    n: int
    c_in: int
    c_out: int
    h: int
    w: int
    k: Sizes
    s: Sizes
    p: Sizes = (0, 0)
    op: Sizes = (0, 0)
    g: int = 1
    d: Sizes = (1, 1)
    bias: bool = False
    depth: int = 1

    @property
    def dims(self) -> int:
        return len(self.k)

    @property
    def size(self) -> Sizes:
        """The input's size along each axis."""
        return (self.depth, self.h, self.w)[-self.dims :]

    @property
    def output_size(self) -> Sizes:
        """The output's size along each axis."""
        axes = zip(self.size, self.k, self.s, self.p, self.op, self.d, strict=True)
        return tuple((size - 1) * s - 2 * p + d * (k - 1) + op + 1 for size, k, s, p, op, d in axes)

    @property
    def input_shape(self) -> Sizes:
        return self.n, self.c_in, *self.size

    @property
    def weight_shape(self) -> Sizes:
        return self.c_in, self.c_out // self.g, *self.k

    @property
    def output_shape(self) -> Sizes:
        return self.n, self.c_out, *self.output_size

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the operator after input, weight and bias."""
        return {"stride": self.s, "padding": self.p, "output_padding": self.op, "groups": self.g, "dilation": self.d}

    def parameters(self) -> dict[str, Any]:
        """Returns the parameters as columns of a result row."""
        row = dataclasses.asdict(self)
        del row["name"]
        if self.dims < 3:
            del row["depth"]
        return {key: list(value) if isinstance(value, tuple) else value for key, value in row.items()}


# kb*: the seven 2-D transposed convolutions of KernelBench level 1; the others come from widely used networks.
BUILT_IN: tuple[Layer, ...] = (
    Layer("kb57", 8, 64, 64, 1024, 1024, (3, 3), (1, 1)),
    Layer("kb65", 8, 64, 64, 512, 512, (3, 7), (1, 1)),
    Layer("kb69", 64, 64, 128, 128, 256, (3, 5), (1, 1)),
    Layer("kb71", 8, 32, 32, 512, 1024, (3, 3), (1, 1)),
    Layer("kb75", 16, 32, 64, 128, 256, (3, 5), (2, 3), (1, 2), (0, 0), 4, (2, 1)),
    Layer("kb78", 8, 32, 32, 512, 1024, (3, 7), (1, 1), (1, 3)),
    Layer("kb81", 16, 32, 64, 64, 128, (3, 3), (5, 5), (1, 1), (0, 0), 1, (2, 2)),
    Layer("dcgan_512", 128, 512, 256, 4, 4, (4, 4), (2, 2), (1, 1)),
    Layer("dcgan_128", 128, 128, 64, 16, 16, (4, 4), (2, 2), (1, 1)),
    Layer("dcgan_rgb", 128, 64, 3, 32, 32, (4, 4), (2, 2), (1, 1)),
    Layer("unet_1024", 4, 1024, 512, 32, 32, (2, 2), (2, 2)),
    Layer("unet_128", 4, 128, 64, 256, 256, (2, 2), (2, 2)),
    Layer("sam_up1", 1, 256, 64, 64, 64, (2, 2), (2, 2)),
    Layer("maskrcnn", 512, 256, 256, 14, 14, (2, 2), (2, 2)),
    Layer("pose_256", 64, 256, 256, 32, 24, (4, 4), (2, 2), (1, 1)),
    Layer("pix2pix_up", 1, 1024, 256, 64, 64, (4, 4), (2, 2), (1, 1)),
    Layer("cyclegan_up", 1, 256, 128, 64, 64, (3, 3), (2, 2), (1, 1), (1, 1)),
    Layer("dpt_4x4", 1, 256, 256, 37, 37, (4, 4), (4, 4)),
    Layer("fsrcnn", 1, 56, 1, 360, 640, (9, 9), (3, 3), (4, 4), (2, 2)),
    Layer("dw_up", 16, 64, 64, 128, 128, (4, 4), (2, 2), (1, 1), (0, 0), 64),
    Layer("fcn8s", 4, 21, 21, 64, 64, (16, 16), (8, 8), (4, 4)),
)

KERNELBENCH: tuple[Layer, ...] = tuple(layer for layer in BUILT_IN if layer.name.startswith("kb"))


def select_layers(layers: Sequence[Layer], patterns: Iterable[str]) -> list[Layer]:
    """Returns the layers with a name that matches any pattern (``all``, a name or a glob), in table order.

    Raises:
        ValueError: a pattern matches no layer.
    """
    return select_named(layers, patterns, "layer")


def select_named(named: Sequence[Any], patterns: Iterable[str], kind: str) -> list[Any]:
    """Selects objects with a name as `select_layers` does; the error message contains `kind` and ``--<kind>s``."""
    chosen: set[str] = set()
    for pattern in patterns:
        matches = {one.name for one in named if pattern in ("all", one.name) or fnmatch.fnmatchcase(one.name, pattern)}
        if not matches:
            known = ", ".join(repr(one.name) if "," in one.name else one.name for one in named)
            raise ValueError(f"--{kind}s: no {kind} matches {pattern!r}; known {kind}s: {known}")
        chosen |= matches
    return [one for one in named if one.name in chosen]


def csv_columns(axes: str) -> tuple[str, ...]:
    """Returns the columns of a CSV file of layers.

    >>> csv_columns("w")
    ('source', 'N', 'Cin', 'Cout', 'kw', 'sw', 'pw', 'opw', 'groups', 'dw', 'W', 'bias')
    """
    before, after = ([name + axis for name in names for axis in axes] for names in (("k", "s", "p", "op"), "d"))
    return "source", "N", "Cin", "Cout", *before, "groups", *after, *axes.upper(), "bias"


CSV_COLUMNS = csv_columns("hw")


def read_csv(path: Path | str) -> list[Layer]:
    """Reads layers from a CSV file with the columns of ``csv_columns``; those of depth and height determine the axes.

    The name of a layer is its source; the second layer of one source gets the suffix ``/2``, and so on.

    Raises:
        ValueError: a missing column, or a field that is not an integer (with the line number).
    """
    layers: list[Layer] = []
    seen: Counter[str] = Counter()
    with open(path, newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        header = set(reader.fieldnames or ())
        axes = "".join(axis for axis in "dhw" if axis == "w" or header & {f"k{axis}", axis.upper()})
        columns = csv_columns(axes)
        missing = [column for column in columns if column not in header]
        if missing:
            raise ValueError(f"--csv: {path} has no column {', '.join(missing)}; expected {','.join(columns)}")
        for row in reader:
            source = row["source"]
            seen[source] += 1
            name = source if seen[source] == 1 else f"{source}/{seen[source]}"
            try:
                numbers = {column: int(row[column]) for column in columns[1:]}
                k, s, p, op, d = (tuple(numbers[of + axis] for axis in axes) for of in ("k", "s", "p", "op", "d"))
                n, c_in, c_out, h, w, groups, bias, depth = (
                    numbers.get(column, 1) for column in ("N", "Cin", "Cout", "H", "W", "groups", "bias", "D")
                )
                layers.append(Layer(name, n, c_in, c_out, h, w, k, s, p, op, groups, d, bool(bias), depth))
            except (TypeError, ValueError) as error:
                raise ValueError(f"--csv: {path} line {reader.line_num}: {error}") from error
    return layers

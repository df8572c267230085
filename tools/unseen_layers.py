"""Writes two sets of layers for the benchmark: unseen_validation.csv for validation, unseen_fitting.csv for fits.

    python tools/unseen_layers.py

Run by hand; the files in benchmarks/ are the same on every machine. Each set contains 40 network layers with another
batch and input size, and 30 random layers of typical sizes. The validation set measures the choice between convt_ext
and PyTorch's operator on held-out layers, so nothing may be fitted to it. The sets share neither layers nor the
network layers that these are derived from. Neither contains a layer of the lists in measured_layers(), from which the
planner's tables and estimates are derived.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

from convt_ext.bench.floors import useful_operations
from convt_ext.bench.layers import BUILT_IN, CSV_COLUMNS, Layer, read_csv

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
SETS = {"validation": 2401, "fitting": 2402}  # the seed of each set
OF_NETWORKS, RANDOM = 40, 30  # layers of each kind in a set
_SPLIT_SEED = 24  # assigns the network layers to the two sets

# Limits of a typical call, which needs about 5 us to 5 ms on an H200.
OPERATIONS = (1e7, 6e11)  # multiplications and additions
MOST_BYTES = 256 * 2**20  # input and output in float32

SIZES = (4, 512)  # height and width of an input
_BATCHES = (1, 1, 1, 1, 2, 2, 3, 4, 4, 6, 8, 8, 12, 16, 16, 24, 32, 32, 48, 64, 64, 96, 128)
_CHANNELS = (
    8, 16, 24, 32, 32, 40, 48, 56, 64, 64, 80, 96, 100, 128, 128, 160, 192, 256, 256, 320, 384, 512, 512, 768, 1024,
)  # fmt: skip
_COMMON = {"k4s2p1": (4, 2, 1, 0), "k2s2": (2, 2, 0, 0), "k3s2p1op1": (3, 2, 1, 1), "k3s1p1": (3, 1, 1, 0)}
_TRIES = 10_000  # maximum draws of one layer; most parents need a few


def problem(layer: Layer) -> tuple[object, ...]:
    """Returns the fields that identify a layer: all except name and bias."""
    fields = dataclasses.asdict(layer)
    return tuple(fields[name] for name in fields if name not in ("name", "bias"))


def shape(layer: Layer) -> tuple[object, ...]:
    """Returns channels and parameters, which do not depend on batch and input size."""
    return layer.c_in, layer.c_out, layer.k, layer.s, layer.p, layer.op, layer.g, layer.d


def measured_layers() -> list[Layer]:
    """Returns all layers of the lists that the planner's tables and estimates are derived from."""
    files = ("model_layers.csv", "depthwise_layers.csv")
    return [*BUILT_IN, *(layer for name in files for layer in read_csv(BENCHMARKS / name))]


def parents() -> dict[str, list[Layer]]:
    """Returns the network layers of each set, one of each shape. Omits KernelBench's layers, which have no network."""
    of_networks = [*read_csv(BENCHMARKS / "model_layers.csv"), *BUILT_IN]
    first: dict[tuple[object, ...], Layer] = {}
    for layer in of_networks:
        if not layer.name.startswith(("kb", "KernelBench")):
            first.setdefault(shape(layer), layer)
    dealt = list(first.values())
    Random(_SPLIT_SEED).shuffle(dealt)
    return {name: dealt[index :: len(SETS)] for index, name in enumerate(SETS)}


def is_ordinary(layer: Layer) -> bool:
    """Returns whether the layer's operations and bytes are within the limits of a typical call."""
    if min(layer.output_size) < 1:
        return False
    elements = layer.n * (layer.c_in * layer.h * layer.w + layer.c_out * layer.output_size[0] * layer.output_size[1])
    return 4 * elements <= MOST_BYTES and OPERATIONS[0] <= useful_operations(layer) <= OPERATIONS[1]


def _draw_size(draw: Random) -> tuple[int, int]:
    """Returns height and width, log-uniform in SIZES; at least two of three inputs are square."""
    low, high = SIZES
    height = round(low * (high / low) ** draw.random())
    if draw.random() < 2 / 3:
        return height, height
    return height, min(high, max(low, round(height * draw.choice((0.5, 0.75, 4 / 3, 16 / 9, 2.0)))))


def resized(parent: Layer, known: list[Layer], draw: Random) -> Layer:
    """Returns the parent with a batch and an input size that no known layer of its shape has."""
    relatives = [layer for layer in known if shape(layer) == shape(parent)]
    while True:
        n, (h, w) = draw.choice(_BATCHES), _draw_size(draw)
        if all(n != layer.n and (h, w) != (layer.h, layer.w) for layer in relatives):
            return dataclasses.replace(parent, n=n, h=h, w=w)


def random_layer(draw: Random) -> Layer:
    """Returns a random layer; common kinds are as frequent as in networks."""
    k, s, p, op, d = _draw_kernel(draw)
    c_in, c_out, groups = _draw_channels(draw)
    h, w = _draw_size(draw)
    return Layer("", draw.choice(_BATCHES), c_in, c_out, h, w, k, s, p, op, groups, d, bias=draw.random() < 0.5)


def _draw_kernel(draw: Random) -> tuple[tuple[int, int], ...]:
    """Returns kernel, stride, padding, output_padding and dilation, each as (height, width)."""
    word = draw.choices((*_COMMON, "other"), (22, 18, 15, 15, 30))[0]
    if word in _COMMON:
        k, s, p, op = ((number, number) for number in _COMMON[word])
        return k, s, p, op, (1, 1)
    vertical = _draw_axis(draw)
    horizontal = vertical if draw.random() < 0.7 else _draw_axis(draw)
    k, s, p, op, d = zip(vertical, horizontal, strict=True)
    return k, s, p, op, d


def _draw_axis(draw: Random) -> tuple[int, int, int, int, int]:
    k, s, d = draw.randint(2, 9), draw.choice((1, 2, 2, 3, 4)), draw.choice((1, 1, 1, 2))
    p = draw.choice((0, (d * (k - 1) + 1 - s) // 2, d * (k - 1) // 2))  # none; output = s * input; "same" for s = 1
    return k, s, max(p, 0), draw.choice((0, 0, draw.randrange(max(s, d)))), d


def _draw_channels(draw: Random) -> tuple[int, int, int]:
    """Returns input channels, output channels and groups."""
    groups = draw.choices((1, 2, 4, 8, 0), (76, 6, 6, 4, 8))[0]
    c_in = draw.choice(_CHANNELS)
    if groups == 0:
        return c_in, c_in, c_in  # depthwise
    kind = draw.choices(("half", "same", "any", "image"), (40, 25, 20, 15))[0]
    c_out = {"half": c_in // 2, "same": c_in, "any": draw.choice(_CHANNELS), "image": draw.choice((1, 3, 3, 4))}[kind]
    if kind == "image" and groups > 1:
        return c_in, c_out, 1
    if groups == 1 and draw.random() < 0.05:
        c_in = 3
    return c_in // groups * groups, c_out // groups * groups, groups


def layers_of(name: str) -> list[Layer]:
    """Returns the layers of one of the `SETS`."""
    draw, known = Random(SETS[name]), measured_layers()
    if name != "validation":
        known = [*known, *layers_of("validation")]
    chosen = list(_of_networks(parents()[name], known, draw))
    taken = {problem(layer) for layer in (*known, *chosen)}
    for number in range(RANDOM):
        layer = _first(lambda: random_layer(draw), lambda layer: is_ordinary(layer) and problem(layer) not in taken)
        assert layer is not None
        taken.add(problem(layer))
        chosen.append(dataclasses.replace(layer, name=f"random {name} {number + 1}"))
    return chosen


def _of_networks(of: list[Layer], known: list[Layer], draw: Random) -> Iterator[Layer]:
    """Yields layers of the parents in rotation until there are enough; skips a parent without a layer in the limits."""
    found = 0
    known = list(known)
    while True:
        for parent in of:
            layer = _first(partial(resized, parent, known, draw), is_ordinary)
            if layer is None:
                continue
            known.append(layer)
            found += 1
            yield dataclasses.replace(layer, name=f"{parent.name}, {layer.n} x {layer.h} x {layer.w}")
            if found == OF_NETWORKS:
                return


def _first(make: Callable[[], Layer], fits: Callable[[Layer], bool]) -> Layer | None:
    return next((layer for layer in (make() for _ in range(_TRIES)) if fits(layer)), None)


def csv_text(layers: list[Layer]) -> str:
    """Returns the layers in the benchmark's CSV format."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for layer in layers:
        numbers = (layer.n, layer.c_in, layer.c_out, *layer.k, *layer.s, *layer.p, *layer.op, layer.g, *layer.d)
        writer.writerow((layer.name, *numbers, layer.h, layer.w, int(layer.bias)))
    return text.getvalue()


def path_of(name: str) -> Path:
    return BENCHMARKS / f"unseen_{name}.csv"


def main() -> None:
    for name in SETS:
        path_of(name).write_text(csv_text(layers_of(name)), encoding="utf-8")
        print(f"wrote {path_of(name).relative_to(BENCHMARKS.parent)}")


if __name__ == "__main__":
    main()

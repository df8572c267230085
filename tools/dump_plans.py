"""Writes digests of the plans and launches of many problems, to verify that a change does not affect them.

    python tools/dump_plans.py write FILE [--random 5000] [--seed 0]
    python tools/dump_plans.py compare BEFORE AFTER
    python tools/dump_plans.py show NAME                        print a problem with its plans and launches

Run by hand; tests/launch imports it. Each line contains a problem's name, a digest of all candidates
with their estimates, and a digest of their launches: kernels, grids and the bytes of all arguments, including tensor
maps. The problems are network layers in all directions, layouts and classes for four GPUs, and random problems.
`compare` exits with 1 if a line differs. Needs a C++ compiler and CUDA's headers, but no GPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT / "tests"))

from plan import build  # noqa: E402
from plan import problems as of  # noqa: E402

from convt_ext.bench.layers import BUILT_IN, Layer, read_csv  # noqa: E402

# Compute capability, SMs, shared memory per block and per SM, MHz, GB/s.
DEVICES = {
    "h200": of.H200,
    "h100": [90, 132, 232448, 233472, 1890, 2933],
    "a100": of.DEVICES["a100"],
    "rtx4090": [89, 128, 101376, 102400, 2406, 882],
}
CLASSES = {
    "ieee": (of.FLOAT32, of.IEEE),
    "tf32": (of.FLOAT32, of.TF32),
    "tf32x3": (of.FLOAT32, of.TF32X3),
    "bf16": (of.BFLOAT16, 4),
    "f16": (of.FLOAT16, 4),
}
RANDOM_CLASSES = {
    **CLASSES,
    "aten": (of.FLOAT32, of.ATEN),
    "f64": (of.FLOAT64, of.IEEE),
    "ieee_bf16": (of.BFLOAT16, of.IEEE),
}
DIRECTIONS = {"forward": of.FORWARD, "grad_input": of.GRAD_INPUT, "grad_weight": of.GRAD_WEIGHT}


@dataclasses.dataclass(frozen=True)
class Asked:
    """A problem as the planner's module reads it; its operands begin `offset` bytes after an aligned address."""

    name: str
    problem: of.Problem
    device: list[int]
    offset: int = 0
    is_packed: bool = False


def problem_of(layer: Layer, word: str, channels_last: bool) -> of.Problem:
    """Returns the layer's forward pass in one of the CLASSES."""
    dtype, precision = CLASSES[word]
    return of.from_row(
        layer.n, layer.c_in, layer.c_out, (layer.h, layer.w), layer.k, layer.s, layer.p, layer.op, layer.g, layer.d,
        dtype=dtype, precision=precision, has_bias=layer.bias, channels_last=channels_last,
    )  # fmt: skip


def of_networks() -> Iterator[Asked]:
    files = (CHECKOUT / "benchmarks" / name for name in ("model_layers.csv", "depthwise_layers.csv"))
    for layer in [*BUILT_IN, *(layer for file in files for layer in read_csv(file))]:
        for word in CLASSES:
            for channels_last in (False, True):
                problem = problem_of(layer, word, channels_last)
                for direction, number in DIRECTIONS.items():
                    for device, numbers in DEVICES.items():
                        words = (layer.name, word, "nhwc" if channels_last else "nchw", direction, device)
                        yield Asked("/".join(words).replace(" ", "_"), {**problem, "direction": number}, numbers)


def random_problem(draw: Random, number: int, seed: int) -> Asked:
    """Returns a random problem of a layer's size, often with kernel = stride, sometimes with unaligned operands."""
    groups = draw.choice((1, 1, 1, 1, 2, 4, 32))
    channels = (1, 2, 3, 4, 5, 8, 16, 24, 32, 40, 64, 96, 128, 192, 256) if groups < 32 else (1, 1, 2)
    stride = draw.choice((1, 2, 2, 2, 3, 4, 8)), draw.choice((1, 2, 2, 2, 3, 4, 8))
    stride = stride if draw.random() < 0.3 else (stride[0], stride[0])
    kernel = stride if draw.random() < 0.4 else (draw.randint(1, 7), draw.randint(1, 7))
    kernel = kernel if draw.random() < 0.5 else (kernel[0], kernel[0])
    dilation = draw.choice((1, 1, 1, 1, 2))
    padding = tuple(draw.randint(0, min(2, (k - 1) * dilation)) for k in kernel)
    size = tuple(draw.choice((1, 3, 4, 7, 8, 14, 16, 20, 28, 32, 37, 40, 56, 64, 80, 128)) for _ in range(2))
    size = tuple(max(n, 4) for n in size)  # keeps the output non-empty for every padding
    word = draw.choice(sorted(RANDOM_CLASSES))
    dtype, precision = RANDOM_CLASSES[word]
    problem = of.from_row(
        draw.choice((1, 1, 2, 3, 8, 16)), groups * draw.choice(channels), groups * draw.choice(channels), size, kernel,
        stride, padding, 0, groups, dilation, dtype=dtype, precision=precision, has_bias=draw.random() < 0.5,
        channels_last=draw.random() < 0.4,
    )  # fmt: skip
    direction, device = draw.choice(sorted(DIRECTIONS)), draw.choice(sorted(DEVICES))
    offset = draw.choice((0, 0, 0, of.element_bytes(problem), 8))
    problem["direction"] = DIRECTIONS[direction]
    return Asked(f"random/{seed}/{number}", problem, DEVICES[device], offset, draw.random() < 0.2)


def asked(count: int, seed: int) -> Iterator[Asked]:
    yield from of_networks()
    draw = Random(seed)
    for number in range(count):
        yield random_problem(draw, number, seed)


def digest(text: object) -> str:
    return hashlib.sha256(repr(text).encode()).hexdigest()[:16]


def line_of(module, one: Asked) -> str:
    try:
        found = module.launches(one.problem, one.device, one.offset, one.is_packed)
    except ValueError as error:  # no kernel supports it
        return f"{one.name} {error}"
    return f"{one.name} {digest([head for head, *_ in found])} {digest([launched for _, launched, _ in found])}"


def show(module, one: Asked) -> None:
    print(one)
    for head, launched, _ in module.launches(one.problem, one.device, one.offset, one.is_packed):
        print(*head)
        for launch in [launched] if isinstance(launched, str) else launched:
            print("   ", *launch[:-1], *(digest(argument) for argument in launch[-1]))


def compare(before: Path, after: Path) -> int:
    """Prints and counts the lines that differ: in plans, in launches, or because one file lacks them."""
    old, new = (dict(line.split(" ", 1) for line in path.read_text().splitlines()) for path in (before, after))
    kinds: Counter[str] = Counter()
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) == new.get(name):
            continue
        first, second = (side.get(name, "").split(" ")[0] for side in (old, new))
        same = "launches of the same plans" if first == second else "plans"
        kind = same if name in old and name in new else "in one file alone"
        kinds[kind] += 1
        if kinds[kind] <= 10:
            print(f"{kind}: {name}")
    print(f"{len(old)} problems before, {len(new)} after, {sum(kinds.values())} differ: {dict(kinds)}")
    return sum(kinds.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("verb", choices=("write", "compare", "show"))
    parser.add_argument("words", nargs="+")
    options = parser.parse_args()
    if options.verb == "compare":
        raise SystemExit(compare(*map(Path, options.words)) > 0)
    module = build.load("_launches")
    problems = asked(options.random, options.seed)
    if options.verb == "show":
        show(module, next(one for one in problems if one.name == options.words[0]))
    else:
        Path(options.words[0]).write_text("".join(f"{line_of(module, one)}\n" for one in problems))


if __name__ == "__main__":
    main()

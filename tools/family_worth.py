"""Measures what each engine is worth: how much slower calls are without its kernel families.

    python tools/family_worth.py measure OUT.jsonl --csv FILE [--precisions tf32,bf16] [--part I/N]   needs a GPU
    python tools/family_worth.py table network=ROWS.jsonl network=MORE.jsonl grouped=… depthwise=… audio=…

Run by hand. `measure` times, for each call, the candidates with the shortest estimates of each family whose estimate
is competitive, and PyTorch's operator: cold caches, random data, random order. It writes a line of JSON per call.
`table` compares each call's fastest family with the fastest of the others, writes docs/families.md, and prints it with
the families. Judge engines by fitting lists, never by validation lists.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from convt_ext.bench.layers import Layer, read_csv
from convt_ext.bench.operands import LAYOUTS, make_operands
from convt_ext.bench.timing import CudaTimer

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from raw_ops import TENSOR_CORE_CLASSES, Call, GradientCall  # noqa: E402

CLASSES = {**{name: TENSOR_CORE_CLASSES[name] for name in ("tf32", "bf16", "tf32x3")}, "ieee": (torch.float32, "ieee")}
DEFAULT, EXACT = ("tf32", "bf16"), ("ieee", "tf32x3")  # PyTorch's operator is an alternative in the first ones only

OF_FAMILY = 2  # number of candidates to time per family, those with the shortest estimates
NEAR, LEAST_FAMILIES = 3.0, 3  # families to time: all within NEAR of the best estimate, and at least the best three
LONGEST_US = 20_000.0  # skip families with longer estimates
REPETITIONS = 5

SHARES = {"network": 0.55, "grouped": 0.15, "depthwise": 0.15, "audio": 0.15}  # of the lists in the price
# An engine stays if it earns one of these: percent of default calls per 1,000 lines, or percent of exact calls.
LEAST_PRICE, LEAST_EXACT = 0.30, 1.0

Row = dict[str, Any]

_HEAD = """# What each engine is worth

How many percent longer calls take without an engine, on one H200: geometric means over calls of the fitting lists of
`benchmarks/`, in both layouts and all directions, with the number of calls in parentheses. Network is model_layers.csv
and unseen_fitting.csv, audio one-dimensional layers. Default calls are TF32 and bfloat16, with PyTorch's operator as an
alternative. Exact calls are `ieee` and `tf32x3`. An engine stays if it earns {price:.2f} % of default calls per 1,000
lines (price), or {exact:.0f} % of exact calls. The price weighs the lists by
{shares}. `portable` is for other GPUs.
Written by `tools/family_worth.py`.
"""


def worth_timing(plans: list[Row]) -> dict[str, list[int]]:
    """Returns the indices of the candidates to time, for each family with a competitive estimate."""
    of_family: dict[str, list[int]] = defaultdict(list)
    for index in sorted(range(len(plans)), key=lambda index: plans[index]["estimate_us"]):
        of_family[plans[index]["family"]].append(index)
    best = [(plans[indices[0]]["estimate_us"], family) for family, indices in of_family.items()]
    return {
        family: of_family[family][:OF_FAMILY]
        for place, (us, family) in enumerate(sorted(best))
        if us <= LONGEST_US and (place < LEAST_FAMILIES or us <= NEAR * min(best)[0])
    }


def calls_of(layer: Layer, name: str) -> Iterator[tuple[Row, Call | GradientCall]]:
    """Yields each direction of a layer with all tensors in each layout, and the columns that identify it."""
    dtype, precision = CLASSES[name]
    operands = make_operands(layer, dtype, torch.device("cuda"), gradients=True)
    for layout in LAYOUTS:
        of, last = operands.in_layout(layout), layout == "nhwc"
        assert of.grad_output is not None
        forward = Call(of.input, of.weight, of.bias, **layer.arguments, precision=precision, channels_last=last)
        row = {"layer": layer.name, "precision": name, "layout": layout}
        yield row | {"direction": "forward"}, forward
        for direction, other in (("grad_input", of.weight), ("grad_weight", of.input)):
            yield row | {"direction": direction}, GradientCall(direction, of.grad_output, other, forward, last)


def measure(options: argparse.Namespace) -> None:
    part, parts = (int(number) for number in options.part.split("/"))
    layers = list({str(layer.parameters()): layer for layer in read_csv(options.csv)}.values())[part - 1 :: parts]
    timer = CudaTimer(torch.device("cuda"))
    torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = True
    with options.out.open("w") as out:
        for layer, name in itertools.product(layers, options.precisions.split(",")):
            for row, call in calls_of(layer, name):
                chosen = worth_timing(call.candidates())
                runs = [(family, partial(call.run, index)) for family, indices in chosen.items() for index in indices]
                runs += [("torch", call.torch)] if name in DEFAULT else []
                times: dict[str, float] = {}
                for family, run in random.sample(runs, len(runs)):
                    run()  # loads the kernel
                    us = timer.median_us(run, REPETITIONS)
                    times[family] = min(us, times.get(family, us))
                print(json.dumps(row | {"us": times}), file=out, flush=True)


def loss(rows: Collection[Row], families: Collection[str]) -> float:
    """Returns how many percent longer the calls take without these families, as a geometric mean.

    Calls that no other family computes do not count.

    >>> rows = [{"us": {"flat": 10.0, "nhwc": 12.1}}, {"us": {"nhwc": 9.0, "flat": 11.0}}, {"us": {"flat": 1.0}}]
    >>> round(loss(rows, ["flat"]), 6)
    10.0
    """
    factors = []
    for row in rows:
        others = [us for family, us in row["us"].items() if family not in families]
        if others:
            factors.append(max(1.0, min(others) / min(row["us"].values())))
    return 100 * (statistics.geometric_mean(factors) - 1) if factors else 0.0


def engines() -> Iterator[tuple[str, int, list[str]]]:
    """Yields the folders of kernels/ that define families, with the number of their lines and the families."""
    for folder in sorted(path for path in (ROOT / "kernels").iterdir() if path.is_dir()):
        texts = {path: path.read_text() for path in folder.rglob("*") if path.is_file() and path.suffix != ".md"}
        of_folder = "\n".join(texts[path] for path in sorted(folder.glob("*.cpp")))
        families = re.findall(r"^void add_(\w+)_plans\(", of_folder, re.MULTILINE)
        if families:
            yield folder.name, sum(len(text.splitlines()) for text in texts.values()), families


def table_text(lists: dict[str, list[Row]], with_families: bool) -> str:
    """Returns docs/families.md for the measured rows of each list, or the same with rows for families."""
    default = {name: [row for row in rows if row["precision"] in DEFAULT] for name, rows in lists.items()}
    exact = [row for rows in lists.values() for row in rows if row["precision"] in EXACT]
    shares = ", ".join(f"{share} ({name})" for name, share in SHARES.items())
    lines = [
        _HEAD.format(price=LEAST_PRICE, exact=LEAST_EXACT, shares=shares),
        f"| engine | lines | {' | '.join(f'{name} ({len(rows)})' for name, rows in default.items())} | "
        f"exact ({len(exact)}) | price |",
        "|---|---|" + "---|" * (len(default) + 2),
    ]
    measured = {family for rows in lists.values() for row in rows for family in row["us"]}
    rows = []
    for folder, num_lines, defined in engines():
        families = [family for family in defined if family in measured]
        of_lists = {name: loss(calls, families) for name, calls in default.items()}
        price = sum(share * of_lists.get(name, 0.0) for name, share in SHARES.items()) / num_lines * 1000
        numbers = " | ".join(f"{value:.2f}" for value in (*of_lists.values(), loss(exact, families), price))
        rows.append((price, f"| `{folder}` | {num_lines} | {numbers} |"))
        for family in families if with_families and len(families) > 1 else ():
            numbers = " | ".join(f"{loss(calls, [family]):.2f}" for calls in (*default.values(), exact))
            rows.append((price - 1e-9, f"| – `{family}` | | {numbers} | |"))
    lines += [text for _, text in sorted(rows, key=lambda row: -row[0])]
    return "\n".join(lines) + "\n"


def table(options: argparse.Namespace) -> None:
    lists: dict[str, list[Row]] = defaultdict(list)
    for name, path in (argument.split("=", 1) for argument in options.lists):
        lists[name] += [json.loads(line) for line in Path(path).read_text().splitlines()]
    (ROOT / "docs/families.md").write_text(table_text(lists, with_families=False))
    print(table_text(lists, with_families=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    measuring = commands.add_parser("measure", help="time the families")
    measuring.set_defaults(run=measure)
    measuring.add_argument("out", type=Path)
    measuring.add_argument("--csv", type=Path, required=True, help="the layers (benchmarks/README.md)")
    measuring.add_argument("--precisions", default=",".join(CLASSES))
    measuring.add_argument("--part", default="1/1", help="I/N: every N-th layer from the I-th")
    showing = commands.add_parser("table", help="write docs/families.md")
    showing.set_defaults(run=table)
    showing.add_argument("lists", nargs="+", metavar="LIST=ROWS.jsonl")
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()

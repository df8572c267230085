"""Measures how much slower calls are without each kernel family.

    python tools/family_worth.py measure OUT.jsonl [--csv FILE] [--neighbours] [--part I/N]   needs a GPU
    python tools/family_worth.py estimate OUT.jsonl [--csv FILE] [--neighbours] [--part I/N]
    python tools/family_worth.py table ROWS.jsonl ...

Run by hand. `measure` times the candidates with the shortest estimates of each family whose estimate is competitive:
cold caches, random data, random order. It writes a line of JSON per call. `estimate` writes the planner's estimates for
an H200 in this format; use them only to select what to measure. --neighbours adds each layer with another batch and
size. `table` compares each call's fastest family with the fastest of the others.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import dump_plans
import torch
from layer_calls import add_options, each_call, layers_in_classes, layers_of, row_of
from plan import build

from convt_ext.bench.layers import Layer
from convt_ext.bench.operands import LAYOUTS
from convt_ext.bench.timing import CudaTimer

Plan = dict[str, Any]

OF_FAMILY = 2  # number of candidates to time per family, those with the shortest estimates
NEAR, LEAST_FAMILIES = 3.0, 3  # families to time: all within NEAR of the best estimate, and at least the best three
LONGEST_US = 20_000.0  # skip families with longer estimates
REPETITIONS = 5
SEED = 23


def neighbour(layer: Layer) -> Layer:
    """Returns the layer with another batch and size of about equal cost; the result is the same on every machine."""
    draw = random.Random(f"{SEED} {layer}")
    batch = max(1, layer.n * draw.choice((1, 2, 3)) // draw.choice((1, 2, 4)))
    scale = math.sqrt(layer.n / batch)
    h, w = (max(1, round(size * scale) + draw.randint(-3, 3)) for size in (layer.h, layer.w))
    return dataclasses.replace(layer, name=f"{layer.name} ({batch} x {h} x {w})", n=batch, h=h, w=w)


def worth_timing(plans: list[Plan]) -> dict[str, list[int]]:
    """Returns the indices of the candidates to time, for each family with a competitive estimate."""
    of_family: dict[str, list[int]] = defaultdict(list)
    for index in sorted(range(len(plans)), key=lambda index: plans[index]["estimate_us"]):
        of_family[plans[index]["family"]].append(index)
    best = [(plans[indices[0]]["estimate_us"], family) for family, indices in of_family.items()]
    near = [
        family
        for place, (us, family) in enumerate(sorted(best))
        if us <= LONGEST_US and (place < LEAST_FAMILIES or us <= NEAR * min(best)[0])
    ]
    return {family: of_family[family][:OF_FAMILY] for family in near}


def chosen_layers(options: argparse.Namespace) -> list[Layer]:
    layers = layers_of(options)
    return layers + [neighbour(layer) for layer in layers] if options.neighbours else layers


def measure(options: argparse.Namespace) -> None:
    layers = chosen_layers(options)
    timer = CudaTimer(torch.device("cuda"))
    with options.out.open("w") as out:
        for _, row, call in each_call(layers, options):
            chosen = worth_timing(call.candidates())
            runs = [(family, index) for family, indices in chosen.items() for index in indices]
            times: dict[str, float] = {}
            for family, index in random.sample(runs, len(runs)):
                call.run(index)  # loads the kernel
                us = timer.median_us(partial(call.run, index), REPETITIONS)
                times[family] = min(us, times.get(family, us))
            print(json.dumps(row | {"us": times}), file=out, flush=True)


def estimate(options: argparse.Namespace) -> None:
    module = build.load("_plan")
    calls = itertools.product(layers_in_classes(chosen_layers(options), options), LAYOUTS, dump_plans.DIRECTIONS)
    with options.out.open("w") as out:
        for (layer, name), layout, direction in calls:
            problem = dump_plans.problem_of(layer, name, layout == "nhwc")
            problem["direction"] = dump_plans.DIRECTIONS[direction]
            times: dict[str, float] = {}
            for plan in module.candidates(problem, dump_plans.DEVICES["h200"]):
                times[plan["family"]] = min(plan["estimate_us"], times.get(plan["family"], math.inf))
            print(json.dumps(row_of(layer, name, layout, direction) | {"us": times}), file=out)


def without(us: dict[str, float], families: Iterable[str]) -> float:
    """Returns the slowdown of the call without these families: 1 if another family is as fast.

    >>> without({"flat": 10.0, "nhwc": 12.0}, ["flat"])
    1.2
    """
    others = [time for family, time in us.items() if family not in families]
    return max(1.0, min(others) / min(us.values())) if others else math.inf


def worth(rows: list[dict[str, Any]], family: str) -> tuple[int, float, float, str]:
    """Returns how many calls the family is fastest in, the mean and the largest slowdown without it, and that call."""
    lost = [(without(row["us"], [family]), row) for row in rows]
    finite = [factor for factor, _ in lost if factor < math.inf]
    most, worst = max(lost, key=lambda pair: pair[0])
    name = f"{worst['layer']}, {worst['direction']}, {worst['precision']}, {worst['layout']}"
    return sum(factor > 1 for factor, _ in lost), statistics.geometric_mean(finite) - 1, most - 1, name


def table(options: argparse.Namespace) -> None:
    rows = [json.loads(line) for path in options.measured for line in path.read_text().splitlines()]
    rows = [row for row in rows if row["us"]]
    families = sorted({family for row in rows for family in row["us"]})
    print(f"{len(rows)} calls\n")
    print("| family | fastest in calls | mean loss | largest loss | call of the largest loss |\n|---|---|---|---|---|")
    for family in sorted(families, key=lambda one: -worth(rows, one)[1]):
        calls, mean, most, name = worth(rows, family)
        print(f"| {family} | {calls} | {100 * mean:.2f} % | {100 * most:.0f} % | {name} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for word, run, says in (("measure", measure, "time the families"), ("estimate", estimate, "write estimates")):
        asking = commands.add_parser(word, help=says)
        asking.set_defaults(run=run)
        add_options(asking)
        asking.add_argument("--neighbours", action="store_true", help="add each layer with another batch and size")
    showing = commands.add_parser("table", help="print the table")
    showing.set_defaults(run=table)
    showing.add_argument("measured", type=Path, nargs="+")
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()

"""What each kernel family is worth: how much longer calls take without it.

    python tools/family_worth.py measure OUT.jsonl [--csv FILE] [--neighbours] [--part I/N]   needs a GPU
    python tools/family_worth.py estimate OUT.jsonl [--csv FILE] [--neighbours] [--part I/N]
    python tools/family_worth.py table ROWS.jsonl ...

Measuring times, of every family that has a candidate, those with the shortest estimates: cold caches, random data,
random order; a line of JSON a call. Estimating writes such lines of what the planner estimates for an H200: it says
where to measure, not what a family is worth. With --neighbours every layer comes a second time, with another batch and
size. The table compares each call's fastest family with the fastest of the others.
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

OF_FAMILY = 2  # candidates of a family that are timed, by their estimates
NEAR, LEAST_FAMILIES = 3.0, 3  # families that are timed: by their best estimate, and however long it is
LONGEST_US = 20_000.0  # of an estimate
REPETITIONS = 5
SEED = 23


def neighbour(layer: Layer) -> Layer:
    """The same layer with another batch and size, about as large; the same one on every machine."""
    draw = random.Random(f"{SEED} {layer}")
    batch = max(1, layer.n * draw.choice((1, 2, 3)) // draw.choice((1, 2, 4)))
    scale = math.sqrt(layer.n / batch)
    h, w = (max(1, round(size * scale) + draw.randint(-3, 3)) for size in (layer.h, layer.w))
    return dataclasses.replace(layer, name=f"{layer.name} ({batch} x {h} x {w})", n=batch, h=h, w=w)


def worth_timing(plans: list[Plan]) -> dict[str, list[int]]:
    """Numbers of candidates by family: the first of each, and of the families that are not estimated to be far off."""
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
    """By how much longer the call takes without these families: 1 where another one is as fast, else more.

    >>> without({"flat": 10.0, "nhwc": 12.0}, ["flat"])
    1.2
    """
    others = [time for family, time in us.items() if family not in families]
    return max(1.0, min(others) / min(us.values())) if others else math.inf


def worth(rows: list[dict[str, Any]], family: str) -> tuple[int, float, float, str]:
    """Calls it is the fastest of, what all calls lose without it, and what the worst one loses, with its name."""
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
    print("| family | calls | all calls lose | the worst call loses | which is |\n|---|---|---|---|---|")
    for family in sorted(families, key=lambda one: -worth(rows, one)[1]):
        calls, mean, most, name = worth(rows, family)
        print(f"| {family} | {calls} | {100 * mean:.2f} % | {100 * most:.0f} % | {name} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for word, run, says in (("measure", measure, "time the families"), ("estimate", estimate, "ask the planner")):
        asking = commands.add_parser(word, help=says)
        asking.set_defaults(run=run)
        add_options(asking)
        asking.add_argument("--neighbours", action="store_true", help="and each with another batch and size")
    showing = commands.add_parser("table", help="print the table")
    showing.set_defaults(run=table)
    showing.add_argument("measured", type=Path, nargs="+")
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()

"""Measures the planner's candidates for layers of networks, and writes the table of plans that its estimates miss.

    python tools/measure_plans.py survey OUT.jsonl [--csv FILE] [--precisions LIST] [--part I/N]   needs an H200
    python tools/measure_plans.py table SURVEY.jsonl ...

A survey times what the estimates think best, cold caches, random data, in random order: a line of JSON a call. The
table, kernels/tuning/h200_plans.csv, gets the calls of which another plan is faster by LEAST_GAIN and in every round.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from convt_ext.bench.layers import BUILT_IN, Layer, read_csv
from convt_ext.bench.operands import LAYOUTS, make_operands
from convt_ext.bench.timing import CudaTimer

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from plan_tables import PLAN_COLUMNS, Plan, knobs_of, problem_cells, problem_of, tile_of, write_table
from raw_ops import TENSOR_CORE_CLASSES, Call, GradientCall

LEAST_GAIN = 1.05
LONGEST_US = 2500.0  # of estimates in the exact classes, where a layer of many terms takes seconds
NEAR, MOST = 3.0, 100  # candidates worth a look: by their estimates, and in all
CLOSE, FINALISTS, ROUNDS = 1.25, 12, 3  # of these: by a short measurement, and how often they are measured again

CLASSES = {**{name: TENSOR_CORE_CLASSES[name] for name in ("tf32", "bf16", "tf32x3")}, "ieee": (torch.float32, "ieee")}


def addressable(plans: list[Plan]) -> list[int]:
    """The first of those that are the same in all that a row can say."""
    first: dict[str, int] = {}
    for index, plan in enumerate(plans):
        first.setdefault(str((plan["kernel"], tile_of(plan))), index)
    return list(first.values())


def worth_measuring(plans: list[Plan], unaided: int) -> list[int]:
    """The unaided choice, and others that are not estimated to be much slower."""
    most = NEAR * plans[unaided]["estimate_us"] + 4
    others = [index for index in addressable(plans) if index != unaided and plans[index]["estimate_us"] <= most]
    return [unaided, *sorted(others, key=lambda index: plans[index]["estimate_us"])][:MOST]


def measure(call: Call | GradientCall, timer: CudaTimer) -> list[dict[str, Any]]:
    """Plans and their times in each round, the unaided choice first."""
    plans = call.candidates()
    unaided = min((i for i, plan in enumerate(plans) if not plan["measured"]), key=lambda i: plans[i]["estimate_us"])
    if plans[unaided]["served_precision"] == "ieee" and plans[unaided]["estimate_us"] > LONGEST_US:
        return []
    indices = worth_measuring(plans, unaided)
    for index in random.sample(indices, len(indices)):
        call.run(index)  # loads the kernel
    first = {index: timer.median_us(partial(call.run, index), 4) for index in indices}
    close = [index for index in sorted(first, key=first.__getitem__) if first[index] <= CLOSE * min(first.values()) + 1]
    times: dict[int, list[float]] = {index: [] for index in (unaided, *close[:FINALISTS])}
    for _ in range(ROUNDS):
        for index in random.sample(list(times), len(times)):
            times[index].append(timer.median_us(partial(call.run, index), 9))
    return [{"plan": plans[index], "knobs": knobs_of(plans[index], plans), "us": us} for index, us in times.items()]


def calls_of(layer: Layer, name: str) -> Iterator[tuple[str, str, Call | GradientCall]]:
    """Layout, direction and call, of all tensors in that layout."""
    dtype, precision = CLASSES[name]
    operands = make_operands(layer, dtype, torch.device("cuda"), gradients=True)
    for layout in LAYOUTS:
        of, channels_last = operands.in_layout(layout), layout == "nhwc"
        assert of.grad_output is not None
        call = Call(of.input, of.weight, of.bias, **layer.arguments, precision=precision, channels_last=channels_last)
        yield layout, "forward", call
        for direction, other in (("grad_input", of.weight), ("grad_weight", of.input)):
            yield layout, direction, GradientCall(direction, of.grad_output, other, call, channels_last)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What a tool that times calls is told of them, and where its rows go."""
    parser.add_argument("out", type=Path)
    parser.add_argument("--csv", type=Path, help="layers besides the built-in ones")
    parser.add_argument("--precisions", default=",".join(CLASSES))
    parser.add_argument("--part", default="1/1", help="I/N: every N-th layer from the I-th")


def layers_of(options: argparse.Namespace) -> list[Layer]:
    """The layers of the CSV file and the built-in ones, each problem once."""
    layers = (*(read_csv(options.csv) if options.csv else ()), *BUILT_IN)
    return list({str(problem_of(layer)): layer for layer in layers}.values())


def each_call(layers: list[Layer], options: argparse.Namespace) -> Iterator[tuple[Layer, dict[str, Any], Any]]:
    """Layer, what a row says of a call, and the call; of the part and the classes that the options name."""
    part, parts = (int(number) for number in options.part.split("/"))
    for layer in layers[part - 1 :: parts]:
        for name in options.precisions.split(","):
            for layout, direction, call in calls_of(layer, name):
                yield layer, {"layer": layer.name, "precision": name, "layout": layout, "direction": direction}, call


def survey(options: argparse.Namespace) -> None:
    timer = CudaTimer(torch.device("cuda"))
    with options.out.open("w") as out:
        for layer, row, call in each_call(layers_of(options), options):
            row |= {"problem": problem_of(layer), "candidates": measure(call, timer)}
            print(json.dumps(row), file=out, flush=True)


def cells_of(row: dict[str, Any]) -> tuple[str, ...] | None:
    """A row of the table, or None where the unaided choice will do."""
    # The plan decides the bits of the gradient of the weight, which in `ieee` are the same on every GPU.
    of_every_gpu = row["precision"] == "ieee" and row["direction"] == "grad_weight"
    if of_every_gpu or not row["candidates"]:
        return None
    unaided, best = row["candidates"][0], min(row["candidates"], key=lambda one: statistics.median(one["us"]))
    us, instead = statistics.median(best["us"]), statistics.median(unaided["us"])
    if instead < LEAST_GAIN * us or max(best["us"]) >= min(unaided["us"]):
        return None
    problem = problem_cells(row["direction"], row["precision"], row["layout"], row["problem"])
    return *problem, best["plan"]["kernel"], best["knobs"], f"{us:.1f}", f"{instead:.1f}"


def table(options: argparse.Namespace) -> None:
    rows = (json.loads(line) for path in options.surveys for line in path.read_text().splitlines())
    write_table("h200_plans", PLAN_COLUMNS, (cells for cells in map(cells_of, rows) if cells is not None))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    measuring = commands.add_parser("survey", help="time the candidates")
    measuring.set_defaults(run=survey)
    add_options(measuring)
    writing = commands.add_parser("table", help="write kernels/tuning/h200_plans.csv")
    writing.set_defaults(run=table)
    writing.add_argument("surveys", type=Path, nargs="+")
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()

"""What tools/measure_plans.py and tools/measured_torch.py share: the tables in kernels/tuning, what tells a plan."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

from convt_ext.bench.layers import Layer

TABLES = Path(__file__).resolve().parents[1] / "kernels" / "tuning"
BEGIN, END = 'R"csv(', ')csv"'  # a table is a C++ string: kernels/plan/measured.cpp includes it
PROBLEM_COLUMNS = (
    "direction", "precision", "layout", "batch c_in c_out groups",
    "h: in out kernel stride padding dilation", "w: in out kernel stride padding dilation",
)  # fmt: skip
PLAN_COLUMNS = (*PROBLEM_COLUMNS, "kernel", "knobs", "measured_us", "instead_us")
TORCH_COLUMNS = (*PROBLEM_COLUMNS, "torch_us")

DIRECTIONS = ("forward", "grad_input", "grad_weight")
PRECISIONS = ("ieee", "aten", "tf32x3", "tf32", "half")
LAYOUTS = ("nchw", "nhwc")
CLASSES = {"tf32": "tf32", "bf16": "half", "tf32x3": "tf32x3", "ieee": "ieee"}  # what the tools call them: in a table

# Fields of tiles that follow from others, from the GPU or from bank conflicts: with a layout of shared memory they
# change. A row names one where nothing else tells two plans apart. `threads` are a choice of the simt engine.
DERIVED = frozenset(
    ("threads", "num_tiles", "num_chunks", "k_steps", "window", "slots", "source_slots", "weight_slots", "slot_taps",
     "resident", "units_per_chunk", "tiles_per_chunk", "padding", "x_padding", "gy_padding", "pixel_order",
     "taps_first", "interleaved", "blocks_per_pass", "blocks_per_group", "order")
)  # fmt: skip

Plan = dict[str, Any]


def problem_of(layer: Layer) -> list[list[int]]:
    """Sizes and axes as rows have them."""
    axes = zip((layer.h, layer.w), layer.output_size, layer.k, layer.s, layer.p, layer.d, strict=True)
    return [[layer.n, layer.c_in, layer.c_out, layer.g], *(list(axis) for axis in axes)]


def problem_cells(direction: str, name: str, layout: str, problem: list[list[int]]) -> tuple[str, ...]:
    """What rows say of a call of the class that the tools call so."""
    return direction, CLASSES[name], layout, *(" ".join(map(str, numbers)) for numbers in problem)


def order_of(cells: Iterable[str]) -> tuple[Any, ...]:
    """The order of rows in a table: that of the planner's numbers for what the first columns say."""
    direction, precision, layout, *numbers = list(cells)[: len(PROBLEM_COLUMNS)]
    places = DIRECTIONS.index(direction), PRECISIONS.index(precision), LAYOUTS.index(layout)
    return *places, *(int(number) for group in numbers for number in group.split(" "))


def tile_of(plan: Plan) -> Plan:
    """What was chosen for a plan beside its kernel, and what follows from that: its threads, then its tile."""
    names = list(plan)
    return {name: plan[name] for name in names[names.index("threads") : names.index("shared_bytes")]}


def telling(tile: Plan, others: list[Plan]) -> tuple[str, ...]:
    """The fewest fields of a tile that no other one has all the same values of: as few derived ones as can be."""
    names = [name for name in tile if any(other[name] != tile[name] for other in others)]
    chosen, derived = (sorted({*names} & kind, key=names.index) for kind in ({*names} - DERIVED, DERIVED))
    for num_derived in range(len(derived) + 1):
        for num_chosen in range(len(chosen) + 1):
            for more in combinations(derived, num_derived):
                for few in combinations(chosen, num_chosen):
                    if all(any(other[name] != tile[name] for name in (*few, *more)) for other in others):
                        return *few, *more
    raise AssertionError("a tile differs from other ones in some field")


def written(value: Any) -> str:
    """A field's value as a row has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def knobs_of(plan: Plan, plans: list[Plan]) -> str:
    """What tells a plan from the other ones of its kernel, as a row has it: "tile_h=8 staged=true"."""
    tile = tile_of(plan)
    others = [tile_of(other) for other in plans if other["kernel"] == plan["kernel"]]
    names = telling(tile, [other for other in others if other != tile])
    return " ".join(f"{name}={written(tile[name])}" for name in names)


def write_table(name: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """kernels/tuning/{name}.csv; of rows of one problem the last one counts."""
    of_problem = {order_of(row): row for row in rows}
    lines = [",".join(of_problem[key]) for key in sorted(of_problem)]
    (TABLES / f"{name}.csv").write_text("\n".join([BEGIN, ",".join(columns), *lines, END]) + "\n")
    print(f"{name}.csv: {len(lines)} rows")


def read_table(name: str) -> list[dict[str, str]]:
    """The rows of kernels/tuning/{name}.csv, by columns."""
    begin, columns, *lines, end = (TABLES / f"{name}.csv").read_text().splitlines()
    assert (begin, end) == (BEGIN, END), name
    return [dict(zip(columns.split(","), line.split(","), strict=True)) for line in lines]

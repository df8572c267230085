"""The tables of measurements: a row names one plan, and decides what is chosen for its problem and GPU alone."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from plan.problems import (
    BFLOAT16,
    DEVICES,
    FLOAT16,
    FLOAT32,
    FORWARD,
    GRAD_WEIGHT,
    H200,
    IEEE,
    TF32,
    TF32X3,
    Problem,
    make_axis,
    make_problem,
)
from plan.tensor_cores import HALF

from convt_ext import planner

TABLES = runpy.run_path(str(Path(__file__).resolve().parents[2] / "tools/plan_tables.py"))
FOLDER, DERIVED = TABLES["TABLES"], TABLES["DERIVED"]
DIRECTIONS = TABLES["DIRECTIONS"]
PRECISIONS = {"ieee": IEEE, "tf32x3": TF32X3, "tf32": TF32, "half": HALF}
PLANS, TORCH = (TABLES["read_table"](name) for name in ("h200_plans", "h200_torch"))
H100 = [*H200[:5], 2933]
SIZES, H, W = TABLES["PROBLEM_COLUMNS"][3:]

Row = dict[str, str]


def text_of(name: str) -> str:
    """What the planner has of a table: the text between the lines that begin and end it."""
    return (FOLDER / f"{name}.csv").read_text().removeprefix(TABLES["BEGIN"]).removesuffix(TABLES["END"] + "\n")


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(" ")]


def problem_of(row: Row, dtype: int | None = None, **changes: Any) -> Problem:
    batch, c_in, c_out, groups = numbers(row[SIZES])
    axes = []
    for size, out, kernel, stride, padding, dilation in (numbers(row[H]), numbers(row[W])):
        least = make_axis(size, kernel, stride, padding, 0, dilation)["out"]
        axes.append(make_axis(size, kernel, stride, padding, out - least, dilation))
    if dtype is None:
        dtype = BFLOAT16 if row["precision"] == "half" else FLOAT32
    problem = make_problem(
        batch, c_in, c_out, *axes, groups=groups, dtype=dtype, precision=PRECISIONS[row["precision"]],
        channels_last=row["layout"] == "nhwc",
    )  # fmt: skip
    return {**problem, "direction": DIRECTIONS.index(row["direction"]), **changes}


def problems_of(row: Row) -> Iterator[Problem]:
    """All that a row is of: either half precision, with and without a bias."""
    for dtype in (BFLOAT16, FLOAT16) if row["precision"] == "half" else (FLOAT32,):
        for has_bias in (False, True):
            yield problem_of(row, dtype, has_bias=has_bias)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_row_names_one_plan(plan_module, direction):
    """Whatever is estimated: else planner or kernels have changed, and the layer wants to be measured again."""
    text = text_of("h200_plans")
    for place, row in enumerate(PLANS):
        if row["direction"] != direction:
            continue
        for problem in problems_of(row):
            named, others = plan_module.named_plans(text, place, problem, H200)
            assert named, (row, "names no candidate")
            for knob in row["knobs"].split():
                name, value = knob.split("=")
                assert TABLES["written"](named[0][name]) == value
            # Of the candidates that the planner keeps, which the tool could see; a row means the first one in any case.
            places = [*TABLES["tile_of"](named[0]).keys() - {"shape"}, "kernel", "shared_bytes", "num_blocks"]
            kept, all_named = (
                {tuple(plan[place] for place in places) for plan in plans if plan["kernel"] == named[0]["kernel"]}
                for plans in (plan_module.candidates(problem, H200), named)
            )
            assert kept & all_named == {tuple(named[0][place] for place in places)}, (row, "names several candidates")
            assert named[0]["kernel"] == row["kernel"].replace("bf16", "f16" if problem["dtype"] == FLOAT16 else "bf16")
            # No field is named that follows from others, where these tell the plan.
            names = [knob.split("=")[0] for knob in row["knobs"].split()]
            tiles = [TABLES["tile_of"](plan) for plan in others if plan["kernel"] == named[0]["kernel"]]
            if not DERIVED.isdisjoint(names):
                chosen = {name: value for name, value in TABLES["tile_of"](named[0]).items() if name not in DERIVED}
                assert any(all(tile[name] == chosen[name] for name in chosen) for tile in tiles), (row, "derived")
            # It names nothing that it need not.
            for name in names:
                rest = [other for other in names if other != name]
                assert any(all(tile[other] == named[0][other] for other in rest) for tile in tiles), (row, name)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_row_is_chosen(plan_module, direction):
    for row in PLANS:
        if row["direction"] != direction:
            continue
        assert float(row["instead_us"]) > 1.04 * float(row["measured_us"])
        for problem in problems_of(row):
            plan = plan_module.choose(problem, H200)
            assert plan["measured"], row
            assert plan["estimate_us"] == float(row["measured_us"])
            assert plan["kernel"].replace("_f16", "_bf16") == row["kernel"]


def test_every_row_decides(plan_module):
    """Without it another plan would be chosen."""
    for row in PLANS:
        first, *others = plan_module.candidates(problem_of(row), H200)
        fields = ("kernel", "threads", *first["fields"])
        estimated = min(others, key=lambda plan: plan["estimate_us"])
        assert any(estimated.get(name) != first[name] for name in fields), row


def test_none_decides_bits_that_are_the_same_on_every_gpu():
    assert not [row for row in PLANS if row["direction"] == "grad_weight" and row["precision"] == "ieee"]


@pytest.mark.parametrize(("name", "rows"), [("h200_plans", PLANS), ("h200_torch", TORCH)])
def test_rows_are_in_order_and_of_different_problems(plan_module, name, rows):
    """As a person finds them, and as the planner does."""
    keys = [TABLES["order_of"](row.values()) for row in rows]
    assert all(one < other for one, other in pairwise(keys))
    read = getattr(plan_module, f"parse_measured_{name.removeprefix('h200_')}")(text_of(name))
    assert [tuple(row[0]) for row in read] == keys
    assert len(keys) > 100


HEADS = {"plans": "kernel,knobs,measured_us,instead_us", "torch": "torch_us"}
BEGINS = "forward,tf32,nchw,1 8 8 1,4 8 2 2 0 1,4 8 2 2 0 1,"
ROWS = {"plans": f"{BEGINS}mma_tf32_16x64,tile_h=1 staged=true,44.7,77", "torch": f"{BEGINS}9.5"}


def parse(plan_module, kind: str, *lines: str) -> list[Any]:
    text = "\n".join(["", f"{','.join(TABLES['PROBLEM_COLUMNS'])},{HEADS[kind]}", *lines, ""])
    return getattr(plan_module, f"parse_measured_{kind}")(text)


def test_what_is_read_of_a_row(plan_module):
    problem = [0, 3, 0, 1, 8, 8, 1, *[4, 8, 2, 2, 0, 1] * 2]
    ((read, *plan),) = parse(plan_module, "plans", ROWS["plans"])
    assert (read, plan) == (problem, ["mma_tf32_16x64", {"tile_h": "1", "staged": "true"}, 44.7, 77.0])
    assert parse(plan_module, "torch", ROWS["torch"]) == [(problem, 9.5)]
    ((_, _, knobs, *_),) = parse(plan_module, "plans", ROWS["plans"].replace("tile_h=1 staged=true", ""))
    assert knobs == {}
    assert parse(plan_module, "plans") == []


@pytest.mark.parametrize(
    ("old", "new", "at", "words"),
    [
        ("forward", "sideways", "sideways", "expected one of forward, grad_input, grad_weight"),
        ("tf32,", "bf16,", "bf16", "expected one of ieee, aten, tf32x3, tf32, half"),
        ("nchw", "nchwc", "nchwc", "expected one of nchw, nhwc"),
        ("1 8 8 1,", "1 8 8,", "8,4 8", "expected an integer"),
        ("1 8 8 1,", "1 8 ten 1,", "ten", "expected an integer"),
        ("1 8 8 1,", "1 8 8 1 1,", "1 1,4", "expected an integer"),
        ("1 8 8 1,", "1 8  8 1,", " 8 1,", "expected an integer"),
        ("1 8 8 1,", "1 8 8.5 1,", "8.5", "expected an integer"),
        ("tile_h=1 ", "tile_h ", "tile_h", "expected name=value"),
        ("tile_h=1 ", "tile_h= ", "tile_h", "expected name=value"),
        ("tile_h=1 ", "=1 ", "=1 ", "expected name=value"),
        ("tile_h=1 ", "tile_h=1  ", "tile_h", "expected name=value"),
        ("staged=true", "staged=true ", "tile_h", "expected name=value"),
        ("44.7", "44,7", "7,77", "expected microseconds"),
        ("44.7", "4e1", "4e1", "expected microseconds"),
        ("44.7", "4.4.7", "4.4.7", "expected microseconds"),
        ("44.7", "-44.7", "-44.7", "expected microseconds"),
        ("44.7", "", ",77", "expected microseconds"),
        (",77", ",0", "0", "expected microseconds"),
        (",77", "", "44.7", "expected ',' behind it"),
        (",77", ",77 ", "77 ", "expected microseconds"),
        (",77", ",77,1", "77,1", "expected microseconds"),
        (ROWS["plans"], "", "", "expected ',' behind it"),
    ],
)
def test_a_row_that_is_none_is_refused_with_its_place(plan_module, old, new, at, words):
    earlier = ROWS["plans"].replace("1 8 8 1", "1 4 8 1")
    broken = ROWS["plans"].replace(old, new, 1)
    column = broken.rindex(at) + 1
    with pytest.raises(ValueError, match=rf"tuning/h200_plans.csv, line 4, column {column}: {words}"):
        parse(plan_module, "plans", earlier, broken)


@pytest.mark.parametrize("kind", HEADS)
def test_rows_out_of_order_and_other_columns_are_refused(plan_module, kind):
    later = ROWS[kind].replace("1 8 8 1", "1 16 8 1")
    assert len(parse(plan_module, kind, ROWS[kind], later)) == 2
    for rows in ([later, ROWS[kind]], [later, later]):
        with pytest.raises(ValueError, match=rf"h200_{kind}.csv, line 4, column \d+: expected a problem behind"):
            parse(plan_module, kind, *rows)
    with pytest.raises(ValueError, match=rf"h200_{kind}.csv, line 2, column 1: expected the columns direction,"):
        getattr(plan_module, f"parse_measured_{kind}")("\ndirection,precision\n")
    with pytest.raises(ValueError, match=rf"h200_{kind}.csv, line 1, column 1: expected an end of the line"):
        getattr(plan_module, f"parse_measured_{kind}")("direction,precision\n")


@pytest.mark.parametrize("change", ["batch", "bias", "strides", "sms", "bandwidth", "capability", "dtype"])
def test_only_its_problem_and_gpu(plan_module, change):
    row = next(row for row in PLANS if row["precision"] == "tf32" and numbers(row[SIZES])[0] > 1)
    problem, device = problem_of(row), list(H200)
    kept = change == "bias"  # makes no difference to speak of
    if change == "batch":
        problem = problem_of({**row, SIZES: row[SIZES].replace(" ", "1 ", 1)})
    elif change == "bias":
        problem = {**problem, "has_bias": True}
    elif change == "strides":
        problem = {**problem, "x_stride": [2 * problem["x_stride"][0], *problem["x_stride"][1:]]}
    elif change == "dtype":
        problem = {**problem, "precision": TF32X3}
    else:
        device[{"capability": 0, "sms": 1, "bandwidth": 5}[change]] -= 1000 if change == "bandwidth" else 1
    assert plan_module.choose(problem_of(row), H200)["measured"]
    assert plan_module.choose(problem, device)["measured"] == kept


@pytest.mark.parametrize("device", [H100, *(DEVICES[name] for name in DEVICES if name != "h200")])
def test_no_row_is_of_another_gpu(plan_module, device):
    for row in PLANS[::7]:
        try:
            plan = plan_module.choose(problem_of(row), device)
        except ValueError:  # no half precision there
            continue
        assert not plan["measured"], row
    for row in TORCH:
        problem = problem_of(row)
        assert plan_module.torch_us(problem, device) == plan_module.torch_estimate_us(problem, device)


def test_others_are_in_the_order_of_their_estimates(plan_module):
    for row in PLANS[::20]:
        first, *others = plan_module.candidates(problem_of(row), H200)
        assert first["measured"]
        assert not any(plan["measured"] for plan in others)
        estimates = [plan["estimate_us"] for plan in others]
        assert estimates == sorted(estimates)
        assert len(others) > 1


def test_every_time_of_pytorch_decides(plan_module):
    """Otherwise its row does nothing: the estimates have changed, and the table wants to be written again."""
    device = list(planner.H200)  # as tools/measured_torch.py has it
    for row in TORCH:
        problem, measured_us = problem_of(row), float(row["torch_us"])
        assert plan_module.torch_us(problem, device) == measured_us
        estimate_us = plan_module.torch_estimate_us(problem, device)
        # A bias makes little difference, on which a choice may still hang.
        ours_us = [plan_module.choose({**problem, "has_bias": bias}, device)["estimate_us"] for bias in (False, True)]
        assert any((us <= measured_us) != (us <= estimate_us) for us in ours_us), row


@pytest.mark.parametrize("change", ["batch", "direction", "strides", "sms", "capability"])
def test_times_of_pytorch_are_of_their_problem_and_gpu(plan_module, change):
    row = next(row for row in TORCH if numbers(row[SIZES])[0] > 1)
    problem, device, measured_us = problem_of(row), list(H200), float(row["torch_us"])
    if change == "batch":
        problem = problem_of({**row, SIZES: row[SIZES].replace(" ", "1 ", 1)})
    elif change == "direction":
        problem = {**problem, "direction": GRAD_WEIGHT if row["direction"] != "grad_weight" else FORWARD}
    elif change == "strides":
        problem = {**problem, "x_stride": [2 * problem["x_stride"][0], *problem["x_stride"][1:]]}
    else:
        device[{"capability": 0, "sms": 1}[change]] -= 1
    assert plan_module.torch_us(problem, device) != measured_us
    assert plan_module.torch_us(problem, device) == plan_module.torch_estimate_us(problem, device)


def test_the_fewest_knobs_that_tell_a_plan():
    """Of those that follow from others none where it can be, and none for a plan that differs from no other."""
    plans = [
        {"kernel": "k", "threads": 128, "tile_h": h, "tile_w": w, "staged": w > h, "slots": slots, "shared_bytes": 1}
        for h, w, slots in ((1, 2, 3), (2, 2, 2), (2, 4, 2), (1, 4, 3), (1, 4, 2))
    ]
    *knobs, deep, flat = (TABLES["knobs_of"](plan, plans) for plan in plans)
    assert knobs == ["tile_h=1 tile_w=2", "staged=false", "tile_h=2 tile_w=4"]
    assert (deep, flat) == ("tile_w=4 slots=3", "tile_h=1 slots=2")
    assert TABLES["knobs_of"](plans[0], [plans[0], dict(plans[0]), {**plans[1], "kernel": "other"}]) == ""

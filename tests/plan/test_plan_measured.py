"""The tables of measured plans and times: a row decides what is chosen, for its problem and GPU alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from plan.problems import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    FORWARD,
    GRAD_INPUT,
    GRAD_WEIGHT,
    H200,
    IEEE,
    TF32,
    TF32X3,
    make_axis,
    make_problem,
)
from plan.tensor_cores import HALF

from convt_ext import planner

PLAN = Path(__file__).resolve().parents[2] / "kernels/plan"
DIRECTIONS = {"forward": FORWARD, "grad_input": GRAD_INPUT, "grad_weight": GRAD_WEIGHT}
PRECISIONS = {"kTf32": TF32, "kTf32x3": TF32X3, "kIeee": IEEE, "kHalf": HALF}
NUMBERS = r"\{([\d, ]+)\}"
ROW = re.compile(
    rf"\{{Precision::(\w+), (true|false), {NUMBERS}, {NUMBERS}, {NUMBERS}, "
    r'\{"(\w+)", ([\d, ]+)\}, ([\d.]+), ([\d.]+)\},'
)


TORCH_ROW = re.compile(
    rf"\{{Direction::(\w+), Precision::(\w+), (true|false), {NUMBERS}, {NUMBERS}, {NUMBERS}, ([\d.]+)\}},"
)
TORCH_DIRECTIONS = {"kForward": "forward", "kGradInput": "grad_input", "kGradWeight": "grad_weight"}


def numbers(text):
    return [int(number) for number in text.split(",")]


def rows():
    for direction in DIRECTIONS:
        for line in (PLAN / f"measured_{direction}.cpp").read_text().splitlines():
            if line.startswith("    {"):
                found = ROW.fullmatch(line.strip())
                assert found is not None, line
                yield direction, found.groups()


def problem_of(direction, row, dtype=None):
    precision, channels_last, sizes, h, w = row[:5]
    batch, c_in, c_out, groups = numbers(sizes)
    axes = []
    for size, out, kernel, stride, padding, dilation in (numbers(h), numbers(w)):
        least = (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + 1
        axes.append(make_axis(size, kernel, stride, padding, out - least, dilation))
    dtype = dtype or (BFLOAT16 if precision == "kHalf" else FLOAT32)
    return make_problem(
        batch, c_in, c_out, *axes, groups=groups, dtype=dtype, precision=PRECISIONS[precision],
        channels_last=channels_last == "true",
    ) | {"direction": DIRECTIONS[direction]}  # fmt: skip


def torch_rows():
    for line in (PLAN / "measured_torch.cpp").read_text().splitlines():
        if line.startswith("    {"):
            found = TORCH_ROW.fullmatch(line.strip())
            assert found is not None, line
            direction, *row, torch_us = found.groups()
            yield TORCH_DIRECTIONS[direction], tuple(row), float(torch_us)


def test_every_row_is_chosen(plan_module):
    """Otherwise it does nothing: planner or kernels have changed, and the layer wants to be measured again."""
    problems = []
    for direction, row in rows():
        kernel, launch, measured_us, instead_us = row[5], numbers(row[6]), float(row[7]), float(row[8])
        assert instead_us > 1.04 * measured_us
        for dtype in (BFLOAT16, FLOAT16) if row[0] == "kHalf" else (FLOAT32,):
            problem = problem_of(direction, row, dtype)
            assert problem not in problems, "two rows of one problem"
            problems.append(problem)
            plan = plan_module.choose(problem, H200)
            assert plan["measured"], (direction, row)
            assert plan["estimate_us"] == measured_us
            assert plan["kernel"] == (kernel.replace("bf16", "f16") if dtype == FLOAT16 else kernel)
            assert [plan["threads"], plan["shared_bytes"], plan["num_blocks"]] == launch[:3]
    assert len(problems) > 100


def test_none_decides_bits_that_are_the_same_on_every_gpu():
    assert not [row for direction, row in rows() if direction == "grad_weight" and row[0] == "kIeee"]


@pytest.mark.parametrize("change", ["batch", "bias", "strides", "sms", "bandwidth", "capability", "dtype"])
def test_only_its_problem_and_gpu(plan_module, change):
    direction, row = next((direction, row) for direction, row in rows() if row[0] == "kTf32" and numbers(row[2])[0] > 1)
    problem, device = problem_of(direction, row), list(H200)
    kept = change == "bias"  # makes no difference to speak of
    if change == "batch":
        problem = problem_of(direction, (*row[:2], row[2].replace(",", "1,", 1), *row[3:]))
    elif change == "bias":
        problem = {**problem, "has_bias": True}
    elif change == "strides":
        problem = {**problem, "x_stride": [2 * problem["x_stride"][0], *problem["x_stride"][1:]]}
    elif change == "dtype":
        problem = {**problem, "precision": TF32X3}
    else:
        device[{"capability": 0, "sms": 1, "bandwidth": 5}[change]] -= 1000 if change == "bandwidth" else 1
    assert plan_module.choose(problem_of(direction, row), H200)["measured"]
    assert plan_module.choose(problem, device)["measured"] == kept


def test_others_are_in_the_order_of_their_estimates(plan_module):
    for direction, row in list(rows())[::20]:
        first, *others = plan_module.candidates(problem_of(direction, row), H200)
        assert first["measured"]
        assert not any(plan["measured"] for plan in others)
        estimates = [plan["estimate_us"] for plan in others]
        assert estimates == sorted(estimates)
        assert len(others) > 1


def test_every_time_of_pytorch_decides(plan_module):
    """Otherwise its row does nothing: the estimates have changed, and the table wants to be written again."""
    device = list(planner.H200)  # as tools/measured_torch.py has it
    problems = []
    for direction, row, measured_us in torch_rows():
        problem = problem_of(direction, row)
        assert problem not in problems, "two rows of one problem"
        problems.append(problem)
        assert plan_module.torch_us(problem, device) == measured_us
        estimate_us = plan_module.torch_estimate_us(problem, device)
        # A bias makes little difference, on which a choice may still hang.
        ours_us = [plan_module.choose({**problem, "has_bias": bias}, device)["estimate_us"] for bias in (False, True)]
        assert any((us <= measured_us) != (us <= estimate_us) for us in ours_us), (direction, row)
    assert len(problems) > 100


@pytest.mark.parametrize("change", ["batch", "direction", "strides", "sms", "capability"])
def test_times_of_pytorch_are_of_their_problem_and_gpu(plan_module, change):
    direction, row, measured_us = next((d, row, us) for d, row, us in torch_rows() if numbers(row[2])[0] > 1)
    problem, device = problem_of(direction, row), list(H200)
    if change == "batch":
        problem = problem_of(direction, (*row[:2], row[2].replace(",", "1,", 1), *row[3:]))
    elif change == "direction":
        problem = {**problem, "direction": GRAD_WEIGHT if direction != "grad_weight" else FORWARD}
    elif change == "strides":
        problem = {**problem, "x_stride": [2 * problem["x_stride"][0], *problem["x_stride"][1:]]}
    else:
        device[{"capability": 0, "sms": 1}[change]] -= 1
    assert plan_module.torch_us(problem, device) != measured_us
    assert plan_module.torch_us(problem, device) == plan_module.torch_estimate_us(problem, device)

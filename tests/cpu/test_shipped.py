"""The shipped measurements: every entry identifies a plan of these kernels, and a call finds it."""

from __future__ import annotations

import re
from itertools import product

import pytest
import torch
from cpu_kernels import needs_binary

from convt_ext.dispatch import planner
from convt_ext.tuning import files

SHIPPED = files.read(files.SHIPPED)
CALLS = [(environment, key) for environment, calls in SHIPPED.items() for key in calls]
_KEY = re.compile(
    r"(\w+) (\w+) x=([\dx]+):(\w+) w=([\dx]+):(\w+) y=(\w+) stride=([\dx]+) padding=([\dx]+) output_padding=([\dx]+) "
    r"dilation=([\dx]+) groups=(\d+)"
)
SHARDS = 8


def numbers(text):
    return tuple(map(int, text.split("x")))


def empty(size, layout, dtype):
    memory_format = torch.channels_last if layout == "nhwc" else torch.contiguous_format
    return torch.empty(size, dtype=dtype, device="meta").to(memory_format=memory_format)


def call_of(environment, key):
    """Returns the problem and the direction of a key."""
    direction, word, x, x_layout, w, w_layout, y_layout, stride, padding, output_padding, dilation, groups = (
        _KEY.fullmatch(key).groups()
    )
    dtype = torch.bfloat16 if word == "half" else torch.float32
    arguments = (numbers(stride), numbers(padding), numbers(output_padding), int(groups), numbers(dilation))
    code = {"ieee": 0, "aten": 1, "tf32x3": 2, "tf32": 3, "half": 4}[word]
    problem = planner.Problem.of_call(
        empty(numbers(x), x_layout, dtype), empty(numbers(w), w_layout, dtype), False,
        (*arguments, code, y_layout == "nhwc"), environment.device,
    )  # fmt: skip
    return problem, ("forward", "grad_input", "grad_weight").index(direction)


def test_it_is_of_an_h200_and_of_any_kernels_that_have_its_plans():
    of_kind = {tuple(key.split()[:2]) for _, key in CALLS}
    assert of_kind >= set(product(("forward", "grad_input", "grad_weight"), ("tf32", "half", "tf32x3")))
    assert {environment.device for environment in SHIPPED} == {planner.H200}
    assert {environment.kernels for environment in SHIPPED} == {""}


@needs_binary
@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_entry_names_a_plan_and_is_found(shard, monkeypatch):
    monkeypatch.setattr(files, "_chosen", ("", {}))
    for environment, key in CALLS[shard::SHARDS]:
        problem, direction = call_of(environment, key)
        assert files.key_of(problem, direction) == key
        entry = SHIPPED[environment][key]
        found = files.find(problem, direction)
        assert found is not None, key
        assert (found.ours_us, found.torch_us, found.file) == (entry.ours_us, entry.torch_us, "shipped.json")
        plan = planner.plan(problem, direction)["candidates"][found.candidate]
        assert entry.kernel in (None, plan["kernel"])

"""The measurements in benchmarks/: held-out layers are in no list that was measured or fitted, and results name no
machine's folders."""

from __future__ import annotations

import doctest
import importlib
import json
import re
from pathlib import Path

import pytest
import torch
from harness.layer_programs import LAYER_PROGRAMS
from harness.neighbours import grid

from convt_ext.bench.layers import BUILT_IN, read_csv
from convt_ext.tuning import files

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"

if not (BENCHMARKS / "results").is_dir():
    pytest.skip("a source distribution has no measurements", allow_module_level=True)


def problem(layer):
    """Returns batch, channels, groups and axes; an axis of length 1 that no argument changes is none."""
    axes = zip(layer.size, layer.k, layer.s, layer.p, layer.op, layer.d, strict=True)
    return layer.n, layer.c_in, layer.c_out, layer.g, *(axis for axis in axes if axis != (1, 1, 1, 0, 0, 1))


def test_the_layers_of_networks():
    read = read_csv(BENCHMARKS / "model_layers.csv")
    assert len({layer.name for layer in read}) == len(read)
    for layer in read:
        assert min(layer.output_size) > 0, layer
        assert layer.c_in % layer.g == layer.c_out % layer.g == 0, layer


@pytest.mark.parametrize("kind", ["unseen", "depthwise", "grouped", "audio", "volume"])
def test_a_validation_list_has_no_layer_of_a_fitting_list(kind):
    read = {name: read_csv(BENCHMARKS / f"{kind}_{name}.csv") for name in ("validation", "fitting")}
    validation, fitting = (list(map(problem, found)) for found in read.values())
    assert len(set(validation)) == len(validation) >= 15
    assert set(validation).isdisjoint(fitting)
    for layer in read["validation"]:
        x, weight = (torch.empty(size, device="meta") for size in (layer.input_shape, layer.weight_shape))
        function = getattr(torch.nn.functional, f"conv_transpose{layer.dims}d")
        assert function(x, weight, **layer.arguments).shape == layer.output_shape, layer


def test_held_out_layers_are_in_no_list_that_was_measured(tools):
    """Nor are layers of programs, or neighbours of layers: a row of a table would hide the step to a neighbour."""
    tool = tools("unseen_layers")
    sets = {name: read_csv(tool.path_of(name)) for name in ("validation", "fitting")}
    for name in sets:
        assert tool.path_of(name).read_text() == tool.csv_text(tool.layers_of(name))
    measured = {problem(layer) for layer in tool.measured_layers()}
    held_out = {problem(layer) for layers in sets.values() for layer in layers}
    neighbours, programs = set(map(problem, grid())), {problem(program.layer) for program in LAYER_PROGRAMS}
    assert min(map(len, (measured, held_out, neighbours))) > 80
    assert measured.isdisjoint(held_out | neighbours | programs)
    assert held_out.isdisjoint(neighbours | programs)
    assert programs.isdisjoint(map(problem, BUILT_IN))

    def sizes(layer):
        """Returns input, weight and stride in the format of a tuning file."""
        return tuple("x".join(map(str, numbers)) for numbers in (layer.input_shape, layer.weight_shape, layer.s))

    named = re.findall(r"x=([0-9x]+):\w+ w=([0-9x]+):\w+ y=\w+ stride=([0-9x]+)", files.SHIPPED.read_text())
    assert len(set(named) & {sizes(layer) for layer in tool.measured_layers()}) > 30
    assert set(named).isdisjoint({sizes(layer) for layer in sets["validation"]})


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("results/*.json")), ids=lambda path: path.stem)
def test_a_result_names_no_folder(path):
    content = json.loads(path.read_text())
    assert content["complete"] is True
    assert not [word for word in content["argv"] if word.startswith(("/", "~")) or ":\\" in word]
    out = content["argv"].index("--out")
    assert "/" not in content["argv"][out + 1]


def test_what_is_written_names_no_folder(tmp_path):
    results = importlib.import_module("convt_ext.bench.results")
    assert doctest.testmod(results).failed == 0
    argv = results.describe_run("none", ["bench", "--out", str(tmp_path / "run.json")])["argv"]
    assert argv == ["bench", "--out", "run.json"]

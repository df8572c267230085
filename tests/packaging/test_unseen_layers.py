"""The layers that nothing was fitted to: their files are the generator's, and no list or table has one of them."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from harness.neighbours import grid

from convt_ext.bench.layers import Layer, read_csv
from convt_ext.tuning import files

CHECKOUT = Path(__file__).resolve().parents[2]

if not (CHECKOUT / "benchmarks").is_dir():
    pytest.skip("a source distribution has no measurements", allow_module_level=True)

NAMES = ("validation", "fitting")


@pytest.fixture(scope="module")
def tool(tools):
    return tools("unseen_layers")


@pytest.fixture(scope="module")
def sets(tool):
    return {name: read_csv(tool.path_of(name)) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_the_file_is_the_generators(tool, name):
    assert tool.path_of(name).read_text() == tool.csv_text(tool.layers_of(name))


def test_no_layer_is_in_both_or_in_a_list_that_was_measured(tool, sets):
    problems = [tool.problem(layer) for layers in sets.values() for layer in layers]
    assert len(problems) == len(set(problems)) == 2 * 70
    known = {tool.problem(layer) for layer in tool.measured_layers()}
    assert len(known) > 87
    assert known.isdisjoint(problems)


def test_a_name_and_a_bias_make_no_other_layer(tool):
    layer = tool.measured_layers()[0]
    assert tool.problem(layer) == tool.problem(dataclasses.replace(layer, name="other", bias=not layer.bias))
    assert tool.problem(layer) != tool.problem(dataclasses.replace(layer, n=layer.n + 1))


def test_the_sets_share_no_parent(tool, sets):
    validation, fitting = ({tool.shape(layer) for layer in sets[name][: tool.OF_NETWORKS]} for name in NAMES)
    assert min(len(validation), len(fitting)) > 20
    assert validation.isdisjoint(fitting)
    assert validation | fitting <= {tool.shape(layer) for layer in tool.measured_layers()}


def test_the_shipped_measurements_have_no_layer_of_the_validation(tool, sets):
    """A measured entry for one of these layers would contradict the figures, which are for unmeasured layers."""

    def sizes(layer):
        """Returns input, weight and stride in the format of a tuning file."""
        return tuple("x".join(map(str, numbers)) for numbers in (layer.input_shape, layer.weight_shape, layer.s))

    named = re.findall(r"x=([0-9x]+):\w+ w=([0-9x]+):\w+ y=\w+ stride=([0-9x]+)", files.SHIPPED.read_text())
    assert len(set(named) & {sizes(layer) for layer in tool.measured_layers()}) > 30
    assert set(named).isdisjoint({sizes(layer) for layer in sets["validation"]})


def test_no_list_has_a_layer_of_the_neighbour_grid(tool, sets):
    """A step from a base to its neighbour would be hidden by a row of a table."""
    names = [field.name for field in dataclasses.fields(Layer)]
    of_grid = {tool.problem(Layer(*(getattr(layer, name) for name in names))) for layer in grid()}
    assert len(of_grid) > 150
    assert of_grid.isdisjoint({tool.problem(layer) for layer in tool.measured_layers()})
    assert of_grid.isdisjoint({tool.problem(layer) for layers in sets.values() for layer in layers})


@pytest.mark.parametrize("name", NAMES)
def test_layers_are_legal_and_ordinary(tool, sets, name):
    for layer in sets[name]:
        x, weight = (torch.empty(size, device="meta") for size in (layer.input_shape, layer.weight_shape))
        assert F.conv_transpose2d(x, weight, **layer.arguments).shape == layer.output_shape
        assert all(op < max(s, d) for op, s, d in zip(layer.op, layer.s, layer.d, strict=True)), layer
        assert 4 <= min(layer.h, layer.w) <= max(layer.h, layer.w) <= 512
        assert 1 <= layer.n <= 128
        assert tool.is_ordinary(layer)


@pytest.mark.parametrize("name", NAMES)
def test_the_mix_is_about_that_of_networks(tool, sets, name):
    layers, of_random = sets[name], sets[name][tool.OF_NETWORKS :]
    assert 0.8 <= sum(layer.g == 1 for layer in layers) / len(layers) < 1
    assert any(layer.c_out == layer.g > 1 for layer in layers)
    assert any(1 < layer.g < layer.c_out for layer in layers)
    assert any(layer.c_out in (1, 3, 4) for layer in layers)
    assert any(layer.d != (1, 1) for layer in of_random)
    common = {(4, 2), (2, 2), (3, 2), (3, 1)}
    assert sum((layer.k[0], layer.s[0]) in common for layer in of_random) >= 15
    assert all(2 <= k <= 9 and 1 <= s <= 4 for layer in of_random for k, s in zip(layer.k, layer.s, strict=True))


def test_too_small_and_too_large_layers_are_left_out(tool):
    layer = next(layer for layer in tool.measured_layers() if tool.is_ordinary(layer))
    assert not tool.is_ordinary(dataclasses.replace(layer, n=10_000))
    assert not tool.is_ordinary(dataclasses.replace(layer, n=1, h=1, w=1))
    assert not tool.is_ordinary(dataclasses.replace(layer, h=1, w=1, p=(9, 9)))

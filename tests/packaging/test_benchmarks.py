"""The measurements in benchmarks/: layers that the benchmark reads, and results that name no machine's folders."""

from __future__ import annotations

import doctest
import importlib
import json
from pathlib import Path

import pytest
import torch

CHECKOUT = Path(__file__).resolve().parents[2]
BENCHMARKS = CHECKOUT / "benchmarks"

if not BENCHMARKS.is_dir():
    pytest.skip("a source distribution has no measurements", allow_module_level=True)


def test_the_layers_of_networks():
    layers = importlib.import_module("convt_ext.bench.layers")
    read = layers.read_csv(BENCHMARKS / "model_layers.csv")
    assert len({layer.name for layer in read}) == len(read)
    for layer in read:
        assert min(layer.output_size) > 0, layer
        assert layer.c_in % layer.g == layer.c_out % layer.g == 0, layer
    different = {json.dumps(layer.parameters()) for layer in (*read, *layers.BUILT_IN)}
    text = (BENCHMARKS / "README.md").read_text()
    assert f"the {len(read)} layers of networks" in text
    assert f"the {len(layers.BUILT_IN)} built-in ones" in text
    assert f"({len(different)} different ones in all)" in text


@pytest.mark.parametrize("kind", ["unseen", "depthwise", "grouped", "audio", "volume"])
def test_a_validation_list_has_no_layer_of_a_fitting_list(kind):
    layers = importlib.import_module("convt_ext.bench.layers")

    def problem(layer):
        """Returns batch, channels, groups and axes; an axis of length 1 that no argument changes is none."""
        axes = zip(layer.size, layer.k, layer.s, layer.p, layer.op, layer.d, strict=True)
        return layer.n, layer.c_in, layer.c_out, layer.g, *(axis for axis in axes if axis != (1, 1, 1, 0, 0, 1))

    read = {name: layers.read_csv(BENCHMARKS / f"{kind}_{name}.csv") for name in ("validation", "fitting")}
    validation, fitting = (list(map(problem, found)) for found in read.values())
    assert len(set(validation)) == len(validation) >= 15
    assert set(validation).isdisjoint(fitting)
    for layer in read["validation"]:
        x, weight = (torch.empty(size, device="meta") for size in (layer.input_shape, layer.weight_shape))
        function = getattr(torch.nn.functional, f"conv_transpose{layer.dims}d")
        assert function(x, weight, **layer.arguments).shape == layer.output_shape, layer


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

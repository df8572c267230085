"""The neighbour grid of the benchmark without a GPU: its layers, the command, and the figures of its rows."""

from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F
from bench_cpu import FakeTimer, run_harness
from harness import neighbour_report, neighbour_summary, neighbours
from harness.neighbours import BASES, CHANGES, changed, grid, is_legal, select_neighbours

from convt_ext import ops
from convt_ext.bench import report, runner
from convt_ext.bench.layers import Layer
from convt_ext.bench.modes import MODES, by_name
from convt_ext.bench.results import replace_file

# ---- the layers


def problem(layer: Layer) -> dict:
    """Returns the fields that distinguish layers of a grid."""
    values = layer.parameters()
    return {name: value for name, value in values.items() if name not in ("base", "change")}


def test_every_base_has_at_least_twenty_neighbours():
    assert len(BASES) >= 8
    layers = grid()
    assert len({layer.name for layer in layers}) == len(layers)
    for base in BASES:
        first, *of_base = [layer for layer in layers if layer.base == base.name]
        assert (first.name, first.change, problem(first)) == (base.name, None, problem(base))
        assert len(of_base) >= 20
        assert [layer.change for layer in of_base] == [change for change in CHANGES if is_legal(changed(base, change))]


def test_a_neighbour_differs_in_one_argument():
    bases = {base.name: problem(base) for base in BASES}
    for layer in grid():
        found = problem(layer)
        differences = [name for name in found if found[name] != bases[layer.base][name]]
        assert len(differences) == (layer.change is not None), layer


@pytest.mark.parametrize("base", BASES, ids=lambda base: base.name)
def test_only_what_pytorch_refuses_is_left_out(base):
    for change in CHANGES:
        layer = changed(base, change).reduced(1, 12)
        x, weight = torch.zeros(layer.input_shape), (layer.c_in, layer.c_out // layer.g, *map(abs, layer.k))
        if is_legal(changed(base, change)):
            meta = F.conv_transpose2d(x.to("meta"), torch.empty(weight, device="meta"), **layer.arguments)
            assert tuple(meta.shape) == layer.output_shape
        else:
            with pytest.raises(RuntimeError, match=r"negative|non-positive|output padding must be smaller"):
                F.conv_transpose2d(x, torch.zeros(weight), **layer.arguments)


def test_a_base_is_chosen_with_its_neighbours_and_a_neighbour_with_its_base():
    of_up4 = select_neighbours(["up4"])
    assert {layer.base for layer in of_up4} == {"up4"}
    assert len(of_up4) > 20
    assert [layer.name for layer in select_neighbours(["up4/w-1", "up2/bias"])] == ["up4", "up4/w-1", "up2", "up2/bias"]
    assert len(select_neighbours(["*/w-1"])) == 2 * len(BASES)
    assert select_neighbours(["all"]) == grid()
    with pytest.raises(ValueError, match="no layer matches 'up5'"):
        select_neighbours(["up5"])


def test_by_name_half_precision_is_asked_for_too():
    assert [by_name(MODES[name]).requested for name in ("tf32", "tf32x3", "ieee")] == [
        "convt_ext:tf32",
        "tf32x3",
        "exact",
    ]
    assert [by_name(MODES[name]).requested for name in ("bf16", "f16")] == ["convt_ext:"] * 2
    assert by_name(MODES["bf16"]).name == "bf16"


# ---- the command


def test_rows_have_their_base_and_change(monkeypatch, tmp_path, capsys):
    small = (Layer("small", 2, 4, 6, 7, 9, (4, 4), (2, 2), (1, 1)),)
    monkeypatch.setattr(neighbours, "BASES", small)
    monkeypatch.setattr(runner, "kernel_of", lambda *_: "patch_bf16")
    out = tmp_path / "run.json"
    words = ["--neighbours", "--layers", "*/w-1", "*/g=2", "--precisions", "bf16", "--layouts", "nhwc", "--no-errors"]
    assert run_harness([*words, "--out", str(out)], FakeTimer(12.5)) == 0
    rows = json.loads(out.read_text())["rows"]
    found = [(row["layer"], row["base"], row["change"], row["w"], row["g"]) for row in rows]
    assert found == [
        ("small", "small", None, 9, 1),
        ("small/w-1", "small", "w-1", 8, 1),
        ("small/g=2", "small", "g=2", 9, 2),
    ]
    assert "small: 2 x 4 x 7 x 9 to 6 channels, kernel 4 x 4, stride 2 x 2" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--csv", "layers.csv"], ["--default"]])
def test_the_grid_has_layers_of_its_own_and_calls_by_name(words, capsys):
    assert run_harness(["--neighbours", *words]) == 2
    assert "does not support --csv and --default" in capsys.readouterr().err


@pytest.mark.skipif(ops.plan is None, reason="the binary is not installed")
def test_a_dry_run_shows_estimates_over_the_floor(capsys):
    words = ["--layers", "up2/g=2", "--precisions", "tf32,bf16,tf32x3", "--directions", "fwd,dx,dw"]
    assert run_harness(["--neighbours", "--dry-run", *words]) == 0
    text = capsys.readouterr().out
    assert "Estimates for an NVIDIA H200" in text
    assert "up2: 16 x 128 x 160 x 160 to 64 channels" in text
    (line,) = (line for line in text.splitlines() if line.startswith("│none"))
    assert line.count("│") == 1 + 1 + 3 * 3 * 2
    assert all(1 <= float(cell) < 10 for cell in line.split("│")[2:-1])


def test_a_dry_run_without_a_binary_reports_the_reason(monkeypatch, capsys):
    monkeypatch.setattr("convt_ext._extension.load_error", "it is not there")
    assert run_harness(["--neighbours", "--dry-run", "--layers", "up2"]) == 0
    assert "No plans: it is not there" in capsys.readouterr().out


# ---- content of the rows


def row(change, ours, floor, theirs=None, **more):
    layer = "up" if change is None else f"up/{change}"
    return {
        **{"layer": layer, "base": "up", "change": change, "direction": "fwd", "precision": "tf32", "layout": "nchw"},
        **{"n": 1, "c_in": 8, "c_out": 8, "h": 4, "w": 4, "k": [4, 4], "s": [2, 2], "p": [1, 1], "op": [0, 0]},
        **{"ours_us": ours, "torch_us": theirs, "floor_us": floor, "chosen": "ours", "kernel": "patch", "error": None},
        **{"torch_error": None, **more},
    }


ROWS = [
    row(None, 100.0, 50.0, 100.0),
    row("w-1", 240.0, 60.0, 200.0),
    row("g=2", 150.0, 50.0, 145.0),  # slower, by less than 5 %
    row("k-1", 65.0, 50.0, 55.0),  # slower, but PyTorch is near the floor
    row("batch", 24.0, 2.0, 60.0),  # a floor too short to be judged
    row("bias", None, 50.0, 100.0, failure="ours: broken"),
    row("w-1", 500.0, 50.0, 400.0, direction="dw"),  # its base has no row
]


def test_neighbours_compared_with_their_base():
    found = neighbour_summary.beside_bases(ROWS)
    assert [(one.row["change"], one.own, one.of_base, one.jump) for one in found] == [
        ("w-1", 4.0, 2.0, 2.0),
        ("g=2", 3.0, 2.0, 1.5),
        ("k-1", 1.3, 2.0, 0.65),
        ("batch", 12.0, 2.0, 6.0),
    ]


def test_the_figures():
    found = neighbour_summary.figures(ROWS)
    assert list(found) == [("tf32", "nchw", "fwd and dx"), ("tf32", "nchw", "dw")]
    forward, of_weight = found.values()
    assert forward.mean == pytest.approx((2 * 4 * 3 * 1.3) ** 0.25)
    assert (forward.num_judged, forward.worst, forward.jump, forward.any_jump) == (4, 4.0, 2.0, 6.0)
    assert (forward.num_compared, forward.num_slower) == (5, 1)
    assert (of_weight.num_judged, of_weight.worst, of_weight.jump, of_weight.num_slower) == (1, 10.0, None, 1)


def test_calls_that_pytorch_runs_are_not_judged():
    served = [row(None, 100.0, 50.0, 50.0, chosen="torch", kernel="torch")]
    assert neighbour_summary.beside_bases([*served, row("w-1", 240.0, 60.0)]) == []
    (figures,) = neighbour_summary.figures(served).values()
    assert (figures.num_judged, figures.mean, figures.num_compared) == (0, None, 0)


def test_calls_slower_than_pytorch_worst_first():
    assert [row["direction"] for row in neighbour_summary.slower_than_torch(ROWS)] == ["dw", "fwd"]


def test_the_report(capsys):
    neighbour_report.print_grid(report.make_console(), ROWS, "A run")
    text = capsys.readouterr().out
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    assert ["none", "2.0", "-"] in cells
    assert ["w-1", "4.0*", "10.0"] in cells
    assert ["g=2", "3.0", "-"] in cells
    assert ["bias", "failed", "-"] in cells
    assert ["tf32", "nchw", "fwd and dx", "4", "2.36", "4.00", "2.00", "6.00", "5", "1"] in cells
    assert ["up/w-1", "fwd", "tf32", "nchw", "2.00", "4.00", "2.00", "240.0", "patch"] in cells
    assert "2 calls are more than 5% slower than PyTorch" in text
    assert ["up/w-1", "dw", "tf32", "nchw", "500.0", "400.0", "1.25", "10.00", "patch"] in cells


def test_a_kept_file_of_a_grid_is_shown_as_one(tmp_path, capsys):
    path = tmp_path / "h200_neighbours.json"
    content = {"gpu": "NVIDIA H200", "torch": "2.13", "date": "2026-01-02T03:04", "complete": True, "skipped": []}
    replace_file(path, {**content, "rows": ROWS})
    assert run_harness(["--summary", str(path)]) == 0
    text = capsys.readouterr().out
    for words in ("h200_neighbours.json: NVIDIA H200", "The grid; time over the floor", "All calls", "failed: up/bias"):
        assert words in text

"""The benchmark without a GPU: layers, floors, switches, operands, their float64 references, and the neighbour grid."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import torch
import torch.nn.functional as F
from bench_cpu import SMALL, FakeTimer, bench, csv_text, run_harness
from cpu_kernels import needs_binary
from harness import neighbour_report
from harness.neighbours import BASES, CHANGES, changed, grid, is_legal, select_neighbours

from convt_ext.bench import floors
from convt_ext.bench.layers import BUILT_IN, CSV_COLUMNS, KERNELBENCH, Layer, read_csv, select_layers
from convt_ext.bench.modes import MODES, by_name, torch_switches
from convt_ext.bench.operands import DIRECTIONS, make_operands, make_reference, torch_call
from convt_ext.bench.results import replace_file
from convt_ext.environment.gpus import GPUS

CPU = torch.device("cpu")


def by_torch(layer):
    return getattr(F, f"conv_transpose{layer.dims}d")


# ---- layers


def test_layers_are_selected_by_name_glob_and_all_in_table_order():
    names = [layer.name for layer in select_layers(BUILT_IN, ["dcgan_*", "kb75"])]
    assert names == ["kb75", "dcgan_512", "dcgan_128", "dcgan_rgb"]
    assert select_layers(BUILT_IN, ["all"]) == list(BUILT_IN)
    assert len({layer.name for layer in BUILT_IN}) == len(BUILT_IN)
    assert [layer.name for layer in KERNELBENCH] == ["kb57", "kb65", "kb69", "kb71", "kb75", "kb78", "kb81"]
    with pytest.raises(ValueError, match=r"no layer matches 'kb99'.*kb57"):
        select_layers(BUILT_IN, ["kb57", "kb99"])


def test_csv_gives_layers_with_distinct_names(tmp_path):
    path = tmp_path / "layers.csv"
    row = "64,256,64,2,3,2,4,0,1,1,0,4,1,2,30,40,1"
    path.write_text(f'{",".join(CSV_COLUMNS)}\n"Net(a,b)",{row}\n"Net(a,b)",{row}\n', encoding="utf-8")
    first, second = read_csv(path)
    assert (first.name, second.name) == ("Net(a,b)", "Net(a,b)/2")
    assert first == Layer("Net(a,b)", 64, 256, 64, 30, 40, (2, 3), (2, 4), (0, 1), (1, 0), 4, (1, 2), True)


@pytest.mark.parametrize("layer", SMALL, ids=lambda layer: layer.name)
def test_columns_of_a_csv_determine_the_axes(tmp_path, layer):
    path = tmp_path / "layers.csv"
    path.write_text(csv_text(layer), encoding="utf-8")
    assert read_csv(path) == [layer]


def test_csv_errors_name_the_column_or_line(tmp_path):
    path = tmp_path / "layers.csv"
    for text, words in (  # a depth alone is one of a volume
        ("source,N\nx,1\n", "no column Cin"),
        ("kd\n", "no column .*D, W"),
        (f"{','.join(CSV_COLUMNS)}\nx,1,2,many\n", "line 2"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=words):
            read_csv(path)


# ---- floors


@pytest.mark.parametrize("layer", SMALL, ids=lambda layer: layer.name)
def test_useful_operations_are_the_products_that_reach_an_output(layer):
    # With ones everywhere an output is the number of products that reach it.
    result = by_torch(layer)(torch.ones(layer.input_shape), torch.ones(layer.weight_shape), **layer.arguments)
    assert floors.useful_operations(layer) == 2 * int(result.double().sum())


# 8-byte elements and a multiple of 4 channels: a pixel is whole sectors in channels_last, so nothing is rounded up.
@pytest.mark.parametrize("layer", SMALL[1:], ids=lambda layer: layer.name)
def test_gradients_need_the_outputs_that_a_tap_reaches(layer):
    result = by_torch(layer)(torch.ones(layer.input_shape), torch.ones(layer.weight_shape), **layer.arguments)
    reached = math.prod(len(positions.unique()) for positions in (result[0, 0] > 0).nonzero().T)
    operands = torch.Size(layer.input_shape).numel() + torch.Size(layer.weight_shape).numel()
    needed = 8 * (operands + layer.n * layer.c_out * reached)
    assert floors.moved_bytes(layer, "dx", 8, "nhwc") == floors.moved_bytes(layer, "dw", 8, "nhwc") == needed
    assert floors.moved_bytes(layer, "dx", 8, "nchw") >= needed


@pytest.mark.parametrize(
    ("name", "precision", "direction", "layout", "expected"),
    [
        ("kb57", "ieee", "fwd", "nchw", 9663.7),
        ("kb57", "tf32", "fwd", "nchw", 1288.5),
        ("kb57", "bf16", "fwd", "nhwc", 640.9),
        ("kb69", "ieee", "fwd", "nchw", 8053.1),
        ("kb71", "tf32", "fwd", "nchw", 250.4),
        ("kb75", "ieee", "fwd", "nchw", 203.1),
        ("kb81", "ieee", "fwd", "nchw", 197.2),
        ("kb81", "ieee", "dx", "nchw", 120.0),
        ("kb81", "ieee", "dw", "nhwc", 74.3),
        ("unet_1024", "ieee", "fwd", "nchw", 268.4),
    ],
)
def test_floors_of_an_h200(name, precision, direction, layout, expected):
    (layer,) = select_layers(BUILT_IN, [name])
    floor = floors.floor_us(layer, direction, precision, MODES[precision].dtype.itemsize, layout, floors.H200)
    assert floor == pytest.approx(expected, rel=0.01)


def test_rates_are_known_by_name():
    assert floors.rates_of("NVIDIA H200") is floors.H200
    assert floors.rates_of("NVIDIA H100 80GB HBM3") is not None
    assert floors.rates_of("NVIDIA GeForce RTX 4090") is None
    assert set(floors.H200.operations) == set(MODES)
    assert floors.BY_GPU.keys() == GPUS.keys()
    assert all(set(rates.operations) == set(MODES) for rates in floors.BY_GPU.values())


# ---- modes


@pytest.mark.parametrize("name", MODES)
def test_switches_are_set_and_put_back(name):
    cudnn, mode = torch.backends.cudnn, MODES[name]
    before = cudnn.enabled, cudnn.conv.fp32_precision
    with torch_switches(mode):
        assert cudnn.enabled == mode.cudnn
        assert mode.torch_fp32 in (None, cudnn.conv.fp32_precision)
    assert (cudnn.enabled, cudnn.conv.fp32_precision) == before


# ---- references


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("layer", SMALL, ids=lambda layer: layer.name)
def test_reference_slice_is_the_float64_result(layer, direction):
    operands = make_operands(layer, torch.float64, CPU, gradients=True)
    x, w = operands.input.clone().requires_grad_(), operands.weight.clone().requires_grad_()
    result = by_torch(layer)(x, w, operands.bias, **layer.arguments)
    dx, dw = torch.autograd.grad(result, (x, w), operands.grad_output)
    expected = {"fwd": result.detach(), "dx": dx, "dw": dw}[direction]
    reference = make_reference(layer, direction, operands)
    assert reference.relative_error(expected) < 1e-14
    assert reference.relative_error(1.5 * expected) == pytest.approx(0.5)
    assert torch.allclose(torch_call(layer, direction, operands)(), expected)


def test_reference_contains_first_and_last_image_and_enough_elements():
    layer = Layer("many_images", 40, 2, 2, 6, 6, (3, 3), (2, 2))
    reference = make_reference(layer, "fwd", make_operands(layer, torch.float32, CPU))
    images = reference.index.tolist()
    assert images[0] == 0
    assert images[-1] == 39
    assert len(images) < 40
    assert 4096 <= reference.value.numel() < 6000


def test_grouped_weight_gradient_reference_contains_whole_groups():
    layer = Layer("depthwise", 2, 600, 600, 4, 4, (4, 4), (2, 2), (1, 1), (0, 0), 600)
    operands = make_operands(layer, torch.float32, CPU, gradients=True)
    reference = make_reference(layer, "dw", operands)
    assert 4096 <= reference.value.numel() < 600 * 16
    assert reference.relative_error(torch_call(layer, "dw", operands)()) < 1e-5


# ---- the neighbour grid: its layers, the command, and the figures of its rows


def problem(layer: Layer) -> dict:
    """Returns the fields that distinguish layers of a grid."""
    return {name: value for name, value in layer.parameters().items() if name not in ("base", "change")}


def test_a_neighbour_differs_in_one_argument():
    bases = {base.name: problem(base) for base in BASES}
    for layer in grid():
        found = problem(layer)
        differences = [name for name in found if found[name] != bases[layer.base][name]]
        assert len(differences) == (layer.change is not None), layer


@pytest.mark.parametrize("base", BASES, ids=lambda base: base.name)
def test_only_what_pytorch_refuses_is_left_out(base):
    for change in CHANGES:
        layer = dataclasses.replace(changed(base, change), n=1, h=12, w=12)
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


def test_explicit_precisions_include_half():
    requested = [by_name(MODES[name]).requested for name in ("tf32", "tf32x3", "ieee", "bf16", "f16")]
    assert requested == ["convt_ext:tf32", "tf32x3", "exact", "convt_ext:", "convt_ext:"]
    assert by_name(MODES["bf16"]).name == "bf16"


# ---- the command


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
    row("batch", 24.0, 2.0, 60.0),  # its floor is too short to count
    row("bias", None, 50.0, 100.0, failure="ours: broken"),
    row("w-1", 500.0, 50.0, 400.0, direction="dw"),  # its base has no row
]


def test_neighbours_compared_with_their_base():
    found = neighbour_report.beside_bases(ROWS)
    assert [(one.row["change"], one.own, one.of_base, one.jump) for one in found] == [
        ("w-1", 4.0, 2.0, 2.0),
        ("g=2", 3.0, 2.0, 1.5),
        ("k-1", 1.3, 2.0, 0.65),
        ("batch", 12.0, 2.0, 6.0),
    ]


def test_the_figures():
    found = neighbour_report.figures(ROWS)
    assert list(found) == [("tf32", "nchw", "fwd and dx"), ("tf32", "nchw", "dw")]
    assert [row["direction"] for row in neighbour_report.slower_than_torch(ROWS)] == ["dw", "fwd"]  # the worst first
    forward, of_weight = found.values()
    assert forward.mean == pytest.approx((2 * 4 * 3 * 1.3) ** 0.25)
    assert (forward.num_judged, forward.worst, forward.jump, forward.any_jump) == (4, 4.0, 2.0, 6.0)
    assert (forward.num_compared, forward.num_slower) == (5, 1)
    assert (of_weight.num_judged, of_weight.worst, of_weight.jump, of_weight.num_slower) == (1, 10.0, None, 1)


def test_calls_that_pytorch_runs_are_not_judged():
    served = [row(None, 100.0, 50.0, 50.0, chosen="torch", kernel="torch")]
    assert neighbour_report.beside_bases([*served, row("w-1", 240.0, 60.0)]) == []
    (figures,) = neighbour_report.figures(served).values()
    assert (figures.num_judged, figures.mean, figures.num_compared) == (0, None, 0)


def test_a_kept_file_of_a_grid_is_shown_as_one(tmp_path, capsys):
    path = tmp_path / "h200_neighbours.json"
    content = {"gpu": "NVIDIA H200", "torch": "2.13", "date": "2026-01-02T03:04", "complete": True, "skipped": []}
    replace_file(path, {**content, "rows": ROWS})
    assert run_harness(["--summary", str(path)]) == 0
    text = capsys.readouterr().out
    for words in ("h200_neighbours.json: NVIDIA H200", "The grid; time over the floor", "All calls", "failed: up/bias"):
        assert words in text


# ---- commands


@needs_binary
def test_dry_run_shows_layers_floors_and_plans(capsys):
    assert run_harness(["--dry-run", "--layers", "kb57", "dcgan_rgb", "--precisions", "ieee,bf16", "--default"]) == 0
    text = capsys.readouterr().out
    assert "9664" in text
    assert text.count("dcgan_rgb") == 3 * 2
    assert "simt_ieee_f32" in text


@needs_binary
@pytest.mark.parametrize("gpu", ["A100", "A10", "L4", "RTX 4090", "RTX 5090"])
def test_dry_run_for_another_gpu(capsys, gpu):
    """The output states that the GPU was not measured; its tensor cores have kernels."""
    assert (
        run_harness(["--dry-run", "--gpu", gpu, "--layers", "kb57", "--precisions", "tf32,bf16", "--layouts", "nchw"])
        == 0
    )
    text = capsys.readouterr().out
    assert f"an NVIDIA {gpu}" in text
    assert "not measured" in text
    assert text.count("portable_") == 2


@needs_binary
@pytest.mark.parametrize(("layer", "layouts"), [(SMALL[-2], ["nchw"]), (SMALL[-1], ["nchw", "nhwc"])])
def test_bench_of_one_and_three_dimensions(tmp_path, capsys, layer, layouts):
    path, out = tmp_path / "layers.csv", tmp_path / "run.json"
    path.write_text(csv_text(layer))
    words = ["--csv", str(path), "--precisions", "ieee,tf32,bf16", "--default"]
    assert run_harness([*words, "--dry-run"]) == 0
    assert capsys.readouterr().out.count(f"│ {layer.name}") == 4 * len(layouts)
    assert bench([*words, "--directions", "fwd,dx,dw", "--out", str(out)], FakeTimer(12.5)) == 0
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == 4 * 3 * len(layouts)
    assert {row["layout"] for row in rows} == set(layouts)
    assert all(row["k"] == list(layer.k) and row["error"] < 2e-2 for row in rows)

"""The benchmark without a GPU: layers, floors, switches, operands and their float64 references."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from bench_cpu import SMALL

from convt_ext.bench import floors
from convt_ext.bench.layers import BUILT_IN, CSV_COLUMNS, KERNELBENCH, Layer, read_csv, select_layers
from convt_ext.bench.modes import MODES, torch_switches
from convt_ext.bench.operands import DIRECTIONS, make_operands, make_reference, torch_call
from convt_ext.gpus import GPUS

CPU = torch.device("cpu")

# ---- layers


def test_seven_kernelbench_layers_are_the_default():
    assert [layer.name for layer in KERNELBENCH] == ["kb57", "kb65", "kb69", "kb71", "kb75", "kb78", "kb81"]
    assert len({layer.name for layer in BUILT_IN}) == len(BUILT_IN) == 21


@pytest.mark.parametrize("layer", SMALL, ids=lambda layer: layer.name)
def test_output_shape_is_pytorchs(layer):
    operands = make_operands(layer, torch.float32, CPU)
    assert tuple(torch_call(layer, "fwd", operands)().shape) == layer.output_shape


def test_layers_are_selected_by_name_glob_and_all_in_table_order():
    assert [layer.name for layer in select_layers(BUILT_IN, ["dcgan_*", "kb75"])] == [
        "kb75",
        "dcgan_512",
        "dcgan_128",
        "dcgan_rgb",
    ]
    assert select_layers(BUILT_IN, ["all"]) == list(BUILT_IN)
    with pytest.raises(ValueError, match=r"no layer matches 'kb99'.*kb57"):
        select_layers(BUILT_IN, ["kb57", "kb99"])


def test_csv_gives_layers_with_distinct_names(tmp_path):
    path = tmp_path / "layers.csv"
    row = "64,256,64,2,3,2,4,0,1,1,0,4,1,2,30,40,1"
    path.write_text(f'{",".join(CSV_COLUMNS)}\n"Net(a,b)",{row}\n"Net(a,b)",{row}\n', encoding="utf-8")
    first, second = read_csv(path)
    assert (first.name, second.name) == ("Net(a,b)", "Net(a,b)/2")
    assert first == Layer("Net(a,b)", 64, 256, 64, 30, 40, (2, 3), (2, 4), (0, 1), (1, 0), 4, (1, 2), True)


def test_csv_errors_name_the_column_or_line(tmp_path):
    path = tmp_path / "layers.csv"
    path.write_text("source,N\nx,1\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no column Cin"):
        read_csv(path)
    path.write_text(f"{','.join(CSV_COLUMNS)}\nx,1,2,many\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 2"):
        read_csv(path)


# ---- floors


@pytest.mark.parametrize("layer", SMALL, ids=lambda layer: layer.name)
def test_useful_operations_are_the_products_that_reach_an_output(layer):
    # With ones everywhere an output is the number of products that reach it.
    result = F.conv_transpose2d(torch.ones(layer.input_shape), torch.ones(layer.weight_shape), **layer.arguments)
    assert floors.useful_operations(layer) == 2 * int(result.double().sum())


# 8-byte elements and a multiple of 4 channels: a pixel is whole sectors in channels_last, so nothing is rounded up.
@pytest.mark.parametrize("layer", SMALL[1:], ids=lambda layer: layer.name)
def test_gradients_need_the_outputs_that_a_tap_reaches(layer):
    result = F.conv_transpose2d(torch.ones(layer.input_shape), torch.ones(layer.weight_shape), **layer.arguments)
    rows, columns = int((result[0, 0] > 0).any(1).sum()), int((result[0, 0] > 0).any(0).sum())
    operands = torch.Size(layer.input_shape).numel() + torch.Size(layer.weight_shape).numel()
    needed = 8 * (operands + layer.n * layer.c_out * rows * columns)
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
    floor = floors.floor_us(layer, direction, precision, MODES[precision].itemsize, layout, floors.H200)
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
    result = F.conv_transpose2d(x, w, operands.bias, **layer.arguments)
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

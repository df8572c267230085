"""The ops on three-dimensional layers: plans of layers with kernel = stride, and layers without taps along depth."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from raw_ops import DIRECTIONS, TENSOR_CORE_CLASSES, Call, run_candidate

# Input size, C_out, kernel = stride, groups: nnU-Net, few and odd channels, groups, other kernels, one plane.
LAYERS = {
    "nnunet": ((2, 64, 16, 16, 16), 32, (2, 2, 2), 1),
    "nnunet_last": ((1, 320, 4, 5, 6), 256, (2, 2, 2), 1),
    "odd": ((2, 9, 3, 5, 7), 7, (2, 2, 2), 1),
    "groups": ((2, 32, 5, 8, 10), 48, (2, 2, 2), 4),
    "k344": ((1, 24, 4, 6, 9), 16, (3, 4, 4), 1),
    "k442": ((3, 16, 3, 4, 12), 8, (4, 4, 2), 1),
}


def integers(*size: int, dtype: torch.dtype) -> torch.Tensor:
    """Sums of small integers are the same in every order and class."""
    return torch.randint(-2, 3, size, device="cuda").to(dtype)


def call_of(layer: str, kind: str, channels_last: bool) -> Call:
    torch.manual_seed(0)
    size, c_out, kernel, groups = LAYERS[layer]
    dtype, precision = TENSOR_CORE_CLASSES[kind]
    memory = torch.channels_last_3d if channels_last else torch.contiguous_format
    x = integers(*size, dtype=dtype).contiguous(memory_format=memory)
    weight = integers(size[1], c_out // groups, *kernel, dtype=dtype)
    zeros, ones = (0, 0, 0), (1, 1, 1)
    return Call(x, weight, integers(c_out, dtype=dtype), kernel, zeros, zeros, groups, ones, precision, channels_last)


def expected_of(call: Call) -> torch.Tensor:
    tensors = (tensor.double() for tensor in (call.x, call.weight, call.bias))
    return F.conv_transpose3d(*tensors, call.stride, groups=call.groups).to(call.x.dtype)


each_layer = pytest.mark.parametrize("layer", LAYERS)
each_class = pytest.mark.parametrize("kind", TENSOR_CORE_CLASSES)


@each_layer
@each_class
@pytest.mark.parametrize("channels_last", [False, True])
def test_forward(layer, kind, channels_last):
    call = call_of(layer, kind, channels_last)
    expected = expected_of(call)
    for number, plan in enumerate(call.candidates()):
        result = call.run(number)
        assert torch.equal(result, expected), plan
        memory = torch.channels_last_3d if channels_last else torch.contiguous_format
        assert result.is_contiguous(memory_format=memory)
    assert torch.equal(call.run(), expected)


@each_layer
@each_class
def test_grad_input(layer, kind):
    call = call_of(layer, kind, False)
    gy = integers(*expected_of(call).shape, dtype=call.x.dtype)
    x = call.x.double().requires_grad_()
    result = F.conv_transpose3d(x, call.weight.double(), None, call.stride, groups=call.groups)
    expected = torch.autograd.grad(result, x, gy.double())[0].to(call.x.dtype)
    arguments = (
        gy,
        call.weight,
        None,
        *call.arguments.values(),
        {"tf32": 3, "tf32x3": 2}.get(call.precision, 4),
        False,
    )
    lists = arguments[:2] + arguments[3:]
    if call.weight.shape[4] != 2:
        with pytest.raises(ValueError, match="no kernel supports this three-dimensional problem"):
            torch.ops.convt_ext.grad_input(*lists)
        return
    for number, plan in enumerate(call.candidates(direction="grad_input")):
        assert torch.equal(run_candidate("grad_input", number, arguments), expected), plan
    assert torch.equal(torch.ops.convt_ext.grad_input(*lists), expected)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_without_taps_along_depth(direction, channels_last, batch):
    """Planes are images or rows of a two-dimensional layer, with the same exact sums."""
    torch.manual_seed(0)
    memory = torch.channels_last_3d if channels_last else torch.contiguous_format
    x = torch.randn(batch, 6, 4, 5, 8, device="cuda").contiguous(memory_format=memory)
    weight = torch.randn(6, 5, 1, 2, 2, device="cuda")
    gy = torch.randn(batch, 5, 4, 10, 16, device="cuda").contiguous(memory_format=memory)
    lists = [1, 2, 2], [0, 0, 0], [0, 0, 0], 1, [1, 1, 1], 0, channels_last
    flat = [2, 2], [0, 0], [0, 0], 1, [1, 1], 0, channels_last
    ops = torch.ops.convt_ext
    if direction == "forward":
        found = ops.forward(x, weight, None, *lists)
        planes = [ops.forward(x[:, :, i], weight[:, :, 0], None, *flat) for i in range(4)]
        assert torch.equal(found, torch.stack(planes, 2))
    elif direction == "grad_input":
        found = ops.grad_input(gy, weight, *lists)
        planes = [ops.grad_input(gy[:, :, i], weight[:, :, 0], *flat) for i in range(4)]
        assert torch.equal(found, torch.stack(planes, 2))
    else:
        found = ops.grad_weight(gy, x, *lists)
        twice = x.double().requires_grad_(), weight.double().requires_grad_()
        expected = torch.autograd.grad(F.conv_transpose3d(*twice, None, (1, 2, 2)), twice[1], gy.double())[0]
        assert (found.double() - expected).norm() < 1e-6 * expected.norm()
        assert torch.equal(
            ops.grad_bias(gy).double().round(decimals=3), gy.double().sum((0, 2, 3, 4)).round(decimals=3)
        )


def test_other_layers_name_the_limit():
    x, weight = torch.randn(1, 8, 4, 4, 4, device="cuda"), torch.randn(8, 8, 3, 3, 3, device="cuda")
    with pytest.raises(ValueError, match="no kernel supports this three-dimensional problem"):
        torch.ops.convt_ext.forward(x, weight, None, [2] * 3, [1] * 3, [1] * 3, 1, [1] * 3, 3, False)

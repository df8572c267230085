"""The ops on three-dimensional layers: plans of layers with kernel = stride, and layers without taps along depth."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from raw_ops import DIRECTIONS, TENSOR_CORE_CLASSES, run_candidate
from volumes import LAYERS, call_of, expected_of, gradient_of

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
    arguments, expected = gradient_of(call)
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

"""`conv_transpose1d` on a GPU: layers of audio models, against PyTorch's operator and against the exact class."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from gradients import ramp
from served import allow_tf32

import convt_ext
from convt_ext import conv_transpose1d as ours

# batch, channels in and out, kernel, stride, padding, length
LAYERS = {
    "hifi_gan_k16s8": (16, 512, 256, 16, 8, 4, 32),
    "hifi_gan_k4s2": (16, 128, 64, 4, 2, 1, 2048),
    "bigvgan_k8s4": (1, 768, 384, 8, 4, 2, 6888),
    "encodec_k10s5": (4, 512, 256, 10, 5, 0, 4000),
    "dac_k16s8": (9, 768, 384, 16, 8, 4, 264),
}
each_layer = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)

# dtype, TF32, and the largest difference in the 2-norm: each result is rounded as its class defines.
CLASSES = {
    "ieee": (torch.float32, False, 1e-5), "tf32": (torch.float32, True, 2e-3), "f64": (torch.float64, False, 1e-13),
    "f16": (torch.float16, False, 4e-3), "bf16": (torch.bfloat16, False, 3e-2),
}  # fmt: skip


def operands(layer, dtype):
    batch, c_in, c_out, kernel, stride, padding, length = layer
    torch.manual_seed(0)
    sizes = (batch, c_in, length), (c_in, c_out, kernel), (c_out,)
    tensors = [torch.randn(size, device="cuda", dtype=torch.float64).to(dtype).requires_grad_() for size in sizes]
    return tensors, {"stride": stride, "padding": padding}


def step(call, tensors, **arguments):
    """Returns the result and all gradients."""
    result = call(*tensors, **arguments)
    return result, *torch.autograd.grad(result, tensors, ramp(result))


def assert_like(found, expected, tolerance):
    for name, mine, theirs in zip(("result", "input", "weight", "bias"), found, expected, strict=True):
        assert mine.dtype is theirs.dtype, name
        assert mine.shape == theirs.shape, name
        assert mine.stride() == theirs.stride(), (name, mine.stride(), theirs.stride())
        assert (mine.double() - theirs.double()).norm() <= tolerance * theirs.double().norm(), name


@each_layer
@pytest.mark.parametrize("backend", ["auto", "convt_ext"])
@pytest.mark.parametrize("name", CLASSES)
def test_result_and_gradients(layer, name, backend):
    dtype, tf32, tolerance = CLASSES[name]
    tensors, arguments = operands(layer, dtype)
    with allow_tf32(tf32):
        found = step(ours, tensors, **arguments, backend=backend)
        assert_like(found, step(F.conv_transpose1d, tensors, **arguments), tolerance)


@each_layer
def test_exact_has_the_bits_of_height_1(layer):
    """The numbers of the two-dimensional operator, which tests compare with the oracle."""
    (x, weight, bias), arguments = operands(layer, torch.float32)
    found = step(ours, (x, weight, bias), **arguments, precision="exact")
    named = {"stride": (1, arguments["stride"]), "padding": (0, arguments["padding"]), "precision": "exact"}
    tensors = [one.detach().requires_grad_() for one in (x.unsqueeze(2), weight.unsqueeze(2), bias)]
    expected = step(convt_ext.conv_transpose2d, tensors, **named)
    for mine, other in zip(found, expected, strict=True):
        assert torch.equal(mine, other.squeeze(2) if other.dim() == 4 else other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_strides(dtype):
    """Transposed inputs are made contiguous; a transposed weight makes the result channels_last."""
    x = torch.randn(2, 9, 8, device="cuda", dtype=dtype)
    weight = torch.randn(8, 4, 6, device="cuda", dtype=dtype)
    for one in (x.transpose(1, 2), x.transpose(1, 2).contiguous(), x[0].transpose(0, 1), x.transpose(1, 2)[..., :1]):
        for other in (weight, weight.transpose(1, 2).contiguous().transpose(1, 2)):
            leaves = [tensor.detach().requires_grad_() for tensor in (one, other)]
            found, expected = (
                step(call, leaves, stride=2)
                for call in (lambda *args, **named: ours(*args, **named, backend="convt_ext"), F.conv_transpose1d)
            )
            # An input of length 1 is dense in both formats; the weight's gradient then has PyTorch's default format.
            compared = 2 if one.size(-1) == 1 else 3
            assert [tensor.stride() for tensor in found[:compared]] == [
                tensor.stride() for tensor in expected[:compared]
            ]

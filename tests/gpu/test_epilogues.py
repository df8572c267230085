"""What follows a layer in its kernel, on a GPU: against PyTorch's functions one after the other, and gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from served import allow_tf32, on_kernels, switch
from torch import nn
from torch.utils.checkpoint import checkpoint

import convt_ext
from convt_ext.dispatch.geometry import memory_format
from convt_ext.environment._torch import CONV_TRANSPOSE
from convt_ext.epilogue import fused
from convt_ext.epilogue import steps as epilogues
from convt_ext.functional import FUNCTIONS, conv_transpose_then
from convt_ext.tuning import benchmark

# Input, weight, the other arguments: of families that fuse, and of those that do not.
LAYERS = {
    "k4s2p1": ((4, 64, 24, 24), (64, 64, 4, 4), {"stride": 2, "padding": 1}),
    "k2s2": ((2, 64, 20, 24), (64, 32, 2, 2), {"stride": 2}),
    "k3s2_groups": ((2, 64, 17, 19), (64, 24, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2}),
    "few_channels": ((2, 3, 30, 31), (3, 5, 3, 3), {"stride": 2}),
    "dilated": ((2, 32, 12, 13), (32, 16, 3, 3), {"stride": 1, "dilation": 2}),
    "length": ((3, 32, 50), (32, 16, 8), {"stride": 4, "padding": 2}),
    "volume": ((2, 64, 4, 6, 9), (64, 24, 2, 2, 2), {"stride": 2}),
    "flat_volume": ((2, 64, 3, 6, 9), (64, 24, 1, 2, 2), {"stride": (1, 2, 2)}),
    "overlapping_volume": ((2, 16, 4, 5, 6), (16, 8, 3, 3, 3), {"stride": 2, "padding": 1}),
}
CLASSES = [
    (torch.float32, "exact"), (torch.float32, "aten"), (torch.float32, "tf32x3"), (torch.float32, "tf32"),
    (torch.float64, "exact"), (torch.float16, "half"), (torch.bfloat16, "half"), (torch.bfloat16, "exact"),
]  # fmt: skip
CHAINS = {
    "relu": [torch.relu],
    "bias_clamp_scale": [(torch.add, 0.3), (torch.clamp, -0.5, 0.5), (torch.mul, 2)],
    "tanh": [torch.tanh],
    "gelu": [F.gelu],
    "silu": [nn.SiLU()],
    "mish_add_hardtanh_scale": [F.mish, (torch.add, 0.5), F.hardtanh, (torch.mul, 1.5)],
    "leaky": [(F.leaky_relu, 0.2)],
    "channel_tanh": [(torch.sub, "channel"), torch.tanh],
    "residual_relu": [(torch.add, "residual"), torch.relu],
    "strange_residual": [(torch.mul, "strange"), torch.neg],
}
ROUNDED = {"tanh", "gelu", "silu", "mish_add_hardtanh_scale", "channel_tanh"}


def layer(name, dtype, channels_last, device="cuda"):
    size, weight_size, arguments = LAYERS[name]
    generator = torch.Generator(device).manual_seed(2)
    x, weight, bias = (
        torch.randn(one, device=device, generator=generator).to(dtype)
        for one in (size, weight_size, (weight_size[1] * arguments.get("groups", 1),))
    )
    weight /= weight_size[0] ** 0.5
    if channels_last and x.dim() > 3:
        x = x.contiguous(memory_format=memory_format(True, x.dim() - 2))
    return (x, weight, bias), arguments


def chain_for(name, result):
    n, c, first, *others = result.shape
    tensors = {
        "channel": torch.randn(c, 1, *[1] * len(others), device=result.device).to(result.dtype),
        "residual": torch.randn_like(result),
        "strange": torch.randn(n, first, c, *others, device=result.device).to(result.dtype).transpose(1, 2),
    }
    return [
        (entry[0], *(tensors.get(one, one) if isinstance(one, str) else one for one in entry[1:]))
        if isinstance(entry, tuple)
        else entry
        for entry in CHAINS[name]
    ]


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize(("dtype", "word"), CLASSES, ids=str)
def test_as_pytorchs_functions_on_the_bare_result(dtype, word, chain, channels_last):
    with torch.no_grad():
        for name in LAYERS:
            operands, arguments = layer(name, dtype, channels_last)
            dims = operands[0].dim() - 2
            bare = FUNCTIONS[dims](*operands, **arguments, **on_kernels(word))
            entries = chain_for(chain, bare)
            expected = epilogues.apply(bare, entries)
            found = conv_transpose_then(dims, *operands, **arguments, **on_kernels(word), epilogue=entries)
            assert found.stride() == bare.stride()
            if word in ("exact", "aten") and chain not in ROUNDED:
                assert torch.equal(found, expected), name
                continue
            eps = torch.finfo(dtype).eps
            torch.testing.assert_close(found, expected, rtol=8 * eps, atol=8 * eps, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("benchmarks", [False, True])
def test_by_default_the_faster_implementation_runs(monkeypatch, benchmarks):
    monkeypatch.setattr(benchmark, "_WORTH", 0)
    with torch.no_grad(), allow_tf32(True):
        torch.backends.cudnn.benchmark = benchmarks
        try:
            for name in LAYERS:
                operands, arguments = layer(name, torch.float32, False)
                dims = operands[0].dim() - 2
                for chain in ("silu", "residual_relu"):
                    expected = CONV_TRANSPOSE[dims](*operands, **arguments)
                    entries = chain_for(chain, expected)
                    for _ in range(2):
                        found = conv_transpose_then(dims, *operands, **arguments, epilogue=entries)
                        torch.testing.assert_close(found, epilogues.apply(expected, entries), rtol=5e-3, atol=5e-3)
        finally:
            torch.backends.cudnn.benchmark = False


@pytest.mark.parametrize(
    "last", [torch.relu, F.hardtanh, (F.leaky_relu, 0.2), torch.tanh, torch.sigmoid], ids=epilogues.name_of
)
@pytest.mark.parametrize("small_bytes", [0, 1 << 30], ids=["fused", "separate"])
def test_gradients(monkeypatch, last, small_bytes):
    monkeypatch.setattr(fused, "_SMALL_BYTES", small_bytes)
    for name in LAYERS:
        operands, arguments = layer(name, torch.float32, False)
        dims = operands[0].dim() - 2
        leaves = [one.requires_grad_() for one in operands]
        with allow_tf32(False):
            bare = CONV_TRANSPOSE[dims](*leaves, **arguments)
            residual = torch.randn_like(bare).requires_grad_()
            leaves.append(residual)
            entries = [(torch.mul, 0.5), (torch.add, residual), last]
            found = conv_transpose_then(dims, *leaves[:3], **arguments, precision="exact", epilogue=entries)
            expected = epilogues.apply(bare, entries)
            # Where a slope changes, the last bit of the sum decides it.
            before = epilogues.apply(bare, entries[:2]).detach()
            kinks = torch.stack([(before - at).abs() < 1e-5 for at in (-1, 0, 1)]).any(0)
            cotangent = torch.randn_like(found).masked_fill(kinks, 0)
            gradients = [torch.autograd.grad(one, leaves, cotangent) for one in (found, expected)]
        for one, other in zip(*gradients, strict=True):
            assert (one - other).norm() <= 1e-4 * other.norm(), name


def test_a_residual_and_an_activation_in_graphs():
    """Captured and replayed."""
    layer = convt_ext.ConvTranspose2d(64, 64, 4, stride=2, padding=1).cuda()
    x, residual, prelu = torch.randn(2, 64, 16, 16, device="cuda"), torch.randn(64, 1, 1).cuda(), nn.PReLU(64).cuda()
    with torch.no_grad():

        def call():
            return convt_ext.conv_transpose2d(
                x, layer.weight, layer.bias, stride=2, padding=1, residual=residual, activation=prelu
            )

        expected = prelu(layer(x) + residual)
        torch.testing.assert_close(call(), expected, rtol=1e-3, atol=1e-3)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = call()
        result.fill_(float("nan"))
        graph.replay()
        torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("chain", ["relu", "channel_tanh", "residual_relu", "silu"])
def test_checkpointing_while_calls_are_measured(chain):
    """What is known about times changes between a call and its recomputation."""
    operands, arguments = layer("k4s2p1", torch.float32, False)
    entries = chain_for(chain, F.conv_transpose2d(*operands, **arguments))
    leaves = [one.detach().requires_grad_() for one in operands]

    def call(*tensors):
        return conv_transpose_then(2, *tensors, **arguments, epilogue=entries)

    with allow_tf32(False), switch(torch.backends.cudnn, "benchmark", True):
        for _ in range(4):
            result = checkpoint(call, *leaves, use_reentrant=False)
            assert all(one.isfinite().all() for one in torch.autograd.grad(result.sum(), leaves))

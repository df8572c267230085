"""convert(fuse=True) on the GPU: fused models compute what the unfused ones do, by kernels that run the steps."""

from __future__ import annotations

import copy

import pytest
import torch
from fusing_models import folding_bound, randomized
from served import on_kernels, tf32
from torch import fx, nn

import convt_ext
from convt_ext import convert
from convt_ext.epilogue import chain


@pytest.fixture(autouse=True)
def inference_without_tf32():
    torch.manual_seed(0)
    with torch.no_grad(), tf32(False):
        yield


@pytest.fixture
def calls(monkeypatch):
    """The epilogue of each fused call."""
    found = []
    plain = chain.conv_transpose_then

    def recording(*arguments, **named):
        found.append(named["epilogue"])
        return plain(*arguments, **named)

    monkeypatch.setattr(chain, "conv_transpose_then", recording)
    return found


def layer(**settings):
    return nn.ConvTranspose2d(16, 24, 4, stride=2, padding=1, **settings)


def inputs(channels_last=False, dtype=torch.float32):
    x = torch.randn(3, 16, 9, 7, device="cuda", dtype=dtype)
    return x.contiguous(memory_format=torch.channels_last) if channels_last else x


@pytest.mark.parametrize(
    "followers", [(nn.ReLU(),), (nn.Dropout(), nn.LeakyReLU(0.2), nn.Hardtanh(-0.1, 0.2))], ids=str
)
@pytest.mark.parametrize("precision", ["exact", "aten"])
@pytest.mark.parametrize("channels_last", [False, True])
def test_exact_classes_keep_their_bits(calls, followers, precision, channels_last):
    model = nn.Sequential(layer(), *followers).cuda().eval()
    plain = convert(copy.deepcopy(model), precision=precision)
    convert(model, precision=precision, fuse=True)
    x = inputs(channels_last)
    assert torch.equal(model(x), plain(x))
    assert len(calls) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("channels_last", [False, True])
def test_folding_is_within_its_bound(calls, dtype, groups, bias, channels_last):
    model = randomized(nn.Sequential(layer(groups=groups, bias=bias), nn.BatchNorm2d(24), nn.ReLU())).to("cuda", dtype)
    x = inputs(channels_last, dtype)
    exact, bound = copy.deepcopy(model).double()(x.double()), folding_bound(model[0], model[1], x)
    convert(model, precision="exact", fuse=True)
    assert ((model(x).double() - exact).abs() <= bound).all()
    convt_ext.freeze(model[0])
    for _ in range(2):  # folding, and what it kept
        assert ((model(x).double() - exact).abs() <= bound).all()
    assert len(calls) == 3


def test_new_weights_are_seen_also_by_a_graph(calls):
    model = convert(randomized(nn.Sequential(layer(), nn.BatchNorm2d(24), nn.Tanh())).cuda(), "exact", fuse=True)
    plain, x = nn.Sequential(*model), inputs()
    model(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = model(x)
    model.load_state_dict(randomized(nn.Sequential(layer(), nn.BatchNorm2d(24), nn.Tanh())).state_dict())
    captured.fill_(torch.nan)
    graph.replay()
    torch.testing.assert_close(captured, plain(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model(x), plain(x), rtol=1e-4, atol=1e-5)


def test_writes_that_pytorch_does_not_count_are_seen(calls):
    model = convert(randomized(nn.Sequential(layer(), nn.BatchNorm2d(24))).cuda(), "exact", fuse=True)
    x = inputs()
    model(x)
    for one in (*model.parameters(), model[1].running_mean, model[1].running_var):
        one.data.copy_(one.data * 0.5)
    torch.testing.assert_close(model(x), nn.Sequential(*model)(x), rtol=1e-4, atol=1e-5)
    assert len(calls) == 2


def test_another_stream_uses_what_was_folded(calls):
    model = convert(randomized(nn.Sequential(layer(), nn.BatchNorm2d(24))).cuda(), "exact", fuse=True)
    convt_ext.freeze(model[0])
    x = inputs()
    expected = model(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        assert torch.equal(model(x), expected)


def test_residual_in_a_traced_model(calls):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.side = layer(), nn.ConvTranspose2d(16, 24, 4, stride=2, padding=1)

        def forward(self, x):
            return torch.relu(self.up(x) + self.side(x)) * 0.5

    plain = convert(Net().cuda().eval(), precision="exact")
    model = convert(fx.symbolic_trace(Net().cuda().eval()), precision="exact", fuse=True)
    model.load_state_dict(plain.state_dict())
    x = inputs()
    assert torch.equal(model(x), plain(x))
    assert [len(entries) for entries in calls] == [3]


def test_in_place_operands_keep_the_dtype(calls):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = layer()

        def forward(self, x, residual):
            return torch.relu(torch.tanh(self.up(x)).add_(residual))

    plain = fx.symbolic_trace(convert(Net().cuda().eval(), **on_kernels("half")).bfloat16())
    model = convert(copy.deepcopy(plain), fuse=True)
    x = inputs(dtype=torch.bfloat16)
    for residual in (torch.rand(24, 1, 1, device="cuda"), torch.rand(24, 1, 1, device="cuda").bfloat16()):
        expected, found = plain(x, residual), model(x, residual)
        assert found.dtype is expected.dtype is torch.bfloat16
        torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)
    assert [len(entries) for entries in calls] == [1, 3]


def test_training_step(calls):
    model = nn.Sequential(layer(), nn.BatchNorm2d(24), nn.ReLU(), nn.ConvTranspose2d(24, 3, 3), nn.Tanh()).cuda()
    plain = convert(copy.deepcopy(model), precision="exact")
    convert(model, precision="exact", fuse=True)
    x = inputs()
    with torch.enable_grad():
        for one in (model, plain):
            one(x).square().sum().backward()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)

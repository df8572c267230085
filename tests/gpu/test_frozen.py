"""freeze() on the GPU: the same bits with and without packing, whatever the stream, and inside a CUDA graph."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from served import SeenOps, allow_tf32, on_kernels
from torch import nn

import convt_ext
from convt_ext import ConvTranspose2d, convert, explain
from convt_ext.compile import mode
from convt_ext.dispatch import ops
from convt_ext.dispatch.directions import NativeConv

PACKED = "convt_ext._forward_packed.default"


def pair(precision: str, dtype=torch.float32):
    """A frozen module and the same one unfrozen."""
    plain = ConvTranspose2d(64, 96, 4, stride=2, padding=1, device="cuda", dtype=dtype, **on_kernels(precision)).eval()
    frozen = ConvTranspose2d(64, 96, 4, stride=2, padding=1, device="cuda", dtype=dtype, **on_kernels(precision)).eval()
    frozen.load_state_dict(plain.state_dict())
    convt_ext.freeze(frozen)
    return frozen, plain


def packing_pair():
    """As `pair`, and an input that a kernel packs the weight for; skips where there is none."""
    frozen, plain = pair("tf32")
    x = torch.randn(2, 64, 40, 70, device="cuda")
    if not packs(x, plain):
        pytest.skip("no kernel that packs on this GPU")
    return frozen, plain, x


def packs(x, module) -> bool:
    found = explain(
        x, module.weight, module.bias, stride=2, padding=1, precision=module.precision, backend=module.backend
    )
    return found.plan["plan"]["packed_bytes"] > 0


@torch.no_grad()
@pytest.mark.parametrize("precision", ["exact", "tf32", "tf32x3"])
def test_the_same_bits(precision):
    frozen, plain = pair(precision)
    for size in ((2, 64, 40, 70), (1, 64, 9, 11)):
        x = torch.randn(size, device="cuda")
        expected = plain(x)
        for _ in range(3):
            with SeenOps() as seen:
                result = frozen(x)
            assert torch.equal(result, expected)
            assert (PACKED in seen.names) == packs(x, plain)


LAYERS = {
    "length": ((4, 256, 600), lambda **named: convt_ext.ConvTranspose1d(256, 128, 16, stride=8, padding=4, **named)),
    "volume": ((2, 64, 8, 12, 16), lambda **named: convt_ext.ConvTranspose3d(64, 48, 2, stride=2, **named)),
    "pairs": ((2, 64, 8, 12, 16), lambda **named: convt_ext.ConvTranspose3d(64, 32, 2, stride=2, **named)),
}


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("channels_last", [False, True])
def test_one_and_three_dimensions(name, dtype, channels_last):
    size, make = LAYERS[name]
    precision = "tf32" if dtype is torch.float32 else "half"
    plain = make(device="cuda", dtype=dtype, **on_kernels(precision)).eval()
    frozen = make(device="cuda", dtype=dtype, **on_kernels(precision)).eval()
    frozen.load_state_dict(plain.state_dict())
    convt_ext.freeze(frozen)
    x = torch.randn(size, device="cuda", dtype=dtype)
    if channels_last and x.dim() == 5:
        x = x.contiguous(memory_format=torch.channels_last_3d)
    fused, expected = (convert(nn.Sequential(one, nn.SiLU()), fuse=True).eval() for one in (frozen, plain))
    for _ in range(2):
        for _ in range(2):
            with SeenOps() as seen:
                assert torch.equal(frozen(x), plain(x))
            assert torch.equal(fused(x), expected(x))
        for one in (frozen, plain):
            one.weight.mul_(0.5)
    plan = explain(x, plain.weight, plain.bias, plain.stride, plain.padding, **on_kernels(precision)).plan["plan"]
    assert (PACKED in seen.names) == (plan["packed_bytes"] > 0)


@torch.no_grad()
def test_the_copy_is_used():
    frozen, plain, x = packing_pair()
    expected = frozen(x)
    frozen.weight.data.zero_()  # what the documentation warns of
    assert torch.equal(frozen(x), expected)
    assert torch.equal(frozen.train().eval()(x)[:, :, 4:-4, 4:-4], plain.bias[:, None, None].expand(2, -1, 72, 132))


@torch.no_grad()
def test_streams_and_graphs():
    frozen, plain = pair("tf32")
    x = torch.randn(2, 64, 40, 70, device="cuda")
    expected = plain(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # before there is a copy
        first = frozen(x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        assert torch.equal(frozen(x), expected)
    assert torch.equal(frozen(x), expected)
    again = torch.cuda.CUDAGraph()
    with torch.cuda.graph(again):
        second = frozen(x)
    for one, result in ((graph, first), (again, second)):
        result.fill_(float("nan"))
        one.replay()
        assert torch.equal(result, expected)


@torch.no_grad()
@pytest.mark.parametrize("precision", ["tf32", "tf32x3"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_inputs_of_one_shape_between_vectors_and_on_them(precision, layout):
    """A kernel that wants vectors packs nothing for an input that begins between them."""
    plain = ConvTranspose2d(64, 64, 3, padding=1, device="cuda", **on_kernels(precision)).eval()
    frozen = ConvTranspose2d(64, 64, 3, padding=1, device="cuda", **on_kernels(precision)).eval()
    frozen.load_state_dict(plain.state_dict())
    convt_ext.freeze(frozen)
    shape, elements = (2, 64, 64, 64), 2 * 64 * 64 * 64
    memory = torch.randn(elements + 1, device="cuda")
    views = {at: memory.as_strided(shape, torch.empty(shape).to(memory_format=layout).stride(), at) for at in (0, 1)}
    for at in (1, 0, 1, 0):
        torch.testing.assert_close(frozen(views[at]), plain(views[at]), rtol=0, atol=0)


@torch.no_grad()
def test_a_captured_copy_outlives_its_place():
    frozen, _, x = packing_pair()
    expected = frozen(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = frozen(x)
    for height in range(5, 15):  # more sizes than copies are kept of
        frozen(torch.randn(1, 64, height, 70, device="cuda"))
    frozen.train().eval()
    spoiled = [torch.full((1 << 20,), float("nan"), device="cuda") for _ in range(8)]  # takes what was freed
    result.fill_(float("nan"))
    graph.replay()
    assert torch.equal(result, expected)
    del spoiled


def test_memory_that_is_too_small_is_refused():
    _, plain, x = packing_pair()
    call = NativeConv(((2, 2), (1, 1), (0, 0), 1, (1, 1), 3, False)).call
    packed = torch.empty(16, dtype=torch.uint8, device="cuda")
    with torch.no_grad(), pytest.raises(RuntimeError, match="packed must have"):
        ops.run_forward_packed(x, plain.weight, None, call, packed, False, [], [], [])


@torch.no_grad()
def test_a_captured_copy_is_freed_with_the_weight():
    frozen, _, x = packing_pair()
    frozen(x)
    packed = [weakref.ref(copy.memory) for copy in frozen._frozen._copies.values()]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        frozen(x)
    weight = frozen.weight
    del frozen
    gc.collect()
    assert packed[0]() is not None
    del weight, graph
    gc.collect()
    assert packed[0]() is None


@torch.no_grad()
def test_autocast_fused_and_compiled_calls():
    """The bits of the unfrozen calls, from a copy where the kernel packs, before and after a write."""
    frozen, plain = pair("tf32")
    for one in (frozen, plain):
        one.precision, one.backend = None, "convt_ext"
    x = torch.randn(2, 64, 40, 70, device="cuda")

    def lowered(module):
        with torch.autocast("cuda", torch.bfloat16):
            return module(x)

    def fused(module):
        return convt_ext.conv_transpose2d(x, module.weight, module.bias, 2, 1, backend="convt_ext", activation="relu")

    for call in (lowered, fused):
        for _ in range(2):
            expected = call(plain)
            for _ in range(2):
                with SeenOps() as seen:
                    assert torch.equal(call(frozen), expected)
            assert PACKED in seen.names
            for one in (frozen, plain):
                one.weight.mul_(0.5)


@torch.no_grad()
@pytest.mark.parametrize("lowers", [False, True])
def test_compiled_calls(monkeypatch, lowers):
    """The program runs the copy until the weight is written."""
    torch._dynamo.reset()
    monkeypatch.setattr(mode, "MODE", mode.FUSED)
    model = convert(nn.Sequential(nn.ConvTranspose2d(64, 96, 4, 2, 1), nn.ReLU()).cuda().eval())
    x = torch.randn(2, 64, 40, 70, device="cuda")

    def call(program):
        with allow_tf32(True), torch.autocast("cuda", torch.bfloat16, enabled=lowers):
            return program(x)

    if not packs_by_default(x.bfloat16() if lowers else x, model[0]):
        pytest.skip("no kernel that packs on this GPU")
    expected = call(torch.compile(model, fullgraph=True)).clone()
    convt_ext.freeze(model)
    program = torch.compile(model, fullgraph=True)
    assert torch.equal(call(program), expected)
    model[0].weight.data.zero_()  # not counted
    assert torch.equal(call(program), expected)
    model[0].weight.zero_()
    model[0].bias.zero_()
    assert not call(program).any()


def packs_by_default(x, module) -> bool:
    with allow_tf32(True):
        found = explain(x, module.weight.to(x.dtype), None, stride=2, padding=1, backend="convt_ext")
    return found.plan["plan"]["packed_bytes"] > 0

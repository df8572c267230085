"""The ops on three-dimensional layers: every candidate of every direction, class and format."""

from __future__ import annotations

import math
from math import prod
from random import Random

import pytest
import torch
import torch.nn.functional as F
from gpu.test_every_gradient_kernel import sums_with
from raw_ops import (
    DIRECTIONS,
    TENSOR_CORE_CLASSES,
    TENSOR_CORE_ENGINES,
    Call,
    GradientCall,
    assert_same_bits,
    changed,
    copy_of,
    forced,
    memory_format_of,
    nan_like,
    run_poisoned,
    words_of,
)
from seeds import SEED, generator
from volumes import KINDS, LAYERS, PATCHES, Layer, call_of, exact_of, random_layer

each_direction = pytest.mark.parametrize("direction", DIRECTIONS)
each_class = pytest.mark.parametrize("kind", KINDS)
each_format = pytest.mark.parametrize("channels_last", [False, True], ids=["ncdhw", "ndhwc"])


def on_gpu(call: Call | GradientCall) -> Call | GradientCall:
    return call.map(lambda tensor: copy_of(tensor, "cuda"))


def check_candidates(layer: Layer, kind: str, direction: str, channels_last: bool, what: str = "") -> set[str]:
    """Compares every candidate with exact sums of integers, and returns their engines. NaN is in the result's and the
    workspace's memory, and in shared memory, before."""
    call = on_gpu(call_of(layer, kind, channels_last, direction))
    exact = exact_of(layer, direction).to(KINDS[kind][0])
    full_of_nan, engines = call.map(nan_like), set()
    for number, plan in forced(call):
        words = f"{what} {words_of(number, plan)}"
        full_of_nan.run(number)
        result = run_poisoned(call, exact.numel(), number, plan["workspace_bytes"])
        assert_same_bits(result + 0.0, exact + 0.0, words)
        assert result.is_contiguous(memory_format=memory_format_of(channels_last, 5)), words
        if plan["gives_grad_bias"]:
            torch.full((layer.size[2],), torch.nan, device="cuda", dtype=result.dtype)
            of_weight, of_bias = call.run_with_bias(number)
            assert_same_bits(of_weight, result, words)
            assert_same_bits(of_bias + 0.0, call.grad_output.double().sum((0, 2, 3, 4)).to(result.dtype) + 0.0, words)
        engines.add(plan["engine"])
    assert_same_bits(call.run() + 0.0, exact + 0.0, what)
    return engines


@each_format
@each_direction
@each_class
@pytest.mark.parametrize("layer", [*PATCHES, *LAYERS])
def test_every_candidate_is_right(layer, kind, direction, channels_last):
    engines = check_candidates({**PATCHES, **LAYERS}[layer], kind, direction, channels_last)
    hopper = torch.cuda.get_device_capability() == (9, 0)
    if kind in TENSOR_CORE_CLASSES and (kind, direction) != ("tf32x3", "grad_weight") and hopper and layer == "nnunet":
        assert engines & set(TENSOR_CORE_ENGINES)


@each_direction
@each_class
def test_every_candidate_of_random_layers(kind, direction):
    rng = generator("volumes", kind, direction)
    for _ in range(8):
        layer, channels_last = random_layer(rng, 200_000), rng.random() < 0.5
        check_candidates(layer, kind, direction, channels_last, f"CONVT_TEST_SEED={SEED}: {layer},")


@each_format
@each_direction
@pytest.mark.parametrize("kind", ["ieee_f32", "aten_f32", "tf32", "f16"])
@pytest.mark.parametrize("layer", ["odd", "groups", "k442", "k3s2", "gaps"])
def test_nan_and_inf_reach_exactly_their_results(layer, kind, direction, channels_last):
    """Random numbers, so that no product of Inf is NaN."""
    clean = call_of({**PATCHES, **LAYERS}[layer], kind, channels_last, direction, integers=False)
    names = ("x", "weight") if direction == "forward" else ("grad_output", "other")
    for name, value in ((name, value) for name in names for value in (math.nan, math.inf)):
        tensor = getattr(clean, name)
        index = tuple(Random(f"{layer} {name} {value}").randrange(size) for size in tensor.shape)
        reached = results_with(clean, name, index)
        wrong, right = on_gpu(clean.replace(**{name: changed(tensor, index, value)})), on_gpu(clean)
        for number, plan in forced(wrong):
            words = f"{value} in {name}{list(index)}, {words_of(number, plan)}"
            result, expected = wrong.run(number), right.run(number)
            tensor_cores = plan["engine"] in TENSOR_CORE_ENGINES
            if tensor_cores and direction != "grad_weight" and name in ("weight", "other"):
                assert not result[reached].isfinite().any(), words  # it may reach more results at the border
            elif tensor_cores and direction == "grad_weight":  # terms at the border are added in another way
                assert torch.equal(~result.isfinite(), reached), words
                both = (one.masked_fill(reached, 0) for one in (result, expected))
                torch.testing.assert_close(*both, rtol=1e-2, atol=5e-2, msg=words)
            else:
                assert torch.equal(result.isnan() if math.isnan(value) else result.isinf(), reached), words
                assert_same_bits(result.masked_fill(reached, 0), expected.masked_fill(reached, 0), words)


def results_with(call: Call | GradientCall, name: str, index: tuple[int, ...]) -> torch.Tensor:
    """True where a result has a term of that element."""
    if isinstance(call, GradientCall):
        return sums_with(call, name, index)
    ones = call.replace(bias=None).map(lambda tensor: torch.ones(tensor.shape, dtype=torch.float64))
    marked = torch.zeros_like(getattr(ones, name))
    marked[index] = 1
    return (ones.replace(**{name: marked}).torch() > 0.5).cuda()


LARGE = {
    "k3": (Layer((1, 2, 2, 257, 2048, 2056), (3, 3, 3), (1, 1, 1), (1, 1, 1)), "ieee_f16"),
    "k2": (Layer((1, 16, 16, 65, 512, 514), (2, 2, 2)), "f16"),
}


@each_format
@each_direction
@pytest.mark.parametrize("name", LARGE)
def test_more_than_2_to_the_31_elements(room, name, direction, channels_last):
    """Integers: half of the planes by a call of their own; the gradient of the weight of one corner of grad_output."""
    layer, kind = LARGE[name]
    (dtype, precision), memory = KINDS[kind], memory_format_of(channels_last, 5)
    stride, halo, middle = layer.arguments["stride"][0], layer.p[0], layer.size[3] // 2
    n, c_in, c_out, *size = layer.size
    of_x, of_gy = (n, c_in, *size), (n, c_out, *layer.output)
    assert prod(of_gy) > 2**31
    room(2 * (2 * prod(of_x) + 4 * prod(of_gy)))
    torch.manual_seed(0)
    x, gy = (torch.empty(one, dtype=dtype, device="cuda", memory_format=memory) for one in (of_x, of_gy))
    for plane in (*x.unbind(2), *gy.unbind(2)):
        plane.random_(-2, 3)
    weight = torch.randint(-2, 3, (c_in, c_out, *layer.k), device="cuda").to(dtype)

    def call(x: torch.Tensor, gy: torch.Tensor) -> Call | GradientCall:
        made = Call(x, weight, None, **layer.arguments, precision=precision, channels_last=channels_last)
        if direction == "forward":
            return made
        return GradientCall(direction, gy, weight if direction == "grad_input" else x, made, channels_last)

    if direction == "grad_weight":
        corner = gy[:, :, -2:, -20:, -30:].clone()
        for plane in gy.unbind(2):
            plane.zero_()
        gy[:, :, -2:, -20:, -30:] = corner
        last = (tensor[:, :, -4 * s :, -22 * s :, -32 * s :] for tensor, s in ((x, 1), (gy, stride)))
        expected = call(*last).map(lambda tensor: tensor.cpu().double()).torch().to(dtype).cuda()
        assert torch.equal(call(x, gy).run(), expected)
        return
    result = call(x, gy).run()
    scale = stride if direction == "forward" else 1
    for begin, end in ((0, middle), (middle, size[0])):
        first, last = max(begin - halo, 0), min(end + halo, size[0])
        part = call(
            x[:, :, first:last].contiguous(memory_format=memory),
            gy[:, :, first * stride : last * stride].contiguous(memory_format=memory),
        )
        found = part.run()[:, :, (begin - first) * scale :][:, :, : (end - begin) * scale]
        assert torch.equal(found, result[:, :, begin * scale : end * scale]), (begin, end)


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

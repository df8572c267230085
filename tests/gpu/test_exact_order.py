"""Every bit of the result: against the scalar oracle, against PyTorch's own kernels, and against itself."""

from __future__ import annotations

import dataclasses
import random

import oracle.plugin
import pytest
import torch
from cases import CASES, LAYOUTS, STAGED_CASES, Case, each_case
from raw_ops import CLASSES, DIRECTIONS, Call, GradientCall, assert_same_bits, copy_of, forced, words_of
from seeds import SEED, generator
from served import cudnn, switch, tf32
from volumes import call_of, random_layer

each_class = pytest.mark.parametrize("kind", CLASSES)

# 20 problems a block, for each class: 240 in float32 `ieee`, and as many in every other.
BLOCKS, PROBLEMS_PER_BLOCK = 12, 20
MOST_PRODUCTS = 2_000_000  # of one problem, for the scalar loop's sake


def random_case(rng: random.Random) -> Case:
    """A small problem with every argument at random."""
    while True:
        groups = rng.choice([1, 1, 1, 2, 3])
        kernel = (rng.choice([1, 2, 3, 4, 5, 7]), rng.choice([1, 2, 3, 4, 5, 7]))
        strides = [1] if rng.random() < 0.3 else [1, 1, 2, 3, 4, 5]
        stride = (rng.choice(strides), rng.choice(strides))
        dilation = tuple(rng.choice([1, 1, 2, 3, one, 2 * one]) for one in stride)
        case = Case(
            "random", "", n=rng.choice([1, 1, 2, 3, 5]), c_in=groups * rng.choice([1, 2, 3, 5, 8, 17]),
            c_out=groups * rng.choice([1, 2, 3, 8, 9, 20]), h=rng.choice([1, 2, 3, 4, 5, 9, 17, 40]),
            w=rng.choice([1, 2, 3, 4, 7, 8, 17, 40]), k=kernel, s=stride, d=dilation, g=groups,
            p=tuple(rng.randint(0, one + 1) for one in kernel),
            op=tuple(rng.randint(0, max(pair) - 1) for pair in zip(stride, dilation, strict=True)),
            bias=rng.random() < 0.5,
        )  # fmt: skip
        _, c_out, oh, ow = case.output_size
        products = case.n * c_out * case.c_in // groups * case.h * case.w * kernel[0] * kernel[1]
        if oh > 0 and ow > 0 and products <= MOST_PRODUCTS and oh * ow <= 40_000:
            return case


def random_call(rng: random.Random, kind: str) -> tuple[Call, str]:
    """A random problem on the GPU in random layouts, and how to name it when it fails."""
    case, seed = random_case(rng), rng.randrange(2**31)
    x_layout, weight_layout = rng.choice(LAYOUTS), rng.choice(LAYOUTS)
    dtype, precision = CLASSES[kind]
    call = Call.of(dataclasses.replace(case, layout=x_layout), dtype, precision, rng.random() < 0.4, seed=seed)
    weight = dataclasses.replace(case, layout=weight_layout).tensors(dtype, device="cuda", seed=seed)[1]
    bias = call.bias
    if bias is not None and rng.random() < 0.3:
        bias = torch.stack([bias, bias], dim=1)[:, 0]
    words = f"CONVT_TEST_SEED={SEED}: {case}, input {x_layout}, weight {weight_layout}, values of seed {seed}"
    return call.replace(weight=weight, bias=bias), words


def by_oracle(module, call: Call | GradientCall) -> torch.Tensor:
    """The result, or the gradient of the input."""
    on_cpu = call.map(torch.Tensor.cpu)
    if isinstance(on_cpu, GradientCall):
        tensors, names = (on_cpu.grad_output, on_cpu.other, on_cpu.call.x.shape[2:]), on_cpu.call.arguments
        del names["output_padding"]
        return oracle.plugin.grad_input(module, *tensors, **names)
    tensors = (on_cpu.x, on_cpu.weight, on_cpu.bias)
    return oracle.plugin.forward(module, *tensors, **call.arguments, order=call.precision)


@each_class
@pytest.mark.parametrize("block", range(BLOCKS))
def test_random_problems_equal_the_oracle(oracle, kind, block):
    """The planner's choice equals the scalar loop, and every other candidate equals the planner's choice."""
    rng = generator(kind, block)
    for _ in range(PROBLEMS_PER_BLOCK):
        call, problem = random_call(rng, kind)
        expected = by_oracle(oracle, call).cuda()
        assert_same_bits(call.run(), expected, problem)
        for index, plan in enumerate(call.candidates()):
            assert_same_bits(call.run(index), expected, f"{problem}, candidate {index}: {plan}")


@each_class
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_random_volumes(oracle, kind, direction):
    """Every candidate equals the scalar loop; the gradient of the weight is within its bound, the same on every run."""
    rng = generator("volumes", kind, direction)
    for _ in range(20):
        layer, seed, channels_last = random_layer(rng, 200_000), rng.randrange(2**31), rng.random() < 0.5
        on_cpu = call_of(layer, kind, channels_last, direction, integers=False, seed=seed)
        call = on_cpu.map(lambda tensor: copy_of(tensor, "cuda"))
        problem = f"CONVT_TEST_SEED={SEED}: {layer}, channels_last {channels_last}, values of seed {seed}"
        if direction == "grad_weight":
            changes = (torch.clone, torch.abs, torch.ones_like)
            exact, size, terms = (on_cpu.map(torch.Tensor.double).map(change).torch() for change in changes)
            # In float64 the exact sum is not exact; its error has the same bound.
            unit = 2 * 2.0**-53 if kind == "ieee_f64" else 2.0**-24
            half_unit = {"ieee_f16": 2.0**-11, "ieee_bf16": 2.0**-8}.get(kind, 0.0)
            bound = 1.001 * ((terms + 2) * unit * size + half_unit * exact.abs()) + 2.0**-25 * (kind == "ieee_f16")
        else:
            expected = by_oracle(oracle, on_cpu)
        for number, plan in forced(call):
            result, words = call.run(number), f"{problem}, {words_of(number, plan)}"
            if direction == "grad_weight":
                assert ((result.cpu().double() - exact).abs() <= bound).all(), words
                expected = call.run(number)
            assert_same_bits(result, expected, words)


@each_class
@pytest.mark.parametrize("case", [*CASES, *STAGED_CASES], ids=lambda case: case.name)
def test_cases_equal_the_oracle(oracle, case, kind):
    dtype, precision = CLASSES[kind]
    expected = None
    for channels_last in (False, True):
        call = Call.of(case, dtype, precision, channels_last)
        expected = by_oracle(oracle, call) if expected is None else expected
        assert_same_bits(call.run(), expected, f"channels_last {channels_last}")


@pytest.mark.parametrize("precision", ["ieee", "aten"])
@each_case("plain", "k4s2p1", "odd_sizes", "gcd_2", "many_channels_in", "channels_last")
def test_subnormal_products_equal_the_oracle(oracle, case, precision):
    """Products of about 2^-140: subnormal numbers are not flushed to zero, and signs of zeros are right."""
    call = Call.of(case, torch.float32, precision)
    x, weight, bias = call.x * 2.0**-70, call.weight * 2.0**-70, call.bias
    call = call.replace(x=x, weight=weight, bias=None if bias is None else bias * 2.0**-140)
    expected = by_oracle(oracle, call)
    assert expected.abs().max() < 2.0**-120
    assert_same_bits(call.run(), expected)


# Layers on which one order of the sums is known to be PyTorch's, at a size at which that was found.
LAYERS = {
    case.name: case
    for case in (
        Case("kb57", "3x3", n=1, c_in=64, c_out=64, h=128, w=128),
        Case("kb71", "3x3, 32 channels", n=1, c_in=32, c_out=32, h=256, w=512),
        Case("kb75", "grouped", n=2, c_in=32, c_out=64, h=128, w=256, k=(3, 5), s=(2, 3), p=(1, 2), g=4, d=(2, 1)),
        # At 64x64, and at larger batches, cuDNN 9.19 picks an algorithm that sums in another order.
        Case("k3s2p1op1", "strided", n=1, c_in=16, c_out=16, h=32, w=32, s=(2, 2), p=(1, 1), op=(1, 1)),
        Case("kb69", "3x5", n=2, c_in=64, c_out=128, h=128, w=256, k=(3, 5)),
        Case("kb81", "empty phases", n=2, c_in=32, c_out=64, h=64, w=128, s=(5, 5), p=(1, 1), d=(2, 2)),
    )
}


def layer(name: str, bias: bool, precision: str = "ieee") -> Call:
    return Call.of(dataclasses.replace(LAYERS[name], bias=bias), torch.float32, precision)


@pytest.mark.parametrize("bias", [False, True], ids=["no_bias", "bias"])
@pytest.mark.parametrize("name", ["kb57", "kb71", "kb75", "k3s2p1op1"])
def test_ieee_equals_cudnn(name, bias):
    call = layer(name, bias)
    with tf32(False), switch(torch.backends.cudnn, "benchmark", False):
        expected = call.torch()
    assert_same_bits(call.run(), expected)


@pytest.mark.parametrize("bias", [False, True], ids=["no_bias", "bias"])
@pytest.mark.parametrize("name", LAYERS)
def test_aten_equals_pytorch_without_cudnn(name, bias):
    call = layer(name, bias, "aten")
    with cudnn(False), switch(torch.backends.cuda.matmul, "fp32_precision", "ieee"):
        expected = call.torch()
    assert_same_bits(call.run(), expected)


@pytest.mark.parametrize("precision", ["ieee", "aten"])
@pytest.mark.parametrize("name", LAYERS)
def test_every_candidate_of_a_layer_has_the_same_bits(name, precision):
    call = layer(name, True, precision)
    for channels_last in (False, True):
        call = call.replace(channels_last=channels_last)
        expected = call.run()
        for index, plan in enumerate(call.candidates()):
            assert_same_bits(call.run(index), expected, f"candidate {index}: {plan}")


def in_batches(case: Case, kind: str, channels_last: bool) -> Call:
    dtype, precision = CLASSES[kind]
    return Call.of(dataclasses.replace(case, n=8), dtype, precision, channels_last)


@each_class
@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize(
    "case",
    [
        *(case for case in CASES if case.name in ("plain", "k4s2p1", "kb75", "input_1x1", "many_channels_in", "gcd_2")),
        Case("kb57_small", "several tiles an image", c_in=64, c_out=64, h=32, w=40),
    ],
    ids=lambda case: case.name,
)
def test_batch_size_does_not_change_a_bit(case, kind, channels_last):
    call = in_batches(case, kind, channels_last)
    together = call.run()
    for n in range(8):
        assert_same_bits(call.replace(x=call.x[n : n + 1]).run(), together[n : n + 1], f"image {n}")
    assert_same_bits(call.replace(x=call.x[3:]).run(), together[3:])


@each_class
@pytest.mark.parametrize("name", LAYERS)
def test_second_run_has_the_same_bits(name, kind):
    dtype, precision = CLASSES[kind]
    call = Call.of(LAYERS[name], dtype, precision)
    first = call.run()
    for _ in range(4):
        assert_same_bits(call.run(), first)

"""The gradients' kernels: every candidate plan of every case and direction, in every dtype and format.

The gradient of the input is compared bit for bit with the scalar oracle; the gradients of weight and bias with exact
integer sums, and by their errors against float64. NaN lies in the result's memory, and in shared memory, before.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import random

import oracle.plugin
import pytest
import torch
from cases import CASES, LAYOUTS, STAGED_CASES, Case, each_case
from gpu.test_every_kernel import element
from gpu.test_exact_order import random_case
from raw_ops import (
    DTYPES,
    Call,
    GradientCall,
    assert_same_bits,
    bits,
    changed,
    copy_of,
    nan_like,
    numbered,
    run_poisoned,
    same_bits,
)
from seeds import SEED, generator

DIRECTIONS = ("grad_input", "grad_weight")
SUFFIXES = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16"}
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: SUFFIXES[dtype])
each_direction = pytest.mark.parametrize("direction", DIRECTIONS)
every_case = pytest.mark.parametrize("case", [*CASES, *STAGED_CASES], ids=lambda case: case.name)


def on_gpu(call: Call) -> Call:
    """The call's tensors on the GPU with their very strides."""
    return call.map(lambda tensor: copy_of(tensor, "cuda"))


def in_format(gradient: GradientCall, channels_last: bool) -> GradientCall:
    """grad_output and result in that format."""
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    grad_output = gradient.grad_output.contiguous(memory_format=memory_format)
    return gradient.replace(grad_output=grad_output, channels_last=channels_last)


@functools.lru_cache(maxsize=8)
def integers(case: Case, dtype: torch.dtype, direction: str) -> tuple[GradientCall, torch.Tensor]:
    """A gradient of small integers on the GPU, and the exact result, which every order of the sums gives."""
    call = Call(*case.tensors(dtype, integers=True), **case.arguments)
    exact = GradientCall.of(direction, call, integers=True).map(torch.Tensor.double).torch()
    return GradientCall.of(direction, on_gpu(call), integers=True), exact.to(dtype).cuda()


def input_by_oracle(module, call: Call, gradient: GradientCall) -> torch.Tensor:
    """The documented order of the gradient of the input."""
    tensors = (gradient.grad_output.cpu(), gradient.other.cpu())
    size = (call.x.shape[2], call.x.shape[3])
    return oracle.plugin.grad_input(module, *tensors, size, call.stride, call.padding, call.groups, call.dilation)


@each_dtype
@each_direction
@every_case
def test_every_candidate_is_right(case, direction, dtype):
    gradient, exact = integers(case, dtype, direction)
    for channels_last in (False, True):
        call = in_format(gradient, channels_last)
        full_of_nan = call.map(nan_like)
        for number, plan in numbered(call):
            full_of_nan.run(number)  # leaves NaN in shared memory, where what does not exist is not loaded
            result = run_poisoned(call, exact.numel(), number)
            # +0: a sum of integers may be -0 in one order and +0 in another.
            assert_same_bits(result + 0.0, exact + 0.0, f"channels_last {channels_last}, {plan}")
            expected_format = torch.channels_last if channels_last else torch.contiguous_format
            assert result.is_contiguous(memory_format=expected_format)


@each_dtype
@every_case
def test_grad_input_has_the_documented_bits(oracle, case, dtype):
    call = Call.of(case, dtype, device="cpu")
    gradient = GradientCall.of("grad_input", on_gpu(call))
    expected = input_by_oracle(oracle, call, gradient)
    for channels_last in (False, True):
        formatted = in_format(gradient, channels_last)
        for number, plan in numbered(formatted):
            assert_same_bits(formatted.run(number), expected, f"channels_last {channels_last}, {plan}")


@each_dtype
@pytest.mark.parametrize("block", range(6))
def test_grad_input_of_random_problems(oracle, block, dtype):
    """Any arguments, sizes and strides."""
    rng = generator("grad_input", dtype, block)
    for _ in range(15):
        case, seed = random_case(rng), rng.randrange(2**31)
        call = Call.of(dataclasses.replace(case, layout=rng.choice(LAYOUTS)), dtype, device="cpu", seed=seed)
        gradient = GradientCall.of("grad_input", on_gpu(call), seed).replace(channels_last=rng.random() < 0.5)
        gradient = strided(gradient, rng)
        expected = input_by_oracle(oracle, call, gradient)
        assert_same_bits(gradient.run(), expected, named_problem(case, gradient, seed))


def named_problem(case: Case, gradient: GradientCall, seed: int) -> str:
    strides = gradient.grad_output.stride()
    return f"CONVT_TEST_SEED={SEED}: {case}, values of seed {seed}, strides of grad_output {strides}"


def strided(gradient: GradientCall, rng: random.Random) -> GradientCall:
    """The same grad_output in other strides, or one value for each image and channel with strides of 0."""
    grad_output = gradient.grad_output
    kind = rng.choice(["dense", "channels_last", "transposed", "step", "expanded"])
    if kind == "channels_last":
        grad_output = grad_output.contiguous(memory_format=torch.channels_last)
    elif kind == "transposed":
        grad_output = grad_output.transpose(2, 3).contiguous().transpose(2, 3)
    elif kind == "step":
        wide = grad_output.new_full((*grad_output.shape[:3], 2 * grad_output.shape[3]), math.nan)
        wide[..., ::2] = grad_output
        grad_output = wide[..., ::2]
    elif kind == "expanded":
        grad_output = grad_output[:, :, :1, :1].expand_as(grad_output)
    return gradient.replace(grad_output=grad_output)


@pytest.mark.parametrize("block", range(6))
def test_grad_weight_of_random_problems(block):
    """Exact sums of integers for any arguments, sizes and strides."""
    rng = generator("grad_weight", block)
    for _ in range(15):
        case, seed = random_case(rng), rng.randrange(2**31)
        layout = rng.choice(LAYOUTS)
        call = Call(*dataclasses.replace(case, layout=layout).tensors(integers=True, seed=seed), **case.arguments)
        gradient = strided(GradientCall.of("grad_weight", on_gpu(call), seed, integers=True), rng)
        gradient = gradient.replace(channels_last=rng.random() < 0.5)
        on_cpu = gradient.map(torch.Tensor.cpu)
        exact = on_cpu.map(torch.Tensor.double).torch().float()
        what = f"{named_problem(case, gradient, seed)}, input {layout}"
        assert_same_bits(gradient.run().cpu() + 0.0, exact + 0.0, what)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=lambda dtype: SUFFIXES[dtype])
@each_case("k4s2p1", "odd_sizes", "kb75", "batch_17", "channels_last", "depthwise", "fsrcnn")
def test_error_of_grad_weight(case, dtype):
    """At most twice PyTorch's own, against float64 (where the reference would be PyTorch itself)."""
    call = Call.of(dataclasses.replace(case, n=8, h=40, w=44), dtype)
    gradient = GradientCall.of("grad_weight", call)
    exact = gradient.map(torch.Tensor.double).torch()
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        theirs = (gradient.torch().double() - exact).norm() / exact.norm()
    for number, plan in numbered(gradient):
        ours = (gradient.run(number).double() - exact).norm() / exact.norm()
        assert ours <= 2 * theirs, (ours.item(), theirs.item(), plan)


def with_other_strides(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements, where axes of size 1 have strides that lead nowhere."""
    strides = [1 + 7 * axis if size == 1 else tensor.stride(axis) for axis, size in enumerate(tensor.shape)]
    return tensor.as_strided(tensor.shape, strides)


def signal(tensor: torch.Tensor) -> torch.Tensor:
    """The same values as 1-D signals in channels_last are: rows and columns exchanged for it, channels innermost."""
    n, c, h, w = tensor.shape
    lines = tensor.permute(0, 2, 3, 1).reshape(n, h * w, c)
    return lines.transpose(1, 2).unsqueeze(-1)


# Of dense NCHW values to a tensor of their shape, or with the same pixels in other rows.
BIAS_LAYOUTS = {
    "dense": lambda t: t,
    "channels_last": lambda t: torch.empty_like(t, memory_format=torch.channels_last).copy_(t),
    "transposed": lambda t: t.transpose(2, 3).contiguous().transpose(2, 3),
    "step": lambda t: t.repeat_interleave(2, 3)[..., ::2],
    "channels_first": lambda t: t.transpose(0, 1).contiguous().transpose(0, 1),
    "images_last": lambda t: t.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2),
    "padded_lines": lambda t: torch.nn.functional.pad(t, (0, 3), value=math.nan)[..., : t.shape[3]],
    "padded_images": lambda t: torch.nn.functional.pad(t, (0, 0, 0, 2), value=math.nan)[:, :, : t.shape[2]],
    "channel_slice": lambda t: torch.nn.functional.pad(t, (0, 0, 0, 0, 1, 2), value=math.nan)[:, 1:-2],
    "other_strides": with_other_strides,
    "other_strides_last": lambda t: with_other_strides(t.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)),
    "signal": signal,
    "signal_rows": lambda t: signal(t).transpose(2, 3),
    "expanded": lambda t: t[:, :, :1, :1].expand(t.shape),  # the gradient of a mean over the image
    "expanded_rows": lambda t: t[:, :, :1].expand(t.shape),
    "expanded_columns": lambda t: t[..., :1].expand(t.shape),
    "expanded_images": lambda t: t[:1].expand(t.shape),
    "expanded_channels": lambda t: t[:, :1].expand(t.shape),
    "one_value": lambda t: t[:1, :1, :1, :1].expand(t.shape),  # that of a sum over everything
}


@each_dtype
@pytest.mark.parametrize(
    "shape",
    [
        (2, 5, 7, 9), (1, 64, 33, 1), (3, 1, 64, 64), (2, 300, 17, 5), (64, 3, 90, 91),
        # Axes of size 1, whose strides mean nothing: signals, rows, single images and pixels.
        (4, 6, 50, 1), (4, 6, 1, 50), (1, 3, 1, 40), (1, 5, 7, 9), (5, 7, 1, 1), (1, 1, 1, 1), (1, 40, 1, 1),
        (1, 1, 9000, 1), (3, 2, 6000, 1), (3, 2, 1, 6000),
    ],
    ids=str,
)  # fmt: skip
def test_grad_bias(shape, dtype):
    """Sums of integers, which every order of them gives."""
    values = torch.randint(-1, 2, shape, generator=torch.Generator().manual_seed(0)).to("cuda", dtype)
    values[0, 0, 0, 0] = 1  # what is expanded is not 0
    for layout, lay_out in BIAS_LAYOUTS.items():
        grad_output = lay_out(values)
        what = f"{layout}, strides {grad_output.stride()}"
        result = torch.ops.convt_ext.grad_bias(grad_output)
        assert_same_bits(result, grad_output.double().sum((0, 2, 3)).to(dtype), what)
        assert_same_bits(torch.ops.convt_ext.grad_bias(grad_output), result, what)


@pytest.mark.parametrize("shape", [(3, 5, 70, 1), (3, 5, 1, 70), (1, 5, 31, 29), (2, 8, 31, 29)], ids=str)
def test_error_of_grad_bias(shape):
    """Of values that are no integers, against float64: a sum of n takes n roundings at most."""
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0)).cuda()
    for layout, lay_out in BIAS_LAYOUTS.items():
        grad_output = lay_out(values)
        exact, magnitude = (tensor.double().sum((0, 2, 3)) for tensor in (grad_output, grad_output.abs()))
        bound = grad_output.numel() // grad_output.shape[1] * 2.0**-24 * magnitude
        error = (torch.ops.convt_ext.grad_bias(grad_output).double() - exact).abs()
        assert (error <= bound).all(), f"{layout}, strides {grad_output.stride()}: {(error / bound).max()} of the bound"


@each_dtype
@each_direction
@each_case("k4s2p1", "kb75", "many_channels_in", "depthwise", "batch_17")
def test_second_run_has_the_same_bits(case, direction, dtype):
    gradient = GradientCall.of(direction, Call.of(dataclasses.replace(case, h=30, w=31), dtype))
    for number, plan in numbered(gradient):
        first = gradient.run(number)
        assert all(same_bits(gradient.run(number), first) for _ in range(3)), plan


def sums_with(gradient: GradientCall, name: str, index: tuple[int, ...]) -> torch.Tensor:
    """True where an element of the result has a term of that element of `grad_output` or `other`."""
    ones = gradient.map(lambda tensor: torch.ones(tensor.shape, dtype=torch.float64))
    marked = torch.zeros_like(getattr(ones, name))
    marked[index] = 1
    ones = ones.replace(**{name: marked})
    call = ones.call
    if name == "other":
        call = call.replace(**{"weight" if gradient.direction == "grad_input" else "x": marked})
    return (ones.replace(call=call).torch() > 0.5).cuda()


@each_direction
@each_case(
    "plain", "k4s2p1", "odd_sizes", "kb75", "kb81", "gcd_2", "padding_over_kernel", "channels_last", "wide_row",
    "depthwise", "depthwise_nhwc", "depthwise_blocks",
)  # fmt: skip
@pytest.mark.parametrize("name", ["grad_output", "other"])
def test_nan_and_inf_reach_exactly_their_sums(case, name, direction):
    """Nothing that lies outside a tensor is multiplied, not even by zero."""
    clean = in_format(GradientCall.of(direction, Call.of(case)), case.layout == "channels_last")
    for place in ("first", "middle", "last"):
        index = element(getattr(clean, name), place)
        reached = sums_with(clean, name, index)
        for value in (math.nan, math.inf):
            gradient = clean.replace(**{name: changed(getattr(clean, name), index, value)})
            for number, plan in numbered(gradient):
                result = gradient.run(number)
                what = f"{value} in {name}{list(index)}, {plan}"
                assert torch.equal(result.isnan() if math.isnan(value) else result.isinf(), reached), what
                expected = clean.run(number)
                assert same_bits(result.masked_fill(reached, 0), expected.masked_fill(reached, 0)), what


def test_more_than_2_to_the_31_elements(room):
    """float16, 3 images of 3 x 15778 x 15802: of the input's gradient both ends, of the others integer sums."""
    n, c_in, c_out, h, w = 3, 2, 3, 7889, 7901
    numel = n * c_out * 2 * h * 2 * w
    room(2 * (2 * numel + 2 * n * c_in * h * w) + 2**30)
    assert numel > 2**31
    grad_output = torch.zeros(n, c_out, 2 * h, 2 * w, device="cuda", dtype=torch.float16)
    x = torch.zeros(n, c_in, h, w, device="cuda", dtype=torch.float16)
    weight = torch.randn(c_in, c_out, 4, 4, generator=torch.Generator().manual_seed(0)).to("cuda", torch.float16)
    # Data in the last rows and columns of the last image alone, beyond element 2^31.
    corner = torch.randint(-2, 3, (c_out, 40, 50), generator=torch.Generator().manual_seed(1)).to("cuda", torch.float16)
    grad_output[-1, :, -40:, -50:] = corner
    x_corner = torch.randint(-2, 3, (c_in, 20, 25), generator=torch.Generator().manual_seed(2)).to(
        "cuda", torch.float16
    )
    x[-1, :, -20:, -25:] = x_corner
    lists = ([2, 2], [1, 1], [0, 0], 1, [1, 1], 0, False)
    grad_input = torch.ops.convt_ext.grad_input(grad_output, weight, *lists)
    small = torch.zeros(1, c_out, 60, 70, device="cuda", dtype=torch.float16)
    small[0, :, -40:, -50:] = corner
    expected = torch.ops.convt_ext.grad_input(small, weight, *lists)
    assert_same_bits(grad_input[-1:, :, -30:, -35:].contiguous(), expected)
    assert not bits(grad_input[0]).any()
    small_x = torch.zeros(1, c_in, 30, 35, device="cuda", dtype=torch.float16)
    small_x[0, :, -20:, -25:] = x_corner
    assert_same_bits(
        torch.ops.convt_ext.grad_weight(grad_output, x, *lists) + 0.0,
        torch.ops.convt_ext.grad_weight(small, small_x, *lists) + 0.0,
    )
    assert_same_bits(torch.ops.convt_ext.grad_bias(grad_output), corner.double().sum((1, 2)).half())


@each_direction
def test_workspace_is_bounded(direction):
    """256 MiB, whatever the problem; kernels for the gradient of the input need none."""
    layers = [
        Call(torch.empty(64, 64, 128, 256, device="cuda"), torch.empty(64, 128, 3, 5, device="cuda"), None),
        Call(torch.empty(2, 1024, 8, 8, device="cuda"), torch.empty(1024, 512, 4, 4, device="cuda"), None, (2, 2)),
    ]
    for call in layers:
        for plan in GradientCall(direction, torch.empty(1, device="cuda"), call.weight, call).candidates():
            assert plan["workspace_bytes"] <= 2**28 if direction == "grad_weight" else plan["workspace_bytes"] == 0


def test_empty_batch():
    x, weight = torch.empty(0, 2, 3, 3, device="cuda"), torch.ones(2, 3, 2, 2, device="cuda")
    grad_output = torch.empty(0, 3, 4, 4, device="cuda")
    lists = ([1, 1], [0, 0], [0, 0], 1, [1, 1], 0, False)
    assert torch.ops.convt_ext.grad_input(grad_output, weight, *lists).shape == x.shape
    assert not torch.ops.convt_ext.grad_weight(grad_output, x, *lists).any()
    assert not torch.ops.convt_ext.grad_bias(grad_output).any()


@pytest.mark.parametrize(
    ("op", "size", "other_size", "words"),
    [
        ("grad_input", (1, 3, 5, 5), (2, 3, 3, 3), "no input gives grad_output's size 5 along H"),
        ("grad_weight", (1, 3, 2, 2), (1, 2, 3, 3), "no weight gives grad_output's size 2 along H"),
        ("grad_input", (1, 4, 6, 6), (2, 3, 3, 3), r"grad_output.size\(1\) must be 3"),
    ],
)
def test_sizes_that_do_not_fit(op, size, other_size, words):
    tensors = [torch.ones(one, device="cuda") for one in (size, other_size)]
    stride = [3, 3]
    with pytest.raises(RuntimeError, match=words):
        getattr(torch.ops.convt_ext, op)(*tensors, stride, [0, 0], [0, 0], 1, [1, 1], 0, False)

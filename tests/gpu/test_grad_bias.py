"""The gradient of the bias where the kernel of the gradient of the weight gives it, of every such plan."""

from __future__ import annotations

import pytest
import torch
from cases import Case
from raw_ops import Call, GradientCall, assert_same_bits

DTYPES = {"tf32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
CASES = (
    Case("same", "stride 1", n=2, c_in=136, c_out=72, h=19, w=40, k=(3, 3), p=(1, 1)),
    Case("doubled", "covering taps are of two runs", n=3, c_in=70, c_out=80, h=9, w=24, k=(4, 4), s=(2, 2), p=(1, 1)),
    Case("odd", "output padding", n=2, c_in=64, c_out=40, h=12, w=17, k=(3, 3), s=(2, 2), p=(1, 1), op=(1, 1)),
    Case("patches", "kernel is stride", n=3, c_in=130, c_out=66, h=16, w=48, k=(2, 2), s=(2, 2)),
    Case("quarters", "kernel is stride, 4", n=2, c_in=96, c_out=64, h=10, w=20, k=(4, 4), s=(4, 4)),
    Case("groups", "few output channels", n=2, c_in=96, c_out=64, h=14, w=32, k=(5, 3), p=(2, 1), g=2),
    Case("fewer", "16 output channels, dilated", n=2, c_in=48, c_out=16, h=15, w=24, k=(3, 5), p=(2, 2), d=(2, 1)),
    Case("apart", "first rows and columns no tap has", n=8, c_in=64, c_out=64, h=256, w=256, k=(3, 3)),
    Case("packed", "some images a launch", n=5, c_in=64, c_out=48, h=13, w=15, k=(3, 3), p=(1, 1)),
)  # fmt: skip
each_kind = pytest.mark.parametrize("kind", DTYPES)


def gradient_of(case: Case, kind: str, channels_last: bool, integers: bool) -> GradientCall:
    precision = "tf32" if kind == "tf32" else "half"
    call = Call(*case.tensors(DTYPES[kind], integers=integers), **case.arguments, precision=precision)
    gradient = GradientCall.of("grad_weight", call, integers=integers).map(torch.Tensor.cuda)
    if channels_last:
        x = gradient.other.contiguous(memory_format=torch.channels_last)
        gradient = gradient.replace(other=x, call=gradient.call.replace(x=x))
    return gradient.in_layout(channels_last)


def both_of(gradient: GradientCall, candidate: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of weight and bias, whose results lie on NaN."""
    call = gradient.call
    for numel in (call.weight.numel(), call.weight.shape[1] * call.groups):
        torch.full((numel,), torch.nan, device="cuda", dtype=call.x.dtype)
    return gradient.run_with_bias(candidate)


def plans_with_bias(gradient: GradientCall) -> list[tuple[int, str]]:
    plans = enumerate(gradient.candidates())
    return [(number, plan["kernel"]) for number, plan in plans if plan["gives_grad_bias"]]


@pytest.mark.parametrize("channels_last", [False, True])
@each_kind
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_plan(case, kind, channels_last):
    """Sums of integers, which every order of them gives, twice; and the weight's gradient as without the bias."""
    gradient = gradient_of(case, kind, channels_last, integers=True)
    exact = gradient.grad_output.double().sum((0, 2, 3)).to(DTYPES[kind])
    plans = plans_with_bias(gradient)
    assert plans
    for number, kernel in plans:
        alone = gradient.run(number)
        for _ in range(2):
            of_weight, of_bias = both_of(gradient, number)
            assert_same_bits(of_bias, exact, kernel)
            assert_same_bits(of_weight, alone, kernel)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("case", CASES[:4], ids=lambda case: case.name)
def test_float32_is_not_rounded_to_tf32(case, channels_last):
    """A sum of n numbers takes n roundings at most, and the weight's gradient has the bits that it has alone."""
    gradient = gradient_of(case, "tf32", channels_last, integers=False)
    exact, magnitude = (tensor.double().sum((0, 2, 3)) for tensor in (gradient.grad_output, gradient.grad_output.abs()))
    terms = gradient.grad_output.numel() // gradient.grad_output.shape[1]
    for number, kernel in plans_with_bias(gradient):
        of_weight, of_bias = both_of(gradient, number)
        assert ((of_bias.double() - exact).abs() <= terms * 2.0**-24 * magnitude).all(), kernel
        assert ((of_bias.double() - exact).abs() <= 2e-6 * magnitude).all(), kernel
        assert_same_bits(of_weight, gradient.run(number), kernel)


@pytest.mark.parametrize("channels_last", [False, True])
@each_kind
def test_nan_reaches_its_channel_alone(kind, channels_last):
    gradient = gradient_of(CASES[1], kind, channels_last, integers=True)
    for place in ((0, 3, 0, 0), (-1, 40, -1, -1)):
        gradient.grad_output[place] = torch.nan
    reached = torch.zeros(CASES[1].c_out, dtype=torch.bool, device="cuda")
    reached[[3, 40]] = True
    for number, kernel in plans_with_bias(gradient):
        assert torch.equal(both_of(gradient, number)[1].isnan(), reached), kernel

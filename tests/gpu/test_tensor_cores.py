"""The tensor-core engines: every candidate plan of every case, forced, in both directions and both layouts.

Judged by float64 with an error budget for each result, where NaN lay in its memory before; by where a NaN or Inf of one
source element may go; and by the errors that docs/numerics.md promises of larger problems.
"""

from __future__ import annotations

import functools
import math

import pytest
import torch
import torch.nn.functional as F
from cases import CASES, STAGED_CASES, Case, each_case
from gpu.test_every_gradient_kernel import sums_with
from gpu.test_every_kernel import element
from raw_ops import (
    TENSOR_CORE_CLASSES,
    TENSOR_CORE_ENGINES,
    Call,
    GradientCall,
    assert_same_bits,
    run_poisoned,
    tensor_core_kernels,
)

ALL_CASES = [*CASES, *STAGED_CASES]
each_kernel = pytest.mark.parametrize("kernel", tensor_core_kernels())
each_class = pytest.mark.parametrize("kind", TENSOR_CORE_CLASSES)
each_direction = pytest.mark.parametrize("direction", ["forward", "grad_input", "grad_weight"])
every_case = pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability()[0] != 9, reason="the engines are Hopper's"
)

# Relative error of a term by its rounded operands, and of the result by its own dtype.
TERM = {"tf32": 2.0**-10 + 2.0**-22, "tf32x3": 2.0**-20, "f16": 0.0, "bf16": 0.0}
RESULT = {"tf32": 2.0**-24, "tf32x3": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
SUBNORMAL = {"tf32": 2.0**-150, "tf32x3": 2.0**-150, "f16": 2.0**-25, "bf16": 2.0**-134}


def make_call(case: Case, kind: str, direction: str, channels_last: bool, device: str = "cuda"):
    dtype, precision = TENSOR_CORE_CLASSES[kind]
    call = Call.of(case, dtype, precision, channels_last, device=device)
    return call if direction == "forward" else GradientCall.of(direction, call).in_layout(channels_last)


@functools.lru_cache(maxsize=16)
def reference(case: Case, kind: str, direction: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The float64 result, and how far a kernel's may be from it.

    A tensor core adds products toward zero, with a unit of 2^-23 for each of at most as many steps as there are terms.
    """
    call = make_call(case, kind, direction, False, device="cpu").map(torch.Tensor.double)
    exact = call.torch()
    magnitude = call.map(torch.Tensor.abs).torch()
    terms = call.map(torch.ones_like).torch()
    bound = magnitude * (TERM[kind] + (terms + 4) * 2.0**-22)
    bound = bound + RESULT[kind] * (exact.abs() + bound) + SUBNORMAL[kind]
    return exact.cuda(), bound.cuda()


def numbered(call, kernel: str) -> list[tuple[int, dict]]:
    return [(index, plan) for index, plan in enumerate(call.candidates()) if plan["kernel"] == kernel]


def assert_within(result: torch.Tensor, exact: torch.Tensor, bound: torch.Tensor, what: str) -> None:
    wrong = ~((result.double() - exact).abs() <= bound)  # a NaN is within no bound
    if wrong.any():
        got, right, allowed = (values[wrong][0].item() for values in (result, exact, bound))
        raise AssertionError(
            f"{int(wrong.sum())} of {wrong.numel()} are wrong, the first at {wrong.nonzero()[0].tolist()}: "
            f"got {got}, expected {right} +- {allowed}; {what}"
        )


@each_kernel
@every_case
def test_every_candidate_is_right(case, kernel):
    kind = kernel.split("_")[1]
    for direction in ("grad_weight",) if "_grad_weight_" in kernel else ("forward", "grad_input"):
        exact, bound = reference(case, kind, direction)
        for channels_last in (False, True):
            call = make_call(case, kind, direction, channels_last)
            for number, plan in numbered(call, kernel):
                result, _ = run_poisoned(call, exact.numel(), number)
                what = f"{direction}, channels_last {channels_last}, candidate {number}: {plan}"
                assert result.shape == exact.shape, what
                assert_within(result, exact, bound, what)
                assert_same_bits(call.run(number), result, what)


@each_class
@every_case
def test_layouts_of_source_and_result_may_differ(case, kind):
    exact, bound = reference(case, kind, "grad_input")
    for channels_last in (False, True):
        call = make_call(case, kind, "grad_input", channels_last).replace(channels_last=not channels_last)
        result, _ = run_poisoned(call, exact.numel())
        assert_within(result, exact, bound, f"source in channels_last: {channels_last}")


@each_class
@each_case(
    "plain",
    "k4s2p1",
    "odd_sizes",
    "kb75",
    "gcd_2",
    "padding_over_kernel",
    "channels_last",
    "wide_row",
    "patches",
    "patches_wide",
    "patches_turns",
    "windows",
    "windows_odd",
    "windows_between",
    "windows_between_k5",
    "doubled_rows",
    "doubled_k3",
    "nhwc",
    "nhwc_whole",
    "nhwc_rows",
    "nhwc_gaps",
    "few_out",
    "few_out_k9",
    "few_out_chunks",
    "few_out_gaps",
    "few_out_nhwc",
    "few_out_nhwc_five",
    "upsampled",
    "upsampled_wide",
    "upsampled_unaligned",
)
def test_nan_and_inf_reach_exactly_their_outputs(case, kind):
    """Zeros around the source meet weights; a NaN of the source reaches the outputs of the formula alone."""
    clean = make_call(case, kind, "forward", False)
    nhwc = make_call(case, kind, "forward", True)
    expected = clean.run()
    for index in ((0, 0, 0, 0), tuple(size // 2 for size in clean.x.shape), tuple(size - 1 for size in clean.x.shape)):
        unit = torch.zeros(clean.x.shape)
        unit[index] = 1
        reached = (F.conv_transpose2d(unit, torch.ones(clean.weight.shape), None, **clean.arguments) > 0.5).cuda()
        for value in (math.nan, math.inf):
            x = clean.x.clone()
            x[index] = value
            call = clean.replace(x=x)
            candidates = [(call, number, plan) for number, plan in enumerate(call.candidates())]
            call = nhwc.replace(x=x.contiguous(memory_format=torch.channels_last))
            of_nhwc = [(call, number, plan) for number, plan in enumerate(call.candidates())]
            candidates += [found for found in of_nhwc if found[2]["engine"] in ("nhwc_sm90a", "scatter_sm90a")]
            for call, number, plan in candidates:
                if plan["engine"] not in TENSOR_CORE_ENGINES:
                    continue
                result = call.run(number)
                what = f"{value} in x{list(index)}, candidate {number}: {plan}"
                assert torch.equal(~result.isfinite(), reached), what
                assert not result.masked_fill(reached, 0).sub(expected.masked_fill(reached, 0)).isnan().any(), what


@each_class
@each_case(
    "plain", "k4s2p1", "odd_sizes", "kb75", "kb81", "gcd_2", "padding_over_kernel", "wide_row", "kernel_16_stride_8",
    "windows_between", "windows_between_k7"
)  # fmt: skip
def test_nan_and_inf_reach_exactly_their_gradients(case, kind):
    """Of engines that read grad_output as it lies in memory: what is beside it, or beyond K, is made zero."""
    clean = make_call(case, kind, "grad_input", False)
    for place in ("first", "middle", "last"):
        index = element(clean.grad_output, place)
        reached = sums_with(clean, "grad_output", index)
        for value in (math.nan, math.inf):
            grad_output = clean.grad_output.clone()
            grad_output[index] = value
            gradient = clean.replace(grad_output=grad_output)
            for number, plan in enumerate(gradient.candidates()):
                if plan["engine"] not in ("mma_sm90a", "window_sm90a"):
                    continue
                result = gradient.run(number)
                what = f"{value} in grad_output{list(index)}, candidate {number}: {plan}"
                # What an Inf leaves to the low part of tf32x3 is a NaN (docs/numerics.md).
                of_inf = result.isinf() | (result.isnan() & (kind == "tf32x3"))
                assert torch.equal(result.isnan() if math.isnan(value) else of_inf, reached), what
                expected = clean.run(number)
                assert_same_bits(result.masked_fill(reached, 0), expected.masked_fill(reached, 0), what)


@each_class
@pytest.mark.parametrize("channels_last", [False, True])
@each_case("plain", "k4s2p1", "odd_sizes", "kb75", "kb81", "gcd_2", "padding_over_kernel", "wide_row", "fsrcnn")
def test_nan_and_inf_reach_exactly_their_weights(case, channels_last, kind):
    """A tap that reads nothing at a pixel stays what it was, whatever the pixel is."""
    clean = make_call(case, kind, "grad_weight", channels_last)
    for name in ("other", "grad_output"):
        tensor = getattr(clean, name)
        for index in (
            (0, 0, 0, 0),
            tuple(size // 2 for size in tensor.shape),
            tuple(size - 1 for size in tensor.shape),
        ):
            unit = torch.zeros_like(tensor)
            unit[index] = 1
            ones = {key: torch.ones_like(getattr(clean, key)) for key in ("other", "grad_output")}
            ones[name] = unit
            marked = clean.replace(**ones, call=clean.call.replace(x=ones["other"]))
            reached = marked.map(torch.Tensor.double).torch() > 0.5
            for value in (math.nan, math.inf):
                changed = tensor.clone()
                changed[index] = value
                gradient = clean.replace(**{name: changed})
                for number, plan in enumerate(gradient.candidates()):
                    if plan["engine"] != "mma_sm90a":
                        continue
                    result, expected = gradient.run(number), clean.run(number)
                    what = f"{value} in {name}{list(index)}, candidate {number}: {plan}"
                    assert torch.equal(~result.isfinite(), reached), what
                    # Where an Inf or NaN meets the border, the pixels beside it are added in another way.
                    both = result.masked_fill(reached, 0), expected.masked_fill(reached, 0)
                    torch.testing.assert_close(*both, rtol=1e-2, atol=1e-2, msg=what)


LARGE = {
    "k3": Case("k3", "many channels", n=1, c_in=96, c_out=80, h=40, w=70, k=(3, 3), p=(1, 1)),
    "k4s2": Case("k4s2", "two W phases", n=2, c_in=72, c_out=64, h=24, w=30, k=(4, 4), s=(2, 2), p=(1, 1)),
    "k2s2": Case("k2s2", "one tap a phase", n=3, c_in=128, c_out=40, h=14, w=14, k=(2, 2), s=(2, 2)),
    "images": Case("images", "several images a tile", n=64, c_in=64, c_out=96, h=4, w=4, k=(4, 4), s=(2, 2), p=(1, 1)),
    "persistent": Case("persistent", "several tiles a CTA", n=4, c_in=16, c_out=24, h=150, w=260, k=(3, 5)),
    "no_taps": Case("no_taps", "several tiles a CTA, half of them without taps", n=4, c_in=8, c_out=16, h=128, w=256,
                    k=(3, 5), s=(2, 3), p=(1, 2), d=(2, 1), g=1),
    "moved": Case("moved", "several tiles a CTA, which begin elsewhere in a sector", n=4, c_in=16, c_out=32, h=100,
                  w=150, k=(3, 3), s=(3, 3), p=(1, 1), d=(2, 2), g=2),
    "few_channels": Case("few_channels", "channels in chunks, several tiles a CTA", n=4, c_in=56, c_out=2, h=200, w=200,
                         k=(9, 9), s=(3, 3), p=(4, 4)),
}  # fmt: skip


@each_class
@each_direction
@pytest.mark.parametrize("name", LARGE)
def test_promised_errors(name, kind, direction):
    """Relative errors in the 2-norm: tf32 5e-4, tf32x3 5e-7, half precision twice that of PyTorch's own result."""
    exact, _ = reference(LARGE[name], kind, direction)
    for channels_last in (False, True):
        call = make_call(LARGE[name], kind, direction, channels_last)

        def error(result: torch.Tensor) -> float:
            return ((result.double() - exact).norm() / exact.norm()).item()

        limit = {"tf32": 5e-4, "tf32x3": 5e-7}.get(kind) or 2 * error(call.torch())
        for number, plan in enumerate(call.candidates()):
            if plan["engine"] not in TENSOR_CORE_ENGINES:
                continue
            result, _ = run_poisoned(call, exact.numel(), number)
            assert error(result) <= limit, f"{error(result):.3g} > {limit:.3g}; {plan}"

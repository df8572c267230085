"""The tensor-core classes: every candidate plan of every case, forced, in all directions and both layouts.

Judged by float64 with an error budget for each result, where NaN lay in its memory, in the workspace and in shared
memory before; by where a NaN or Inf of one source element may go; and by the errors that docs/numerics.md promises of
larger problems. The last two are about the tensor-core engines alone; of these kernels the others have their tests with
the exact classes.
"""

from __future__ import annotations

import functools
import math
from itertools import product

import pytest
import torch
from cases import CASES, STAGED_CASES, Case, named
from gpu.test_every_gradient_kernel import sums_with
from gpu.test_every_kernel import element, outputs_of
from raw_ops import (
    DIRECTIONS,
    TENSOR_CORE_CLASSES,
    TENSOR_CORE_ENGINES,
    Call,
    GradientCall,
    assert_same_bits,
    changed,
    forced,
    nan_like,
    numbered,
    run_poisoned,
    words_of,
)

ALL_CASES = [*CASES, *STAGED_CASES]
each_class = pytest.mark.parametrize("kind", TENSOR_CORE_CLASSES)
each_direction = pytest.mark.parametrize("direction", DIRECTIONS)
PLACES = ("first", "middle", "last")
HALF_AND_TF32 = [kind for kind in TENSOR_CORE_CLASSES if kind != "tf32x3"]
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


def exact_and_bound(call: Call | GradientCall, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The float64 result of a call on the CPU, and how far a kernel's may be from it; both on the GPU.

    A tensor core adds products toward zero, with a unit of 2^-23 for each of at most as many steps as there are terms.
    """
    call = call.map(torch.Tensor.double)
    exact = call.torch()
    magnitude = call.map(torch.Tensor.abs).torch()
    terms = call.map(torch.ones_like).torch()
    bound = magnitude * (TERM[kind] + (terms + 4) * 2.0**-22)
    bound = bound + RESULT[kind] * (exact.abs() + bound) + SUBNORMAL[kind]
    return exact.cuda(), bound.cuda()


@functools.lru_cache(maxsize=16)
def reference(case: Case, kind: str, direction: str) -> tuple[torch.Tensor, torch.Tensor]:
    return exact_and_bound(make_call(case, kind, direction, False, device="cpu"), kind)


Problem = tuple[Case, str, bool]  # case, class, channels_last


def problems(*names: str, kinds=TENSOR_CORE_CLASSES, but=()) -> list[Problem]:
    """Cases in each class and format, `but` those (name, class, channels_last) that no engine serves."""
    return [
        (named(name), kind, channels_last)
        for name, kind, channels_last in product(names, kinds, (False, True))
        if (name, kind, channels_last) not in but
    ]


def each_problem(problems: list[Problem]):
    """Parametrize by case, class and format."""
    ids = [f"{case.name}-{kind}-{'nhwc' if channels_last else 'nchw'}" for case, kind, channels_last in problems]
    return pytest.mark.parametrize(("case", "kind", "channels_last"), problems, ids=ids)


def nhwc_operands(call):
    """The same call of an input in channels_last. (`contiguous` would leave one of one channel as it is.)"""
    if isinstance(call, GradientCall):
        inner = nhwc_operands(call.call)
        return call.replace(call=inner, other=inner.x if call.direction == "grad_weight" else call.other)
    return call.replace(x=torch.empty_like(call.x, memory_format=torch.channels_last).copy_(call.x))


def assert_within(result: torch.Tensor, exact: torch.Tensor, bound: torch.Tensor, what: str) -> None:
    wrong = ~((result.double() - exact).abs() <= bound)  # a NaN is within no bound
    if wrong.any():
        got, right, allowed = (values[wrong][0].item() for values in (result, exact, bound))
        raise AssertionError(
            f"{int(wrong.sum())} of {wrong.numel()} are wrong, the first at {wrong.nonzero()[0].tolist()}: "
            f"got {got}, expected {right} +- {allowed}; {what}"
        )


@each_class
@each_direction
@every_case
def test_every_candidate_is_right(case, direction, kind):
    """Those of exact kernels too: a call of this class may be served by one."""
    exact, bound = reference(case, kind, direction)
    for channels_last in (False, True):
        call = make_call(case, kind, direction, channels_last)
        full_of_nan = call.map(nan_like)
        for number, plan in forced(call):
            full_of_nan.run(number)  # leaves NaN in shared memory
            result = run_poisoned(call, exact.numel(), number, plan["workspace_bytes"])
            what = f"channels_last {channels_last}, {words_of(number, plan)}"
            assert result.shape == exact.shape, what
            assert_within(result, exact, bound, what)
            assert_same_bits(call.run(number), result, what)


@each_class
@every_case
def test_layouts_of_source_and_result_may_differ(case, kind):
    exact, bound = reference(case, kind, "grad_input")
    for channels_last in (False, True):
        call = make_call(case, kind, "grad_input", channels_last).replace(channels_last=not channels_last)
        result = run_poisoned(call, exact.numel())
        assert_within(result, exact, bound, f"source in channels_last: {channels_last}")


def assert_reached(result: torch.Tensor, value: float, kind: str, reached: torch.Tensor, what: str) -> None:
    """That a NaN or Inf is in these sums, and in no other. Of an Inf tf32x3 may make a NaN (docs/numerics.md)."""
    of_inf = ~result.isfinite() if kind == "tf32x3" else result.isinf()
    found = result.isnan() if math.isnan(value) else of_inf
    where = (found != reached).nonzero()
    assert len(where) == 0, f"{len(where)} wrong, first at {where[0].tolist()}: {result[tuple(where[0])]}; {what}"


# Where a NaN or Inf goes: by direction, problems that reach every instance (tests/plan/test_plan_offered.py).
CONTAINED = {
    "forward": problems(
        "plain", "k4s2p1", "odd_sizes", "kb75", "gcd_2", "padding_over_kernel", "channels_last", "wide_row", "patches",
        "patches_wide", "patches_turns", "patches_direct", "patches_direct_even", "patches_direct_wide", "windows",
        "windows_odd", "windows_k5", "windows_between", "windows_between_k5", "doubled_rows", "doubled_strips",
        "doubled_groups", "doubled_k3", "doubled_k3_groups", "nhwc", "nhwc_whole", "nhwc_rows", "nhwc_gaps", "few_out",
        "few_out_k9", "few_out_chunks", "few_out_five", "few_out_gaps", "few_out_nhwc", "few_out_nhwc_five",
        "fcn8s_channels",
    ),
    "grad_input": problems(
        "plain", "k4s2p1", "odd_sizes", "kb75", "kb81", "gcd_2", "padding_over_kernel", "wide_row",
        "kernel_16_stride_8", "channels_last_groups", "windows", "windows_k5", "windows_k7", "windows_between",
        "windows_between_k5", "windows_between_k7", "patches", "patches_wide", "patches_tall", "patches_parts",
        "patches_runs", "patches_runs_wide", "doubled", "doubled_rows", "doubled_k3", "doubled_groups", "nhwc",
        "nhwc_whole", "nhwc_gaps",
        # 24 and 16 residues, each with its window of high and low parts: no engine has a plan.
        but=[("patches_wide", "tf32x3", True), ("patches_runs_wide", "tf32x3", True)],
    ),
    "grad_weight": problems(
        "plain", "k4s2p1", "odd_sizes", "kb75", "kb81", "gcd_2", "padding_over_kernel", "wide_row", "fsrcnn",
        "vector_rows", "doubled_rows",
        kinds=HALF_AND_TF32,  # tf32x3 is served by ieee's kernels
    ),
}  # fmt: skip


def contained_call(case: Case, kind: str, direction: str, channels_last: bool, device: str = "cuda"):
    """A call of `CONTAINED`, whose operands are in the format of the result."""
    call = make_call(case, kind, direction, channels_last, device)
    return nhwc_operands(call) if channels_last and direction != "grad_input" else call


@each_problem(CONTAINED["forward"])
def test_nan_and_inf_reach_exactly_their_outputs(case, kind, channels_last):
    """Zeros around the source meet weights; a NaN of the source reaches the outputs of the formula alone."""
    clean = contained_call(case, kind, "forward", channels_last)
    for place in PLACES:
        index = element(clean.x, place)
        reached = outputs_of(clean, "x", index)
        for value in (math.nan, math.inf):
            call = clean.replace(x=changed(clean.x, index, value))
            for number, plan in numbered(call, TENSOR_CORE_ENGINES):
                what = f"{value} in x{list(index)}, {plan}"
                result = call.run(number)
                assert_reached(result, value, kind, reached, what)
                untouched = clean.run(number).masked_fill(reached, 0)
                assert_same_bits(result.masked_fill(reached, 0), untouched, what)


@each_problem(CONTAINED["grad_input"])
def test_nan_and_inf_reach_exactly_their_gradients(case, kind, channels_last):
    """Of grad_output, which is here what x is to the forward pass: what is beside it, or beyond K, is made zero."""
    clean = contained_call(case, kind, "grad_input", channels_last)
    for place in PLACES:
        index = element(clean.grad_output, place)
        reached = sums_with(clean, "grad_output", index)
        for value in (math.nan, math.inf):
            gradient = clean.replace(grad_output=changed(clean.grad_output, index, value))
            for number, plan in numbered(gradient, TENSOR_CORE_ENGINES):
                what = f"{value} in grad_output{list(index)}, {plan}"
                result = gradient.run(number)
                assert_reached(result, value, kind, reached, what)
                untouched = clean.run(number).masked_fill(reached, 0)
                assert_same_bits(result.masked_fill(reached, 0), untouched, what)


@each_problem(CONTAINED["grad_weight"])
def test_nan_and_inf_reach_exactly_their_weights(case, kind, channels_last):
    """A tap that reads nothing at a pixel stays what it was, whatever the pixel is."""
    clean = contained_call(case, kind, "grad_weight", channels_last)
    # Where an Inf or NaN meets the border, terms are added in another way, and in TF32 without rounding them to it.
    most = 1e-2 if kind != "tf32" else max(1e-2, 2**-9 * math.sqrt(case.n * case.h * case.w))
    for name in ("other", "grad_output"):
        tensor = getattr(clean, name)
        for place in PLACES:
            index = element(tensor, place)
            reached = sums_with(clean, name, index)
            for value in (math.nan, math.inf):
                gradient = clean.replace(**{name: changed(tensor, index, value)})
                for number, plan in numbered(gradient, TENSOR_CORE_ENGINES):
                    result, expected = gradient.run(number), clean.run(number)
                    what = f"{value} in {name}{list(index)}, {plan}"
                    assert torch.equal(~result.isfinite(), reached), what
                    both = result.masked_fill(reached, 0), expected.masked_fill(reached, 0)
                    torch.testing.assert_close(*both, rtol=1e-2, atol=most, msg=what)


LARGE = {
    "k3": Case("k3", "many channels", n=1, c_in=96, c_out=80, h=40, w=70, k=(3, 3), p=(1, 1)),
    "k4s2": Case("k4s2", "two W phases", n=2, c_in=72, c_out=64, h=24, w=30, k=(4, 4), s=(2, 2), p=(1, 1)),
    "k2s2": Case("k2s2", "one tap a phase", n=3, c_in=128, c_out=40, h=14, w=14, k=(2, 2), s=(2, 2)),
    "images": Case("images", "several images a tile", n=64, c_in=64, c_out=96, h=4, w=4, k=(4, 4), s=(2, 2), p=(1, 1)),
    "persistent": Case("persistent", "several tiles a CTA", n=4, c_in=16, c_out=24, h=150, w=260, k=(3, 5)),
    "parts": Case("parts", "a last wave of few tiles, divided", n=1, c_in=384, c_out=320, h=80, w=80, p=(1, 1)),
    "no_taps": Case("no_taps", "several tiles a CTA, half of them without taps", n=4, c_in=8, c_out=16, h=128, w=256,
                    k=(3, 5), s=(2, 3), p=(1, 2), d=(2, 1), g=1),
    "moved": Case("moved", "several tiles a CTA, which begin elsewhere in a sector", n=4, c_in=16, c_out=32, h=100,
                  w=150, k=(3, 3), s=(3, 3), p=(1, 1), d=(2, 2), g=2),
    "few_channels": Case("few_channels", "channels in chunks, several tiles a CTA", n=4, c_in=56, c_out=2, h=200, w=200,
                         k=(9, 9), s=(3, 3), p=(4, 4)),
}  # fmt: skip


@pytest.mark.parametrize(
    ("direction", "kind"),
    # tf32x3 has no weight gradient on tensor cores: ieee's kernels serve it.
    [*product(["forward", "grad_input"], TENSOR_CORE_CLASSES), *product(["grad_weight"], HALF_AND_TF32)],
)
@pytest.mark.parametrize("name", LARGE)
def test_promised_errors(name, kind, direction):
    """Relative errors in the 2-norm: tf32 5e-4, tf32x3 5e-7, half precision twice that of PyTorch's own result."""
    exact, _ = reference(LARGE[name], kind, direction)
    nchw, mixed = (make_call(LARGE[name], kind, direction, channels_last) for channels_last in (False, True))
    calls = {
        "forward": [nchw, mixed, nhwc_operands(mixed)],
        "grad_input": [nchw, mixed],
        # Of mixed operands neither columns nor channels are neighbours in both: ieee serves their gradient.
        "grad_weight": [nchw, nhwc_operands(mixed)],
    }
    for call in calls[direction]:

        def error(result: torch.Tensor) -> float:
            return ((result.double() - exact).norm() / exact.norm()).item()

        limit = {"tf32": 5e-4, "tf32x3": 5e-7}.get(kind) or 2 * error(call.torch())
        for number, plan in numbered(call, TENSOR_CORE_ENGINES):
            result = run_poisoned(call, exact.numel(), number)
            assert error(result) <= limit, f"{error(result):.3g} > {limit:.3g}; {plan}"

"""Every candidate plan of every case in the exact classes, forced: each kernel in each way that it may be launched.

Judged by float64 with an error budget for each output, where NaN lay in the output's memory and in shared memory
before; and by where a NaN or Inf of one input or weight may go.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from cases import CASES, STAGED_CASES, Case, each_case
from raw_ops import (
    CLASSES,
    Call,
    GradientCall,
    assert_same_bits,
    changed,
    class_of,
    kernel_names,
    nan_like,
    numbered,
    run_poisoned,
    same_bits,
)

each_class = pytest.mark.parametrize("kind", CLASSES)
every_case = pytest.mark.parametrize("case", [*CASES, *STAGED_CASES], ids=lambda case: case.name)

# Half of the distance from 1 to the next number, and from 0 to the next.
HALF_ULP = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
HALF_SUBNORMAL = {torch.float64: 0.0, torch.float32: 2.0**-150, torch.float16: 2.0**-25, torch.bfloat16: 2.0**-134}


def call_of(case: Case, kind: str, channels_last: bool = False) -> Call:
    return Call.of(case, *CLASSES[kind], channels_last)


def rounding(steps: torch.Tensor, unit: float) -> torch.Tensor:
    """The relative error that `steps` roundings of half a unit can add up to (Higham's gamma)."""
    return steps * unit / (1 - steps * unit)


@functools.lru_cache(maxsize=8)
def reference(case: Case, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """The float64 result, and how far a correct kernel's may be from it, for each output, on the GPU.

    A sum of n products takes at most n + 2 roundings in either order, bias included, each relative to no more
    than the sum of the terms' magnitudes; float16 and bfloat16 results are rounded once more at the end.
    """
    call = Call.of(case, dtype, device="cpu").map(torch.Tensor.double)
    exact = call.torch()
    magnitude = call.map(torch.Tensor.abs).torch()
    terms = call.replace(bias=None).map(torch.ones_like).torch()
    unit = HALF_ULP[torch.float64 if dtype is torch.float64 else torch.float32]
    # The reference is itself a sum in float64.
    bound = magnitude * (rounding(terms + 2, unit) + rounding(terms + 2, HALF_ULP[torch.float64]))
    if dtype in (torch.float16, torch.bfloat16):
        bound = bound + HALF_ULP[dtype] * (exact.abs() + bound) + HALF_SUBNORMAL[dtype]
    return exact.cuda(), bound.cuda()


def assert_within_budget(result: torch.Tensor, case: Case, what: object) -> None:
    exact, bound = reference(case, result.dtype)
    assert result.shape == exact.shape
    error = (result.double() - exact).abs()
    wrong = ~(error <= bound)  # a NaN is within no bound
    if not wrong.any():
        return
    index = tuple(torch.where(wrong, error.nan_to_num(math.inf) / bound, -1.0).flatten().argmax().unsqueeze(0).tolist())
    got, right, allowed = (one.flatten()[index].item() for one in (result.contiguous(), exact.contiguous(), bound))
    raise AssertionError(
        f"{int(wrong.sum())} of {result.numel()} outputs are wrong, the worst number {index[0]}: "
        f"got {got!r}, expected {right!r} +- {allowed:.3g}; {what}"
    )


@each_class
@every_case
def test_every_candidate_is_right(case, kind):
    for channels_last in (False, True):
        call = call_of(case, kind, channels_last)
        full_of_nan = call.map(nan_like)
        chosen = call.run()
        for number, plan in numbered(call):
            # Leaves NaN in shared memory, where elements outside the input are not loaded.
            full_of_nan.run(number)
            result = run_poisoned(call, math.prod(case.output_size), number)
            what = f"channels_last {channels_last}, {plan}"
            assert_within_budget(result, case, what)
            assert_same_bits(result, chosen, what)


@each_class
def test_every_kernel_is_launched(kind):
    """The cases above reach all of them on this GPU: a kernel that no plan offers is tested by nobody."""
    offered: Counter[str] = Counter()
    for case, channels_last in product((*CASES, *STAGED_CASES), (False, True)):
        offered.update(plan["kernel"] for plan in call_of(case, kind, channels_last).candidates())
    kernels = [kernel for kernel in kernel_names() if class_of(kernel) == kind]
    # Those of one kernel size and stride serve depthwise layers alone, those of few taps channels that are vectors.
    wanted = {kernel: 1 if re.search(r"_k\ds\d|_taps\d", kernel) else 2 * len(CASES) for kernel in kernels}
    assert {kernel: offered[kernel] for kernel in kernels if offered[kernel] < wanted[kernel]} == {}
    assert set(offered) == set(kernels)


@each_class
def test_cases_reach_every_way_of_tiling(kind):
    """Some case has tiles of several images, of some W phases, with several chunks of channels, of the taps."""
    reached = set()
    for case in (*CASES, *STAGED_CASES):
        for plan in call_of(case, kind).candidates():
            if plan["engine"] != "simt":
                continue
            taps = [-(-case.k[i] // (case.s[i] // math.gcd(case.s[i], case.d[i]))) for i in (0, 1)]
            ways = {
                "several images": plan["tile_n"] > 1,
                "some W phases": plan["phases_w"] < min(case.s[1], case.output_size[3]),
                "channels in chunks": plan["chunk_ci"] < case.c_in // case.g,
                "tap rows in chunks": plan["chunk_kh"] < taps[0],
                "a tap row in chunks": plan["chunk_kw"] < taps[1],
                "several tiles of channels": plan["block_co"] < case.c_out // case.g,
                "several tiles of a row": plan["tile_w"] * case.s[1] < case.output_size[3],
            }
            reached |= {name for name, holds in ways.items() if holds}
    assert reached == set(ways)


class UnwrittenCall(Call):
    """Allocates its result as the op does, and writes nothing."""

    def run(self, candidate: int | None = None) -> torch.Tensor:
        shape = self.replace(x=self.x.to("meta"), weight=self.weight.to("meta"), bias=None).torch().shape
        memory_format = torch.channels_last if self.channels_last else torch.contiguous_format
        return torch.empty(shape, dtype=self.x.dtype, device="cuda", memory_format=memory_format)


class UnwrittenGradient(GradientCall):
    def run(self, candidate: int | None = None) -> torch.Tensor:
        like = self.call.x if self.direction == "grad_input" else self.call.weight
        memory_format = torch.channels_last if self.channels_last else torch.contiguous_format
        return torch.empty(like.shape, dtype=like.dtype, device="cuda", memory_format=memory_format)


@each_class
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("direction", ["forward", "grad_input", "grad_weight"])
def test_what_is_not_written_is_seen(direction, channels_last, kind):
    """What the tests of every candidate rely on, beside the address, which `run_poisoned` looks at each time."""
    if torch.cuda.get_allocator_backend() != "native":
        pytest.skip("the caching allocator is not in use")
    for case in (*CASES, *STAGED_CASES):
        call = UnwrittenCall.of(case, *CLASSES[kind], channels_last)
        if direction != "forward":
            call = UnwrittenGradient.of(direction, call, channels_last=channels_last)
        assert run_poisoned(call, call.run().numel()).isnan().all(), case.name


@pytest.mark.parametrize("num_bytes", [512, 30_000, 1 << 20, (1 << 20) + 512, 40 << 20])
def test_a_workspace_that_is_not_written_is_seen(num_bytes):
    """An op asks for its workspace after its result; where that then lies, nobody says."""
    if torch.cuda.get_allocator_backend() != "native":
        pytest.skip("the caching allocator is not in use")
    workspaces = []

    class WithWorkspace(UnwrittenCall):
        def run(self, candidate: int | None = None) -> torch.Tensor:
            result = super().run(candidate)
            workspaces[:] = [torch.empty(num_bytes, dtype=torch.uint8, device="cuda")]
            return result

    for case in (*CASES, *STAGED_CASES):
        workspaces.clear()
        call = WithWorkspace.of(case)
        assert run_poisoned(call, math.prod(case.output_size), None, num_bytes).isnan().all(), case.name
        assert workspaces[0].eq(255).all(), case.name


def element(tensor: torch.Tensor, place: str) -> tuple[int, ...]:
    """The index of the first, the last or a middle element."""
    return {
        "first": tuple(0 for _ in tensor.shape),
        "middle": tuple(size // 2 for size in tensor.shape),
        "last": tuple(size - 1 for size in tensor.shape),
    }[place]


def outputs_of(call: Call, name: str, index: tuple[int, ...]) -> torch.Tensor:
    """True where an output's sum has a term of that element of `x` or `weight`."""
    tensors = {"x": torch.ones(call.x.shape), "weight": torch.ones(call.weight.shape)}
    tensors[name] = torch.zeros_like(tensors[name])
    tensors[name][index] = 1
    return (F.conv_transpose2d(tensors["x"], tensors["weight"], None, **call.arguments) > 0.5).cuda()


@each_class
@each_case(
    "plain", "k4s2p1", "odd_sizes", "kb75", "gcd_2", "padding_over_kernel", "channels_last", "wide_row", "depthwise",
    "depthwise_nhwc", "depthwise_blocks",
)  # fmt: skip
@pytest.mark.parametrize("name", ["x", "weight"])
def test_nan_and_inf_reach_exactly_their_outputs(case, kind, name):
    """No output outside the sum's terms is touched: a tap that meets padding is not multiplied."""
    clean = call_of(case, kind, channels_last=case.layout == "channels_last")
    expected = clean.run()
    for place in ("first", "middle", "last"):
        index = element(getattr(clean, name), place)
        reached = outputs_of(clean, name, index)
        for value in (math.nan, math.inf):
            call = clean.replace(**{name: changed(getattr(clean, name), index, value)})
            for number, plan in numbered(call):
                result = call.run(number)
                what = f"{value} in {name}{list(index)}, {plan}"
                # An element is in an output's sum at most once, so its Inf stays one.
                assert torch.equal(result.isnan() if math.isnan(value) else result.isinf(), reached), what
                assert same_bits(result.masked_fill(reached, 0), expected.masked_fill(reached, 0)), what


@each_class
def test_a_nan_weight_does_not_meet_padding(kind):
    """A border output has no term of the tap that would read beyond the input."""
    dtype, precision = CLASSES[kind]
    x = torch.ones(1, 2, 3, 3, device="cuda", dtype=dtype)
    weight = torch.ones(2, 3, 3, 3, device="cuda", dtype=dtype)
    weight[:, :, 0, 0] = math.nan  # reaches output (ih, iw) alone, which has 3 x 3 inputs
    call = Call(x, weight, None, precision=precision)
    for number, plan in numbered(call):
        nan = call.run(number).isnan()
        assert nan[:, :, :3, :3].all(), plan
        assert not nan[:, :, 3:].any(), plan
        assert not nan[..., 3:].any(), plan

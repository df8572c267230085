"""The planner refuses or plans whatever fits_axis() and the limits of batch and channels allow: it never dies, never
overflows, never offers what cannot be launched, and never takes long."""

from __future__ import annotations

import random
from math import prod

import pytest
from plan import build
from plan.legal import assert_launchable
from plan.planner_process import PlannerProcess
from plan.problems import (
    BFLOAT16,
    DEVICES,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    FORWARD,
    GRAD_INPUT,
    GRAD_WEIGHT,
    H200,
    HALF,
    IEEE,
    PRECISIONS,
    TF32,
    TF32X3,
    Problem,
    channels_last_strides,
    contiguous_strides,
    from_row,
    make_axis,
    sizes_of,
)
from plan.profile import many_problems

AXIS_LIMIT, CHANNEL_LIMIT, MOST_ELEMENTS = 2**29, 2**30, 2**60
# Without the one that has less shared memory than any supported GPU: gradients of the weight are planned for 63 KiB.
GPUS = {name: numbers for name, numbers in DEVICES.items() if numbers[2] >= 64 * 1024}
SECONDS = 2.0  # of the CPU: a generous limit
# No problem with fewer results needs more CTAs than a grid has.
FEWEST_RESULTS_REFUSED = 2**28
STRIDES = ("x_stride", "w_stride", "y_stride")
RESULTS = {FORWARD: 2, GRAD_INPUT: 0, GRAD_WEIGHT: 1}  # which of these is the result's
# Kernel, stride, padding and output_padding of layers that engines are made for.
FORMS = [
    *[(1, 1, 0, 0), (3, 1, 1, 0), (3, 2, 1, 1), (4, 2, 1, 0)],
    *[(2, 2, 0, 0), (4, 4, 0, 0), (16, 8, 4, 0), (9, 3, 4, 2)],
]


@pytest.fixture(scope="module")
def planner(plan_module):
    process = PlannerProcess(build.build("_plan"))
    yield process
    process.stop()


def assert_planned(planner: PlannerProcess, problem: Problem, device: list[int]) -> list[str]:
    """Every candidate can be launched; returns their kernels."""
    result = sizes_of(problem)[RESULTS[problem["direction"]]]
    candidates, refusal, seconds = planner.call("candidates", problem, device)
    assert seconds < SECONDS, f"{seconds:.1f} s for {problem}"
    if refusal is not None:
        assert "no kernel's tile fits" in refusal
        assert prod(result) >= FEWEST_RESULTS_REFUSED
        return []
    assert candidates
    for plan in candidates:
        assert_launchable(plan, device)
    return [plan["kernel"] for plan in candidates]


def in_direction(direction: int, problem: Problem) -> Problem:
    return {**problem, "direction": direction, "has_bias": False}


# Direction and problem. They killed the planner, overflowed in it, got illegal plans, or took it seconds, up to 90.
NAMED = {
    "more_tiles_of_pixels_than_32_bits": (GRAD_WEIGHT, from_row(8192, 1, 1, 1024, 1)),
    "slabs_beyond_64_bits": (GRAD_WEIGHT, from_row(1, 2**29, 2**29, 1, 2, dtype=FLOAT64)),
    "mma_source_tile_of_2_to_32": (
        FORWARD, from_row(1, 1, 1, 63, 2, 1, (32767, 32752), dilation=(65534, 65504), precision=TF32),
    ),
    "thin_source_tile_of_2_to_32": (
        FORWARD, from_row(1, 1, 1, 200, 2, 1, (32767, 32704), (1, 0), dilation=(65535, 65408)),
    ),
    "taps_beyond_32_bits": (FORWARD, from_row(1, 8, 8, 1, 65536, precision=TF32)),
    "window_of_2_to_56": (FORWARD, from_row(1, 32, 32, 9, 2, 1, 2**26, dilation=2**27, precision=TF32)),
    "windows_of_channels_last": (
        FORWARD, from_row(1, 32, 32, 9, 2, 1, 2**26, dilation=2**27, precision=TF32, channels_last=True),
    ),
    "flat_steps_beyond_32_bits": (GRAD_INPUT, from_row(1, 64, 64, 2, 1, 2**26, precision=TF32)),
    "single_row_far_from_the_next": (GRAD_INPUT, from_row(1, 8, 8, (1, 64), (1, 3), (2**28, 1), precision=TF32)),
    "single_row_far_from_the_next_of_the_weight": (
        GRAD_WEIGHT, from_row(1, 8, 8, (1, 64), (1, 3), (2**28, 1), precision=TF32, channels_last=True),
    ),
    "rows_beyond_32_bits": (GRAD_INPUT, from_row(1, 1, 1, (2, 32), 1, (2**28, 1))),
    "tiles_times_their_rows": (GRAD_INPUT, from_row(2**27, 1, 1, (1, 2**29 - 1), 1)),
    "passes_times_chunks": (GRAD_WEIGHT, from_row(2**29, 1, 1, 1, 2**26, 1, 2**25 - 2)),
    "outer_products_of_long_rows": (GRAD_WEIGHT, from_row(1, 1, 2**20, 1, (1, 1024), channels_last=True)),
    "outer_products_of_long_dilation": (
        GRAD_WEIGHT, from_row(1, 1, 2**20, 1, (1, 1024), dilation=(1, 2**18), channels_last=True),
    ),
    "long_column_of_taps": (GRAD_WEIGHT, from_row(1, 4, 4, 1, (2**24, 1), channels_last=True)),
    "long_row_of_taps_in_even_parts": (GRAD_WEIGHT, from_row(1, 8, 8, 1, (1, 2**28), precision=TF32)),
    "long_kernel_of_long_stride": (FORWARD, from_row(1, 1, 1, 1, (1, 2**28), (1, 2**28 + 1))),
    "few_outputs_of_long_stride": (
        FORWARD, from_row(1, 8, 8, 1, (1, 2**28 - 1), (1, 2**28 + 1), (0, 2**27 - 8), precision=TF32),
    ),
    "patches_of_a_long_row": (FORWARD, from_row(1, 1, 1, (1, 1), (1, 2**28), (1, 2**28), precision=TF32)),
    "patches_of_many_channels": (GRAD_INPUT, from_row(1, 1, 2**29, 1, 8, 8, precision=TF32X3)),
    "strips_of_a_long_column": (FORWARD, from_row(1, 8, 8, (2**27, 16), 4, 2, 1, precision=TF32)),
    "packed_pixels_beyond_64_bits": (
        GRAD_WEIGHT, from_row(1, 5, 5, 2**26 + 1, 7, 7, 3, 0, 5, precision=TF32, channels_last=True),
    ),
    "tiles_up_to_32_bits": (FORWARD, from_row(2**28 - 1, 1, 1, (1, 64), 1, dtype=FLOAT16, precision=HALF)),
}  # fmt: skip


@pytest.mark.parametrize("device", ["h200", "t4"])
@pytest.mark.parametrize("name", NAMED)
def test_a_problem_that_was_too_much(planner, name, device):
    direction, problem = NAMED[name]
    assert_planned(planner, in_direction(direction, problem), GPUS[device])


@pytest.mark.parametrize("name", NAMED)
def test_an_extreme_problem_is_explained(planner, name):
    """The phases' taps are listed, and useful products counted, in no more time."""
    direction, problem = NAMED[name]
    _, refusal, seconds = planner.call("to_json", in_direction(direction, problem), H200)
    assert refusal is None or "no kernel's tile fits" in refusal
    assert seconds < SECONDS


@pytest.mark.parametrize(
    ("name", "sizes", "far"),
    [
        ("input", (2**29, 2**29, 1, 16, 1), {}),
        ("weight", (1, 2**29, 2**29, 1, 2**12), {}),
        ("output", (2**29, 1, 2**29, 1, 4, 4), {}),
        ("input", (2, 1, 1, 4, 3), {"x_stride": [2**61, 16, 4, 1]}),
        ("weight", (2, 2, 1, 4, 3), {"w_stride": [2**61, 9, 3, 1]}),
    ],
)
def test_what_64_bits_do_not_count_is_an_error(planner, name, sizes, far):
    _, refusal, _ = planner.call("candidates", from_row(*sizes) | far, H200)
    assert refusal == f"convt_ext: the {name} has more than 2^60 elements, or has them further apart"


@pytest.mark.parametrize("precision", [IEEE, TF32])
@pytest.mark.parametrize("direction", [FORWARD, GRAD_INPUT])
def test_kernels_that_count_weights_in_32_bits_take_no_others(planner, direction, precision):
    problem = from_row(1, 3, 3, 32, 3, 1, 1, precision=precision)
    problem["w_stride"] = [27, 2**30, 3, 1]
    kernels = assert_planned(planner, in_direction(direction, problem), H200)
    assert kernels
    in_32_bits = ("thin_ieee_", "mma_"), ("direct", "gather")
    assert not [kernel for kernel in kernels if kernel.startswith(in_32_bits[0])]
    assert not [kernel for kernel in kernels if any(word in kernel for word in in_32_bits[1])]


@pytest.mark.parametrize("stride", [0, 1, 2**31, 2**62, 2**63 - 1])
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("precision", [IEEE, TF32, TF32X3])
@pytest.mark.parametrize("direction", [FORWARD, GRAD_INPUT, GRAD_WEIGHT])
def test_an_axis_of_one_element_may_have_any_stride(planner, direction, precision, channels_last, stride):
    for row in [(1, 1, 1, (1, 64), 4, 2, 1), (1, 1, 8, (64, 1), 2, 2), (1, 8, 1, 8, 1), (2, 1, 1, 1, 3, 1, 1)]:
        problem = in_direction(direction, from_row(*row, precision=precision, channels_last=channels_last))
        for index, (key, sizes) in enumerate(zip(STRIDES, sizes_of(problem), strict=True)):
            if index != RESULTS[direction]:
                problem[key] = [stride if size == 1 else old for size, old in zip(sizes, problem[key], strict=True)]
        assert_planned(planner, problem, H200)


class Extremes(random.Random):
    """Draws problems that exist, anywhere within the planner's limits: some wild in every respect, others in one or two
    alone, which engines for common layers look at too."""

    wildness = 0.5
    channels_last = False

    def number(self, limit: int) -> int:
        """From 1 to below the limit: as many of each magnitude, often a power of two, its neighbour or multiple."""
        power = 1 << self.randrange((limit - 1).bit_length())
        number = self.choice([power, power - 1, power + 1, power * self.randint(1, 7), self.randint(power, 2 * power)])
        return min(max(number, 1), limit - 1)

    def size(self, limit: int) -> int:
        return self.number(max(2, min(limit, limit if self.random() < self.wildness else self.choice([9, 65, 300]))))

    def axis(self) -> dict[str, int]:
        if self.random() > self.wildness:
            kernel, stride, padding, output_padding = self.choice(FORMS)
            size = self.size((AXIS_LIMIT - kernel) // stride)
            return make_axis(size, kernel, stride, padding, output_padding)
        kernel, stride = self.size(AXIS_LIMIT), self.size(AXIS_LIMIT)
        if self.random() < 0.3:
            kernel = min(self.choice([1, 2]) * stride, AXIS_LIMIT - 1)
        dilation = self.choice([1, self.size((AXIS_LIMIT - 1) // max(1, kernel - 1) + 1)])
        output_padding = min(self.choice([0, 0, 1, self.randrange(AXIS_LIMIT)]), max(stride, dilation) - 1)
        behind = dilation * (kernel - 1) + output_padding + 1
        # Padding takes up to two limits away again.
        size = min(self.size(AXIS_LIMIT), max(1, (3 * (AXIS_LIMIT - 1) - behind) // stride + 1))
        unpadded = (size - 1) * stride + behind
        least, most = max(0, (unpadded - AXIS_LIMIT) // 2 + 1), min((unpadded - 1) // 2, AXIS_LIMIT - 1)
        near_most = most - self.size(most - least + 1) if most > least else most
        padding = self.choice([least, most, near_most, kernel // 2, stride, (kernel - stride) // 2])
        return make_axis(size, kernel, stride, min(max(padding, least), most), output_padding, dilation)

    def dense_strides(self, sizes: list[int]) -> list[int]:
        wild = self.random() < self.wildness
        return (channels_last_strides if self.channels_last != wild else contiguous_strides)(sizes)

    def operand_strides(self, sizes: list[int]) -> list[int]:
        """Dense ones, with gaps, or of an expanded tensor; of an axis of one element any."""
        strides = self.dense_strides(sizes)
        room = MOST_ELEMENTS // prod(sizes)
        wild = self.random() < self.wildness
        factor = self.choice([1, 2, 8, self.number(room + 1)]) if room > 8 and wild else 1
        expanded = wild and self.random() < 0.2
        strides = [0 if expanded and self.random() < 0.5 else stride * factor for stride in strides]
        lone = [0, 1, self.number(2**63)] if wild else []
        return [
            self.choice([stride, *lone]) if size == 1 else stride for size, stride in zip(sizes, strides, strict=True)
        ]

    def problem(self) -> Problem:
        self.wildness = self.choice([0.05, 0.1, 0.2, 0.5])
        h = self.axis()
        w = self.choice([h, self.axis()])
        self.channels_last = self.random() < 0.5
        dtype = self.choice([FLOAT32, FLOAT32, FLOAT32, FLOAT64, FLOAT16, BFLOAT16])
        direction = self.choice(list(RESULTS))
        # No tensor has more elements than exist.
        area = max(h["in"] * w["in"], h["out"] * w["out"], h["kernel"] * w["kernel"])
        room = MOST_ELEMENTS // area
        groups = self.choice([1, 1, 1, 1, self.size(min(room, CHANNEL_LIMIT - 1) + 1)])
        most = max(1, min(room, CHANNEL_LIMIT - 1) // groups)
        group_in = self.size(most + 1)
        group_out = self.size(max(1, min(most, room // (groups * group_in))) + 1)
        batch = self.size(min(CHANNEL_LIMIT, max(1, room // (groups * max(group_in, group_out))) + 1))
        problem: Problem = {
            "direction": direction,
            "batch": batch, "c_in": groups * group_in, "c_out": groups * group_out, "groups": groups, "h": h, "w": w,
            "dtype": dtype, "precision": self.choice(PRECISIONS[dtype]),
            "has_bias": direction == FORWARD and self.random() < 0.5,
        }  # fmt: skip
        for index, (key, sizes) in enumerate(zip(STRIDES, sizes_of(problem), strict=True)):
            problem[key] = (self.dense_strides if index == RESULTS[direction] else self.operand_strides)(sizes)
        return problem


@pytest.mark.parametrize("seed", range(8))
def test_any_problem_is_planned(planner, run_seed, seed):
    extremes = Extremes(run_seed + seed)
    planned = 0
    for _ in range(many_problems.max_examples):
        device = GPUS[extremes.choice(["h200", "h200", *GPUS])]
        planned += bool(assert_planned(planner, extremes.problem(), device))
    assert planned > many_problems.max_examples / 2, "most problems should have plans, or little is tested"

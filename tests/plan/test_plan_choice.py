"""choose() and candidates(): legal, pure, sorted, quick, and exact when executed, for every GPU."""

from __future__ import annotations

import copy
import time
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan import interpreter
from plan.exact import assert_exact
from plan.interpreter import computed_problem
from plan.legal import assert_legal
from plan.problems import (
    ATEN,
    BFLOAT16,
    DEVICES,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    H200,
    IEEE,
    TF32,
    TF32X3,
    from_row,
    make_axis,
    make_problem,
    problems,
)
from plan.profile import many_problems
from plan.tensor_cores import HALF
from plan.test_plan_tiles import assert_order

CLASSES = [
    *((FLOAT32, precision) for precision in (IEEE, ATEN, TF32X3, TF32)),
    *((dtype, IEEE) for dtype in (FLOAT64, FLOAT16, BFLOAT16)),
]

# Layers of convt_ext/bench/layers.py: batch, c_in, c_out, size, kernel, stride, padding, output_padding, groups,
# dilation.
LAYERS = {
    "kb57": (8, 64, 64, (1024, 1024), (3, 3)),
    "kb65": (8, 64, 64, (512, 512), (3, 7)),
    "kb69": (64, 64, 128, (128, 256), (3, 5)),
    "kb71": (8, 32, 32, (512, 1024), (3, 3)),
    "kb75": (16, 32, 64, (128, 256), (3, 5), (2, 3), (1, 2), 0, 4, (2, 1)),
    "kb78": (8, 32, 32, (512, 1024), (3, 7), 1, (1, 3)),
    "kb81": (16, 32, 64, (64, 128), (3, 3), 5, 1, 0, 1, 2),
    "dcgan_512": (128, 512, 256, (4, 4), (4, 4), 2, 1),
    "dcgan_rgb": (128, 64, 3, (32, 32), (4, 4), 2, 1),
    "unet_1024": (4, 1024, 512, (32, 32), (2, 2), 2),
    "maskrcnn": (512, 256, 256, (14, 14), (2, 2), 2),
    "cyclegan_up": (1, 256, 128, (64, 64), (3, 3), 2, 1, 1),
    "dpt_4x4": (1, 256, 256, (37, 37), (4, 4), 4),
    "fsrcnn": (1, 56, 1, (360, 640), (9, 9), 3, 4, 2),
    "dw_up": (16, 64, 64, (128, 128), (4, 4), 2, 1, 0, 64),
    "fcn8s": (4, 21, 21, (64, 64), (16, 16), 8, 4),
}

EXTREMES = {
    "kernel_64x64": (1, 8, 8, (64, 64), (64, 64)),
    "kernel_64x64_stride_64": (1, 512, 512, (64, 64), (64, 64), 64),
    "kernel_1x1000": (2, 16, 16, (8, 4096), (1, 1000)),
    "kernel_1000x1": (2, 16, 16, (4096, 8), (1000, 1)),
    "kernel_300x300_stride_2": (1, 64, 4, (16, 16), (300, 300), 2),
    "stride_1000": (1, 4, 4, (9, 9), (3, 3), 1000),
    "kernel_and_stride_1000": (1, 4, 4, (5, 5), (1000, 1000), 1000),
    "dilation_500": (1, 32, 32, (16, 16), (7, 7), 1, 0, 0, 1, 500),
    "dilation_500_stride_500": (1, 32, 32, (16, 16), (7, 7), 500, 0, 0, 1, 500),
    "dilation_499_stride_500": (1, 32, 32, (16, 16), (7, 7), 500, 0, 0, 1, 499),
    "padding_beyond_everything": (1, 32, 32, (500, 500), (2, 2), 1, 249),
    "channels_4096": (1, 4096, 4096, (7, 7), (3, 3)),
    "depthwise_4096": (32, 4096, 4096, (14, 14), (4, 4), 2, 1, 0, 4096),
    "one_output_channel": (64, 4096, 1, (32, 32), (5, 5), 2),
    "one_input_channel": (64, 1, 4096, (32, 32), (5, 5), 2),
    "one_of_everything": (1, 1, 1, (1, 1), (1, 1)),
    "batch_65536": (65536, 3, 3, (2, 2), (2, 2), 2),
    "batch_2_to_24": (2**24, 1, 1, (1, 1), (1, 1)),
    "output_beyond_2_to_31": (1, 4, 32, (4096, 4096), (4, 4), 2, 1),
    "input_beyond_2_to_31": (8, 512, 1, (1024, 1024), (1, 1)),
    "kernel_1x2_to_22_dilated": (1, 1, 1, (1, 8), (1, 2**22), 1, 0, 0, 1, (1, 2)),
    "kernel_50000x50000": (1, 1, 1, (1, 1), (50000, 50000)),
    "kernel_1x2_to_22_fused": (1, 2, 1, (1, 8), (1, 2**22), (1, 16)),
    "kernel_20x65536_fused": (1, 2, 1, (8, 8), (20, 65536), (1, 8)),
    "fused_padding_beyond_everything": (1, 32, 32, (500, 500), (16, 16), 16, 249 * 16),
    "fused_row_of_2_to_27": (1, 1, 4, (1, 2**23), (1, 32), (1, 16)),
    "row_of_2_to_25": (1, 1, 1, (1, 2**25), (1, 3), 1),
    "column_of_2_to_25": (1, 1, 1, (2**25, 1), (3, 1), 1),
}


def simt_plans(candidates):
    """Those of the exact-order engine; the other engines have tests of their own."""
    return [plan for plan in candidates if plan["engine"] == "simt"]


@many_problems
@given(problem=problems(dtypes=True), device=st.sampled_from(sorted(DEVICES)))
def test_every_candidate_is_legal(plan_module, problem, device):
    candidates = plan_module.candidates(problem, DEVICES[device])
    assert candidates
    for plan in simt_plans(candidates):
        assert_legal(plan_module, problem, DEVICES[device], plan)
        assert_order(plan_module, computed_problem(plan_module, problem, plan), plan)
    order = [plan["estimate_us"] for plan in candidates]
    assert order == sorted(order)
    assert plan_module.choose(problem, DEVICES[device]) == candidates[0]


@many_problems
@given(problem=problems(dtypes=True), device=st.sampled_from(sorted(DEVICES)), data=st.data())
def test_candidates_are_exact(plan_module, problem, device, data):
    """The chosen plan, and one that lost, write every output once with the right value."""
    candidates = simt_plans(plan_module.candidates(problem, DEVICES[device]))
    index = data.draw(st.sampled_from([0, 0, len(candidates) // 2, len(candidates) - 1]))
    assert_exact(problem, partial(interpreter.run, plan_module, problem, candidates[index]), seed=index)


@given(problem=problems(dtypes=True), other=problems(dtypes=True))
def test_planning_is_pure(plan_module, problem, other):
    """Neither the arguments nor what was planned before make a difference."""
    before = copy.deepcopy(problem)
    first = plan_module.candidates(problem, H200)
    plan_module.candidates(other, DEVICES["small_sm75"])
    assert plan_module.candidates(problem, H200) == first
    assert problem == before


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", [*LAYERS, *EXTREMES])
def test_large_problems_are_planned_quickly(plan_module, name, device):
    for dtype, precision in CLASSES:
        for channels_last in (False, True):
            options = {"dtype": dtype, "precision": precision, "channels_last": channels_last, "has_bias": True}
            problem = from_row(*{**LAYERS, **EXTREMES}[name], **options)
            begin = time.thread_time()
            candidates = plan_module.candidates(problem, DEVICES[device])
            seconds = time.thread_time() - begin
            for plan in simt_plans(candidates):
                assert_legal(plan_module, problem, DEVICES[device], plan)
            assert candidates[0] == plan_module.choose(problem, DEVICES[device])
            # Every shape is planned in a call. Of the processor's time, as the machine may be busy.
            assert seconds < 0.05, f"{seconds * 1e3:.1f} ms for {len(candidates)} candidates"


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [(dtype, precision) for dtype in (FLOAT64, FLOAT16, BFLOAT16) for precision in (ATEN, TF32X3, TF32)],
)
def test_a_class_without_a_kernel_is_an_error(plan_module, dtype, precision):
    """Never a silent fall-through to another order of the sums."""
    problem = make_problem(1, 2, 2, make_axis(3, 3), make_axis(3, 3), dtype=dtype, precision=precision)
    for call in (plan_module.choose, plan_module.candidates, plan_module.to_json):
        with pytest.raises(ValueError, match=r"precision '(aten|tf32x3|tf32)' is defined for float32"):
            call(problem, H200)


@pytest.mark.parametrize(("dtype", "precision"), CLASSES)
def test_every_class_has_a_kernel(plan_module, dtype, precision):
    problem = from_row(*LAYERS["kb57"], dtype=dtype, precision=precision)
    kernel = plan_module.choose(problem, H200)["kernel"]
    expected = {ATEN: "_aten_", TF32: "_tf32_", TF32X3: "_tf32x3_"}.get(precision, "_ieee_")
    assert expected in kernel


@pytest.mark.parametrize(("c_out", "few"), [(1, True), (4, True), (5, False), (64, False)])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("stride", [1, 2])
def test_kernels_of_two_channels_are_for_few(plan_module, c_out, few, groups, stride):
    """Channels of a group of the problem itself, whether or not its phases become channels too."""
    for dtype, precision in CLASSES:
        problem = from_row(4, 2 * groups, c_out * groups, 32, 4, stride, 1, 0, groups, dtype=dtype, precision=precision)
        plans = simt_plans(plan_module.candidates(problem, H200))
        assert few == any(plan_module.instances()[plan["instance"]]["thread_co"] == 2 for plan in plans)


def test_instances_have_distinct_names(plan_module):
    names = [instance["name"] for instance in plan_module.instances()]
    assert len(set(names)) == len(names)


def assert_choice_is_the_best(plan_module, problem, device):
    """Its search leaves out what cannot be better, and of the gradient of the weight on tensor cores a little more."""
    candidates = plan_module.candidates(problem, device)
    choice = plan_module.choose(problem, device)
    assert choice == candidates[0]
    longer = 1.1 if problem["direction"] == 2 and problem["precision"] not in (IEEE, ATEN) else 1
    assert choice["estimate_us"] <= longer * min(plan["estimate_us"] for plan in candidates)
    assert candidates.count(choice) == 1


@many_problems
@given(problem=problems(dtypes=True), device=st.sampled_from(sorted(DEVICES)), direction=st.integers(0, 2))
def test_the_choice_is_the_best_candidate(plan_module, problem, device, direction):
    assert_choice_is_the_best(plan_module, {**problem, "direction": direction}, DEVICES[device])


@pytest.mark.parametrize(
    ("dtype", "precision"), [(FLOAT32, TF32), (FLOAT32, TF32X3), (BFLOAT16, HALF), (FLOAT32, IEEE)]
)
@pytest.mark.parametrize("name", LAYERS)
def test_the_choice_for_a_layer_is_the_best_candidate(plan_module, name, dtype, precision):
    for direction in range(3):
        problem = from_row(*LAYERS[name], dtype=dtype, precision=precision)
        assert_choice_is_the_best(plan_module, {**problem, "direction": direction}, H200)


@many_problems
@given(problem=problems(dtypes=True), direction=st.integers(0, 2))
def test_no_kernel_without_tensor_cores_is_estimated_near_their_rate(plan_module, problem, direction):
    """choose() does not look at these families where their floor, times this, would already be too long."""
    problem = {**problem, "direction": direction}
    longer = 1.7 if direction == 2 else 2.1
    floor = plan_module.floor_us(problem, (*H200[:5], 10**9))  # of the multiply-adds alone
    for plan in plan_module.candidates(problem, H200):
        if plan["engine"] in ("simt", "thin", "depthwise", "gather") and problem["dtype"] != FLOAT64:
            assert plan["estimate_us"] > longer * floor


def test_a_tile_is_read_as_its_own_type_alone(plan_module):
    read = set()
    for layer in LAYERS.values():
        problem = from_row(*layer, dtype=FLOAT32, precision=TF32)
        plan = plan_module.choose(problem, H200)
        read.add(plan["family"] == "window")
        if plan["family"] == "window":
            assert plan_module.window_instance(problem, H200) == plan["instance"]
        else:
            with pytest.raises(RuntimeError, match="belongs to another kernel family"):
                plan_module.window_instance(problem, H200)
    assert read == {True, False}

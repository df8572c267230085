"""How plans of the nhwc, correlate and strided engines copy and pack operands and divide work.

The emulator runs their kernels: tests/emulator."""

from __future__ import annotations

import functools

import pytest
from plan.problems import BFLOAT16, FLOAT32, FORWARD, GRAD_INPUT, GRAD_WEIGHT, H200, HALF, TF32, from_row
from plan.tensor_cores import CLASSES_WITH_TF32X3, plans_of

nhwc_plans = functools.partial(plans_of, "nhwc_sm90a")

DIRECTIONS = [FORWARD, GRAD_INPUT]


def layer(*row, channels_last=True, **others):
    return from_row(*row, channels_last=channels_last, **others)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("channels", [(64, 64), (62, 64), (64, 62), (60, 56)], ids=str)
def test_sources_without_a_tensor_map_are_gathered_or_packed(plan_module, channels, groups, direction):
    """Pixels and their groups begin on 16 bytes: here on four numbers."""
    problem = layer(4, *channels, 32, 4, 2, 1, 0, groups, precision=TF32) | {"direction": direction}
    k_channels = channels[direction == GRAD_INPUT]
    is_aligned = k_channels % (4 * groups) == 0
    found = {(plan["gathers"], plan["packs_source"]) for plan in nhwc_plans(plan_module, problem)}
    assert found >= {(False, False) if is_aligned else (False, True)}  # an aligned pixel may begin at another address
    assert found <= {(True, False), (False, not is_aligned)}


def test_large_sources_are_not_packed(plan_module):
    """A workspace of a GiB at most."""
    for batch, packed in ((16, True), (17, False)):
        problem = from_row(batch, 32, 32, 1024, 3, 1, 1, dtype=BFLOAT16, precision=HALF)
        assert any(plan["packs_source"] for plan in nhwc_plans(plan_module, problem)) == packed


def test_weights_are_copied_without_packing_if_their_source_channels_are_contiguous(plan_module):
    problem = layer(4, 64, 64, 32, 4, 2, 1, precision=TF32) | {"direction": GRAD_INPUT}
    in_nchw = problem | {"w_stride": [64 * 16, 16, 4, 1]}
    every_second = problem | {"w_stride": [2 * stride for stride in problem["w_stride"]]}
    for one, direct in ((problem, True), (in_nchw, False), (every_second, False)):
        assert {plan["direct"] for plan in nhwc_plans(plan_module, one)} == {direct}


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("kind", CLASSES_WITH_TF32X3)
def test_results_of_one_position_have_a_box_for_each_tap(plan_module, kind, channels_last):
    """In DCGAN's first layer a position of the gradient reads 16 places, so no box of all taps fits."""
    dtype, precision = CLASSES_WITH_TF32X3[kind]
    row = (64, 104, 512, 1, 4)
    problem = layer(*row, dtype=dtype, precision=precision, channels_last=channels_last) | {"direction": GRAD_INPUT}
    assert any(plan["apart"] and plan["num_windows"] == 16 for plan in nhwc_plans(plan_module, problem))
    large = layer(4, 64, 64, 64, 4, 2, 1, dtype=dtype, precision=precision) | {"direction": GRAD_INPUT}
    assert not any(plan["apart"] for plan in nhwc_plans(plan_module, large))


@pytest.mark.parametrize("kind", CLASSES_WITH_TF32X3)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_last_wave_is_divided(plan_module, direction, kind):
    """300 tiles of 128 x 128 results are two waves of 132 and 36 tiles; 36 tiles in three splits are 108."""
    dtype, precision = CLASSES_WITH_TF32X3[kind]
    problem = layer(1, 768, 768, 80, 3, 1, 1, dtype=dtype, precision=precision) | {"direction": direction}
    plans = nhwc_plans(plan_module, problem)
    found = [plan for plan in plans if plan["num_tiles"] == 300 and plan["parts"] > 1]
    assert {(plan["parts"], plan["divided"], plan["num_blocks"]) for plan in found} == {(3, 36, 132)}
    # Plans without splits stay candidates, which measurements may prefer.
    assert {plan["kernel"] for plan in found} & {plan["kernel"] for plan in plans if plan["parts"] == 1}


# ---- correlate


def correlate_plans(module, problem, direction=GRAD_WEIGHT):
    return plans_of("correlate_sm90a", module, problem | {"direction": direction})


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(("half", "dtype"), [(4, BFLOAT16), (TF32, FLOAT32)])
def test_plans_compute_the_gradient_of_the_bias_where_few_rows_are_uncovered(plan_module, half, dtype, channels_last):
    """Rows and columns that no counted tap covers are summed separately."""

    def gives(*row, **options) -> bool:
        layer = from_row(*row, precision=half, dtype=dtype, channels_last=channels_last, **options)
        return correlate_plans(plan_module, layer | {"direction": GRAD_WEIGHT})[0]["gives_grad_bias"]

    assert gives(8, 64, 64, 256, 3)
    assert gives(8, 64, 64, 256, 3, 2)
    assert gives(2, 64, 64, 64, 2, 2)  # from the first tap on
    assert not gives(1, 64, 64, 64, 3)
    assert not gives(2560, 64, 64, 14, 3)  # many, but two rows of sixteen
    assert gives(1, 64, 64, 64, 3, 1, 1)
    assert gives(8, 64, 64, 256, 4, 2, 1, 1)
    assert not gives(8, 64, 64, 256, 2, 2, 0, 1)  # the last row and column, which no tap has


def test_rows_between_vectors(plan_module):
    """Rows of grad_output are not packed if no tap reads beyond its row and planes are whole vectors. Other rows are
    packed, up to 2^28 elements of an image."""
    tf32, half = {"precision": TF32}, {"dtype": BFLOAT16, "precision": HALF}

    def packed(*row, **options) -> set[tuple[bool, bool]]:
        return {(plan["packs_x"], plan["packs_gy"]) for plan in correlate_plans(plan_module, from_row(*row, **options))}

    assert packed(2, 64, 64, 64, 3, 1, 0, **tf32) == {(False, False)}  # 66 x 66
    assert packed(2, 64, 64, 66, 3, 1, 1, **tf32) == {(True, True)}  # 66 x 66, with padding
    assert packed(2, 64, 64, 64, (5, 4), 1, (1, 1), **tf32) == {(False, True)}  # 66 x 65, with padding
    assert packed(2, 64, 64, 64, 2, 1, 0, **tf32) == {(False, True)}  # 65 x 65
    of_pixels = {(True, True)}  # pixels in half precision are packed
    assert packed(2, 64, 64, 64, 3, 1, 0, **half) == {(False, True)} | of_pixels  # 66 x 66 halves
    assert packed(2, 64, 64, 64, (5, 3), 1, 0, **half) == {(False, False)} | of_pixels  # 68 x 66
    assert packed(2, 64, 64, 63, 3, 1, 1, **tf32) == {(True, True)}
    assert packed(4, 64, 64, 2047, 3, 1, 1, **tf32) == {(True, True)}  # a little less than 2^28 of an image


def test_stages_of_transposed_pixels_have_two_steps(plan_module):
    """With two slots the third stage would wait for the first. Taps with a large distance leave no room for more."""
    far = (2, 64, 64, (4, 8), (3, 5), (3, 1), 0, 0, 1, (1, 62))
    plans = correlate_plans(plan_module, from_row(*far, precision=TF32, channels_last=True))
    assert 2 in {plan["slots"] for plan in plans}
    assert min(plan["rows"] * plan["columns"] for plan in plans) >= 16


def test_expanded_tensors_are_packed(plan_module):
    problem = from_row(2, 64, 64, 32, 3, 1, 1, precision=TF32) | {"y_stride": [0, 0, 0, 0]}
    assert {(plan["packs_x"], plan["packs_gy"]) for plan in correlate_plans(plan_module, problem)} == {(False, True)}


def test_large_tensors_are_packed_in_parts(plan_module):
    problem = from_row(8, 64, 64, 1023, 3, 1, 1, precision=TF32)
    assert {plan["images"] for plan in correlate_plans(plan_module, problem)} == {1}
    small = from_row(8, 64, 64, 127, 3, 1, 1, precision=TF32)
    assert {plan["images"] for plan in correlate_plans(plan_module, small)} == {8}


@pytest.mark.parametrize("layer", [(2, 64, 64, 32, 3, 3, 0, 1), (2, 64, 64, 32, 3, 1, 2, 0, 1, 2)], ids=str)
def test_forms(plan_module, layer):
    """In half precision, rows support strides of 1 and 2 and no dilation along W; channels_last supports all."""
    tf32, half = {"dtype": FLOAT32, "precision": TF32}, {"dtype": BFLOAT16, "precision": HALF}

    def forms(**options) -> set[bool]:
        return {"_pixels_" in plan["kernel"] for plan in correlate_plans(plan_module, from_row(*layer, **options))}

    assert forms(**tf32) == {False}
    assert forms(**half) == {True}
    assert forms(channels_last=True, **tf32) == forms(channels_last=True, **half) == {True}


# ---- strided


def test_warpgroups_that_alternate_have_slots_of_their_own(plan_module):
    """As many each: with an odd number a warpgroup would wait for the other's. Where shared memory leaves room for an
    odd number there is no such plan; an H200's leaves it for the most, eight."""
    problem = from_row(1, 256, 64, 32, 4, 2, 1, precision=TF32)
    slots = {}
    for shared in range(64 * 1024, H200[2] + 1, 4 * 1024):
        plans = plans_of("rows_sm90a", plan_module, problem, [*H200[:2], shared, shared + 1024, *H200[4:]])
        slots[shared] = {plan["source_slots"] for plan in plans if plan["alternate"]}
    assert set().union(*slots.values()) == {4, 6, 8}
    assert not all(slots.values()), "some sizes should have room for an odd number"

"""Plans of the correlate engine: who gets them, and that what they need is there. What they compute, the kernels
themselves show: tests/emulator/test_correlate.py."""

from __future__ import annotations

import pytest
from plan.problems import BFLOAT16, FLOAT32, GRAD_WEIGHT, HALF, TF32, from_row
from plan.tensor_cores import plans_of


def engine_plans(module, problem, direction=GRAD_WEIGHT):
    return plans_of("correlate_sm90a", module, problem | {"direction": direction})


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(("half", "dtype"), [(4, BFLOAT16), (TF32, FLOAT32)])
def test_first_rows_and_columns_are_added_up_apart(plan_module, half, dtype, channels_last):
    """Where they are few of many, and no counted tap has them."""

    def gives(*row, **options) -> bool:
        layer = from_row(*row, precision=half, dtype=dtype, channels_last=channels_last, **options)
        return engine_plans(plan_module, layer | {"direction": GRAD_WEIGHT})[0]["gives_grad_bias"]

    assert gives(8, 64, 64, 256, 3)
    assert gives(8, 64, 64, 256, 3, 2)
    assert gives(2, 64, 64, 64, 2, 2)  # from the first tap on
    assert not gives(1, 64, 64, 64, 3)
    assert not gives(2560, 64, 64, 14, 3)  # many, but two rows of sixteen
    assert gives(1, 64, 64, 64, 3, 1, 1)
    assert gives(8, 64, 64, 256, 4, 2, 1, 1)
    assert not gives(8, 64, 64, 256, 2, 2, 0, 1)  # the last row and column, which no tap has


def test_rows_between_vectors(plan_module):
    """Of grad_output, where no tap reads beside its row, they are parts of planes that are whole vectors. Others are
    packed, up to 2^28 elements of an image."""
    tf32, half = {"precision": TF32}, {"dtype": BFLOAT16, "precision": HALF}

    def packed(*row, **options) -> set[tuple[bool, bool]]:
        return {(plan["packs_x"], plan["packs_gy"]) for plan in engine_plans(plan_module, from_row(*row, **options))}

    assert packed(2, 64, 64, 64, 3, 1, 0, **tf32) == {(False, False)}  # 66 x 66
    assert packed(2, 64, 64, 66, 3, 1, 1, **tf32) == {(True, True)}  # 66 x 66, with padding
    assert packed(2, 64, 64, 64, (5, 4), 1, (1, 1), **tf32) == {(False, True)}  # 66 x 65, with padding
    assert packed(2, 64, 64, 64, 2, 1, 0, **tf32) == {(False, True)}  # 65 x 65
    of_pixels = {(True, True)}  # halves of which are packed
    assert packed(2, 64, 64, 64, 3, 1, 0, **half) == {(False, True)} | of_pixels  # 66 x 66 halves
    assert packed(2, 64, 64, 64, (5, 3), 1, 0, **half) == {(False, False)} | of_pixels  # 68 x 66
    assert packed(2, 64, 64, 63, 3, 1, 1, **tf32) == {(True, True)}
    assert packed(4, 64, 64, 2047, 3, 1, 1, **tf32) == {(True, True)}  # a little less than 2^28 of an image


def test_stages_of_transposed_pixels_have_two_steps(plan_module):
    """With two slots the third stage would be waited for before the first is given back. Taps that lie far from each
    other leave room for no more."""
    far = (2, 64, 64, (4, 8), (3, 5), (3, 1), 0, 0, 1, (1, 62))
    plans = engine_plans(plan_module, from_row(*far, precision=TF32, channels_last=True))
    assert 2 in {plan["slots"] for plan in plans}
    assert min(plan["rows"] * plan["columns"] for plan in plans) >= 16


def test_expanded_tensors_are_packed(plan_module):
    problem = from_row(2, 64, 64, 32, 3, 1, 1, precision=TF32) | {"y_stride": [0, 0, 0, 0]}
    assert {(plan["packs_x"], plan["packs_gy"]) for plan in engine_plans(plan_module, problem)} == {(False, True)}


def test_large_tensors_are_packed_in_parts(plan_module):
    problem = from_row(8, 64, 64, 1023, 3, 1, 1, precision=TF32)
    assert {plan["images"] for plan in engine_plans(plan_module, problem)} == {1}
    small = from_row(8, 64, 64, 127, 3, 1, 1, precision=TF32)
    assert {plan["images"] for plan in engine_plans(plan_module, small)} == {8}


@pytest.mark.parametrize("layer", [(2, 64, 64, 32, 3, 3, 0, 1), (2, 64, 64, 32, 3, 1, 2, 0, 1, 2)], ids=str)
def test_forms(plan_module, layer):
    """Rows of halves have strides of 1 and 2 and no dilation along W; in channels_last pixels lie as they should."""
    tf32, half = {"dtype": FLOAT32, "precision": TF32}, {"dtype": BFLOAT16, "precision": HALF}

    def forms(**options) -> set[bool]:
        return {"_pixels_" in plan["kernel"] for plan in engine_plans(plan_module, from_row(*layer, **options))}

    assert forms(**tf32) == {False}
    assert forms(**half) == {True}
    assert forms(channels_last=True, **tf32) == forms(channels_last=True, **half) == {True}

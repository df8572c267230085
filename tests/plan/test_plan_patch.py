"""Plans of the patch engine: one matrix product computes the operator, and everything lies where it has room."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan.problems import (
    FLOAT32,
    FORWARD,
    GRAD_INPUT,
    GRAD_WEIGHT,
    H200,
    IEEE,
    TF32,
    from_row,
)
from plan.profile import many_problems
from plan.tensor_cores import CLASSES_WITH_TF32X3, plans_of


def engine_plans(module, problem, device=H200):
    """Without the kernels that have a file of tests of their own."""
    plans = plans_of("patch_sm90a", module, problem, device)
    others = ("_direct_", "_runs_")
    return [plan for plan in plans if not any(other in plan["kernel"] for other in others)]


BLOCK_BYTES = 8192  # weights of 64 channels in a stage: 128 bytes of each
KERNELS = [(2, 2), (4, 2), (1, 4), (3, 4), (4, 4), (2, 8)]


def shapes(plans):
    return {(plan["blocks"], plan["consumers"]) for plan in plans}


def patches(batch, c_in, c_out, h, w, kernel, groups=1, **others):
    """A layer whose kernel is its stride."""
    return from_row(batch, c_in, c_out, (h, w), kernel, kernel, 0, 0, groups, **others)


@pytest.mark.parametrize("kind", CLASSES_WITH_TF32X3)
@pytest.mark.parametrize("kernel", KERNELS)
def test_layers_of_patches_get_plans(plan_module, kind, kernel):
    dtype, precision = CLASSES_WITH_TF32X3[kind]
    problem = patches(4, 256, 128, 32, 32, kernel, dtype=dtype, precision=precision)
    split, pairs = kind == "tf32x3", kernel[1] == 2
    forward = {(4, 2), (2, 1) if split else (4, 1)} if pairs else {(4, 2)}
    assert shapes(engine_plans(plan_module, problem)) == forward
    assert not engine_plans(plan_module, problem, [80, *H200[1:]])  # no wgmma before Hopper, none of it after
    gathered = engine_plans(plan_module, problem | {"direction": GRAD_INPUT})
    nhwc = patches(4, 256, 128, 32, 32, kernel, dtype=dtype, precision=precision, channels_last=True)
    assert not engine_plans(plan_module, nhwc | {"direction": GRAD_INPUT})
    of_pairs = {(4, 2), (2, 1), (2, 2)} if split else {(4, 1), (4, 2), (2, 1), (2, 2)}
    assert shapes(gathered) == (of_pairs if pairs else set())
    few = engine_plans(plan_module, patches(1, 64, 128, 9, 9, kernel, dtype=dtype, precision=precision))
    assert {plan["splits"] for plan in few} == {1}
    few = patches(1, 64, 128, 9, 9, kernel, dtype=dtype, precision=precision) | {"direction": GRAD_INPUT}
    splits = {1, 2, 4} if kernel == (2, 2) and kind not in ("tf32", "tf32x3") else {1, 2, 4, 8}
    assert {plan["splits"] for plan in engine_plans(plan_module, few)} == (splits if pairs else set())
    assert not engine_plans(plan_module, problem | {"direction": GRAD_WEIGHT})
    assert not engine_plans(plan_module, patches(4, 256, 128, 32, 32, kernel, precision=IEEE))


@pytest.mark.parametrize("change", ["padding", "output_padding", "stride", "dilation", "odd width", "odd height"])
def test_other_layers_get_none(plan_module, change):
    rows = {
        "padding": from_row(4, 256, 128, 32, 4, 4, 1, precision=TF32),
        "output_padding": from_row(4, 256, 128, 32, 4, 4, 0, 1, precision=TF32),
        "stride": from_row(4, 256, 128, 32, 4, 2, precision=TF32),
        "dilation": from_row(4, 256, 128, 32, 2, 2, 0, 0, 1, 3, precision=TF32),
        "odd width": from_row(4, 256, 128, 32, 3, 3, precision=TF32),
        "odd height": patches(4, 256, 128, 32, 32, (3, 2), precision=TF32),
    }
    assert not engine_plans(plan_module, rows[change])


@many_problems
@given(
    kernel=st.sampled_from(KERNELS),
    kind=st.sampled_from(sorted(CLASSES_WITH_TF32X3)),
    direction=st.sampled_from([FORWARD, GRAD_INPUT]),
    groups=st.sampled_from([1, 3]),
    batch=st.integers(1, 5),
    size=st.tuples(st.integers(1, 40), st.integers(1, 66)),
    channels=st.tuples(st.integers(2, 300), st.integers(2, 300)),
    channels_last=st.booleans(),
)
def test_plans_are_legal(plan_module, kernel, kind, direction, groups, batch, size, channels, channels_last):
    dtype, precision = CLASSES_WITH_TF32X3[kind]
    forward, element = direction == FORWARD, 4 if dtype == FLOAT32 else 2
    channels_last = channels_last and forward
    c_in, c_out = channels
    asked = {"dtype": dtype, "precision": precision, "channels_last": channels_last}
    problem = patches(batch, groups * c_in, groups * c_out, *size, kernel, groups, **asked) | {"direction": direction}
    plans = engine_plans(plan_module, problem)
    split, pairs = kind == "tf32x3", kernel[1] == 2 and not channels_last
    assert len({plan["kernel"] for plan in plans}) == (1 + pairs if forward else (4 - split) * pairs)
    block_bytes, taps = (2 if split else 1) * BLOCK_BYTES, kernel[0] * kernel[1]
    for plan in plans:
        assert plan["tile_positions"] == plan["step"] * plan["consumers"], plan
        # Fewer than 64 positions are whole rows, of results that do not begin on sectors. Threads read pairs of them.
        assert plan["step"] in range(56, 65, 2), plan
        assert plan["whole_rows"] or plan["step"] == 64, plan
        assert not plan["whole_rows"] or (plan["step"] % size[1] == 0 and 2 * size[1] * element % 32), plan
        # Every tile begins where a copy of the source may.
        assert plan["step"] * element % math.gcd(16, size[0] * size[1] * element) == 0, plan
        # Results that leave by way of shared memory do so in 16 bytes of float32 rows, 8 of others.
        assert plan["staged"] or not plan["whole_rows"], plan
        in_columns = forward and not channels_last
        assert plan["whole_rows"] or plan["staged"] == (in_columns and kernel[1] * size[1] % 4 == 0), plan
        # A stage has 128 bytes of every position: of its channels, or of four elements of their patches.
        chunks = -(-c_in * element // 128) if forward else -(-4 * c_out * element // 128) * taps // 4
        assert plan["num_chunks"] == chunks, plan
        if forward:
            columns = groups * -(-c_out // 64) * taps // plan["blocks"]
            assert plan["packed_bytes"] == groups * -(-c_out // 64) * taps * plan["num_chunks"] * block_bytes, plan
        else:
            columns = groups * -(-c_in // (64 * plan["blocks"]))
            assert plan["packed_bytes"] == groups * -(-c_in // 64) * plan["num_chunks"] * block_bytes, plan
        assert plan["packed_bytes"] == plan["workspace_bytes"], plan
        assert plan["num_tiles"] == columns * -(-batch * size[0] * size[1] // plan["tile_positions"]), plan
        ctas = -(-plan["num_blocks"] // H200[1])  # of an SM
        assert 1 <= plan["num_blocks"] <= plan["num_tiles"] * plan["splits"], plan
        assert ctas <= 3 - plan["consumers"], plan
        if plan["splits"] > 1:  # one tile for each cluster, stages for all, and room for everybody's sums
            assert (forward, plan["consumers"]) == (False, 2), plan
            assert plan["splits"] in (2, 4, 8), plan
            assert plan["num_blocks"] == plan["num_tiles"] * plan["splits"], plan
            assert plan["num_chunks"] >= 2 * plan["splits"], plan
            assert plan["tile_positions"] * 64 * plan["blocks"] * 4 <= plan["barriers_begin"], plan
        assert ctas == 1 or (plan["resident"] and 2 * (plan["shared_bytes"] + 1024) <= H200[3]), plan
        positions = 64 * plan["consumers"]
        row = 144 if channels_last else (positions + 8) * element if forward else 2 * positions * element + 16
        rows = positions if channels_last else (128 if forward else 64) // element
        assert plan["source_slots"] >= 2, plan
        assert plan["source_slots"] * row * rows <= plan["weights_begin"], plan
        slot_blocks = 1 if split else plan["blocks"]
        weights = plan["weight_slots"] * slot_blocks * block_bytes
        assert plan["weights_begin"] + weights <= plan["staged_begin"], plan
        staged = plan["consumers"] * 2 * (32 // element) * (4 * 64 + 16 // element) * element if plan["staged"] else 0
        assert plan["staged_begin"] + staged <= plan["barriers_begin"], plan
        slots = plan["source_slots"] + plan["weight_slots"]
        bias = plan["consumers"] * 4 * 64 * 4  # of each warp
        assert plan["barriers_begin"] + 16 * slots + bias <= plan["shared_bytes"] <= H200[2], plan
        if plan["resident"]:  # all tiles of a CTA have one column's weights, each stage its own slot
            assert plan["num_blocks"] % columns == 0, plan
            assert plan["weight_slots"] * slot_blocks == plan["num_chunks"] * plan["blocks"], plan

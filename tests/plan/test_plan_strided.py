"""Plans of the strided engine: tiles cover every position once, and everything lies where it has room."""

from __future__ import annotations

import functools

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

engine_plans = functools.partial(plans_of, "rows_sm90a")

QUADS = 64  # of a tile, half as many where its warpgroups alternate
MOST_OF_BOX = 256  # elements along each dimension of what a tensor map copies at once


def doubled(batch, c_in, c_out, h, w, groups=1, kernel=4, **others):
    """A layer that doubles an image with overlapping taps."""
    return from_row(batch, c_in, c_out, (h, w), kernel, 2, 1, 4 - kernel, groups, **others)


@pytest.mark.parametrize("kernel", [3, 4])
@pytest.mark.parametrize("kind", CLASSES_WITH_TF32X3)
def test_layers_that_double_an_image_get_plans(plan_module, kind, kernel):
    dtype, precision = CLASSES_WITH_TF32X3[kind]
    problem = doubled(64, 256, 256, 32, 24, kernel=kernel, dtype=dtype, precision=precision)
    split = kind == "tf32x3"  # sums are held twice
    assert {plan["block_n"] for plan in engine_plans(plan_module, problem)} == {64 if kernel == 4 and not split else 32}
    gathered = engine_plans(plan_module, problem | {"direction": GRAD_INPUT})
    assert {plan["block_n"] for plan in gathered} == ({64} if split else {64, 128})
    assert not engine_plans(plan_module, problem, [80, *H200[1:]])  # no wgmma before Hopper, none of it after
    assert not engine_plans(plan_module, problem | {"direction": GRAD_WEIGHT})
    nhwc = doubled(64, 256, 256, 32, 24, dtype=dtype, precision=precision, channels_last=True)
    assert not engine_plans(plan_module, nhwc)
    assert not engine_plans(plan_module, doubled(64, 256, 256, 32, 24, precision=IEEE))


@pytest.mark.parametrize("change", ["kernel", "stride", "padding", "output_padding", "dilation", "width", "groups"])
def test_other_layers_get_none(plan_module, change):
    rows = {
        "kernel": from_row(4, 64, 64, 32, 5, 2, 2, 1, precision=TF32),
        "stride": from_row(4, 64, 64, 32, 4, 4, precision=TF32),
        "padding": from_row(4, 64, 64, 32, 4, 2, precision=TF32),
        "output_padding": from_row(4, 64, 64, 32, 3, 2, 1, 0, precision=TF32),
        "dilation": from_row(4, 64, 64, 32, 4, 2, 1, 0, 1, 3, precision=TF32),
        "width": doubled(4, 64, 64, 32, 30, precision=TF32),
        "groups": doubled(4, 24, 24, 32, 32, 2, precision=TF32),  # a group's last stage would have the next one's
    }
    assert not engine_plans(plan_module, rows[change])


def test_few_tiles_are_shared(plan_module):
    """dcgan_512 in tf32: 64 tiles for 132 SMs, of the gradient 32 or 64. Four blocks each want some SMs to spare."""
    problem = doubled(128, 512, 256, 4, 4, precision=TF32)
    assert {plan["splits"] for plan in engine_plans(plan_module, problem)} == {1, 2}
    gathered = engine_plans(plan_module, problem | {"direction": GRAD_INPUT})
    assert {(plan["block_n"], plan["splits"]) for plan in gathered} == {(128, 1), (128, 2), (64, 1), (64, 2)}
    problem = doubled(1, 256, 128, 32, 32, precision=TF32)
    assert {plan["splits"] for plan in engine_plans(plan_module, problem)} == {1, 2, 4}


def test_warpgroups_that_alternate_have_slots_of_their_own(plan_module):
    """As many each: with an odd number a warpgroup would wait for the other's. Where shared memory leaves room for an
    odd number there is no such plan; an H200's leaves it for the most, eight."""
    problem = doubled(1, 256, 64, 32, 32, precision=TF32)
    slots = {}
    for shared in range(64 * 1024, H200[2] + 1, 4 * 1024):
        plans = engine_plans(plan_module, problem, [*H200[:2], shared, shared + 1024, *H200[4:]])
        slots[shared] = {plan["source_slots"] for plan in plans if plan["alternate"]}
    assert set().union(*slots.values()) == {4, 6, 8}
    assert not all(slots.values()), "some sizes should have room for an odd number"


@many_problems
@given(
    kind=st.sampled_from(sorted(CLASSES_WITH_TF32X3)),
    direction=st.sampled_from([FORWARD, GRAD_INPUT]),
    kernel=st.sampled_from([3, 4]),
    groups=st.sampled_from([1, 3]),
    batch=st.integers(1, 70),
    size=st.tuples(st.integers(1, 70), st.integers(1, 50)),
    channels=st.tuples(st.integers(1, 300), st.integers(1, 300)),
)
def test_plans_are_legal(plan_module, kind, direction, kernel, groups, batch, size, channels):
    dtype, precision = CLASSES_WITH_TF32X3[kind]
    forward, element = direction == FORWARD, 4 if dtype == FLOAT32 else 2
    step, rows = (1, 2) if forward else (2, kernel)
    taps = (8 if kernel == 4 else 9) if forward else kernel  # of a slot
    phases = (2 if kernel == 4 else 4) if forward else 1  # of a tile
    h, w = size[0], 4 * size[1]
    c_in, c_out = channels if groups == 1 else [16 * -(-c // 16) for c in channels]
    problem = doubled(batch, groups * c_in, groups * c_out, h, w, groups, kernel, dtype=dtype, precision=precision)
    for plan in engine_plans(plan_module, problem | {"direction": direction}):
        quads = QUADS // 2 if plan["alternate"] else QUADS
        # Every quad of every strip, row and image is in one tile.
        strip = h * plan["strip_width"] // 4
        strips = -(-w // plan["strip_width"])
        if strip <= quads:
            assert plan["tile_quads"] == plan["tile_images"] * strip <= quads, plan
            tile_rows, strip_tiles = h, 1
        else:
            assert (plan["tile_images"], plan["tile_quads"]) == (1, quads), plan
            of_row = plan["strip_width"] // 4
            begins = range(0, strip, quads)
            tile_rows = max((min(b + quads, strip) - 1) // of_row - b // of_row + 1 for b in begins)
            strip_tiles = len(begins)
        k_channels, n_channels = (c_in, c_out) if forward else (c_out, c_in)
        channel_tiles = -(-n_channels // plan["block_n"])
        tiles = channel_tiles * (2 if phases == 2 else 1) * groups * strip_tiles * strips
        assert plan["num_tiles"] == tiles * -(-batch // plan["tile_images"]), plan
        # A stage has 32 bytes of the channels of what its tile's positions read.
        assert 0 <= plan["num_chunks"] * 32 - k_channels * element < 32, plan
        if plan["whole_images"]:
            assert (plan["box_rows"], strips) == (1, 1), plan
            assert plan["pitch"] >= step * step * h * w, plan
        else:
            assert plan["box_rows"] == step * (tile_rows - 1) + rows, plan
            assert plan["pitch"] >= step * plan["strip_width"] + 2 * plan["box_lead"], plan
            assert (plan["box_lead"] * element == 16) == (strips > 1), plan
            assert step * w * element % 16 == 0, plan
        assert plan["pitch"] * element % 16 == 0, plan
        # An image of a channel that is a copy of its own is longer than a map's box, and no channel has to be zero.
        if plan["image_copies"]:
            assert plan["whole_images"], plan
            assert plan["pitch"] > MOST_OF_BOX, plan
            assert k_channels * element % 32 == 0, plan
        assert max(0 if plan["image_copies"] else plan["pitch"], plan["box_rows"], plan["tile_images"]) <= MOST_OF_BOX
        assert plan["stage_bytes"] >= plan["tile_images"] * plan["box_rows"] * plan["pitch"] * 32, plan
        assert plan["stage_bytes"] % 128 == 0, plan
        # Shared memory: stages, weights, zeros, barriers; a tile's parts are exchanged where the first two are.
        tap = (64 if kind == "tf32x3" else 32) * plan["block_n"]  # a high and a low part
        slot = taps * tap
        assert plan["source_slots"] >= 2, plan
        assert plan["weight_slots"] >= 2, plan
        assert plan["source_slots"] * plan["stage_bytes"] <= plan["weights_begin"], plan
        assert plan["weights_begin"] + plan["weight_slots"] * slot <= plan["zeros_begin"], plan
        assert plan["zeros_begin"] + 64 <= plan["barriers_begin"], plan
        slots = plan["source_slots"] + plan["weight_slots"]
        assert plan["barriers_begin"] + 16 * slots <= plan["shared_bytes"] <= H200[2], plan
        if plan["splits"] > 1:
            assert plan["num_blocks"] == plan["splits"] * plan["num_tiles"] <= H200[1], plan
            assert plan["num_chunks"] >= 2 * plan["splits"], plan
        else:
            assert plan["num_blocks"] == min(H200[1], plan["num_tiles"]), plan
        if plan["alternate"]:  # every other stage, of no more than one tile
            assert plan["num_tiles"] <= H200[1], plan
            assert (plan["num_chunks"] % 2, plan["splits"]) == (0, 1), plan
            # A warpgroup has slots of its own, and is no round of the weights' ahead of the other.
            assert plan["source_slots"] % 2 == 0, plan
            assert plan["weight_slots"] >= plan["source_slots"], plan
        if plan["splits"] > 1 or plan["alternate"]:
            sums = 4 * quads * plan["block_n"] * phases
            assert 4 * sums <= plan["zeros_begin"], plan
        of_chunk = kernel**2 * tap
        assert plan["packed_bytes"] == groups * channel_tiles * plan["num_chunks"] * of_chunk, plan
        assert plan["packed_bytes"] == plan["workspace_bytes"], plan

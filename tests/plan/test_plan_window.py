"""Plans of the window engine: tiles own every result once, and what they read of the source is where they look."""

from __future__ import annotations

import functools
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from plan.exact import operands_and_result
from plan.problems import (
    BFLOAT16,
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
from plan.tensor_cores import CLASSES_WITH_TF32X3, HALF, plans_of

engine_plans = functools.partial(plans_of, "rows_sm90a")

DIRECTIONS = [FORWARD, GRAD_INPUT]


def layer(c_in, c_out, h, w, kernel_w=3, padding=0, groups=1, batch=2, **others):
    return from_row(batch, c_in, c_out, (h, w), (3, kernel_w), 1, padding, 0, groups, **others)


@pytest.mark.parametrize("kind", CLASSES_WITH_TF32X3)
@pytest.mark.parametrize("kernel_w", [3, 5, 7])
def test_layers_without_stride_get_plans(plan_module, kind, kernel_w):
    dtype, precision = CLASSES_WITH_TF32X3[kind]
    problem = layer(64, 64, 64, 256, kernel_w, dtype=dtype, precision=precision)
    plans = engine_plans(plan_module, problem)
    assert {(plan["block_n"], plan["tile_w"]) for plan in plans} == set(itertools.product((32, 64), (32, 64, 128)))
    assert not engine_plans(plan_module, problem, [80, *H200[1:]])  # no wgmma before Hopper, none of it after
    assert not engine_plans(plan_module, problem | {"direction": GRAD_WEIGHT})
    assert not engine_plans(plan_module, layer(64, 64, 64, 256, kernel_w, precision=IEEE))


CHANGES = {
    "stride": from_row(2, 64, 64, 64, 3, 2, precision=TF32),
    "dilation": from_row(2, 64, 64, 64, 3, 1, 0, 0, 1, 2, precision=TF32),
    "kernel": from_row(2, 64, 64, 64, (5, 3), precision=TF32),
    "wide kernel": from_row(2, 64, 64, 64, (3, 9), precision=TF32),
    "channels_last": layer(64, 64, 64, 64, precision=TF32, channels_last=True),
    "more classes of rows and channels than maps": layer(64, 64, 63, 65, dtype=BFLOAT16, precision=HALF),
    "channels that are not whole classes": layer(63, 64, 65, 66, precision=TF32),
    "groups that share a stage": layer(24, 24, 64, 64, groups=2, precision=TF32),
}


@pytest.mark.parametrize("change", CHANGES)
def test_other_layers_get_none(plan_module, change):
    assert not engine_plans(plan_module, CHANGES[change])


def source_of(problem):
    """Channels, rows and columns of what is read, and the coordinates of the first result's first tap."""
    forward = problem["direction"] == FORWARD
    axes = [(problem[axis]["in" if forward else "out"], problem[axis]) for axis in "hw"]
    first = [axis["padding"] - axis["kernel"] + 1 if forward else -axis["padding"] for _, axis in axes]
    return problem["c_in" if forward else "c_out"], axes[0][0], axes[1][0], *first


def classes_of(problem, element: int) -> tuple[int, int] | None:
    """The classes of rows and of channels that begin alike modulo 16 bytes, if there are few enough."""
    channels, rows, columns, _, _ = source_of(problem)
    counts = []
    for count, step in ((rows, columns), (channels, rows * columns)):
        classes = 1
        while count > 1 and step * classes * element % 16:
            classes *= 2
        if classes > count:
            return None
        counts.append(classes)
    row_classes, channel_classes = counts
    if channel_classes > 4 or row_classes * channel_classes > 16 or channels % channel_classes:
        return None
    return row_classes, channel_classes


def column_tiles(plan, result_w: int, row_begin: int, element: int) -> list[tuple[int, int]]:
    """The columns that each tile stores of a row of the result that begins at that element of memory."""
    overlap, tiles = plan["overlap"], []
    for number in range(plan["column_tiles"]):
        begin = plan["begin_w"] + number * (plan["tile_w"] - overlap)
        end = begin + plan["tile_w"] - overlap
        if overlap:
            begin += -(row_begin + begin) % overlap
            end += -(row_begin + end) % overlap
        if number == 0:
            begin = 0
        if number == plan["column_tiles"] - 1:
            end = result_w
        tiles.append((begin, end))
    return tiles


@many_problems
@given(
    kind=st.sampled_from(sorted(CLASSES_WITH_TF32X3)),
    direction=st.sampled_from(DIRECTIONS),
    kernel_w=st.sampled_from([3, 5, 7]),
    padding=st.tuples(st.integers(0, 4), st.integers(0, 8)),
    size=st.tuples(st.integers(3, 40), st.integers(8, 700)),
    channels=st.tuples(st.integers(1, 150), st.integers(1, 150)),
    batch=st.integers(1, 4),
)
def test_plans_are_legal(plan_module, kind, direction, kernel_w, padding, size, channels, batch):
    dtype, precision = CLASSES_WITH_TF32X3[kind]
    element = 4 if dtype == FLOAT32 else 2
    h, w = size
    padding = (min(padding[0], (h + 1) // 2), min(padding[1], (w + kernel_w - 2) // 2))
    forward = direction == FORWARD
    problem = layer(*channels, h, w, kernel_w, padding, 1, batch, dtype=dtype, precision=precision)
    problem |= {"direction": direction}
    classes = classes_of(problem, element)
    source_channels, source_rows, source_columns, *_ = source_of(problem)
    if classes is None or (batch > 1 and source_channels * source_rows * source_columns * element % 16):
        assert not engine_plans(plan_module, problem)
        return
    row_classes, channel_classes = classes
    k_channels, n_channels = channels if forward else channels[::-1]
    result_h, result_w = (problem[axis]["out" if forward else "in"] for axis in "hw")
    first_w = padding[1] - kernel_w + 1 if forward else -padding[1]
    plans = engine_plans(plan_module, problem)
    assert plans
    for plan in plans:
        # Tiles begin where their source windows begin on 16 bytes.
        for number in range(plan["column_tiles"]):
            begin = plan["begin_w"] + number * (plan["tile_w"] - plan["overlap"])
            assert (begin + first_w) * element % 16 == 0, plan
        # They own every column of a row once, whatever sector it begins in, and none that they do not compute.
        for row_begin in range(32 // element):
            end = 0
            tiles = column_tiles(plan, result_w, row_begin, element)
            for number, (first, last) in enumerate(tiles):
                begin = plan["begin_w"] + number * (plan["tile_w"] - plan["overlap"])
                assert first == end or first >= last, (plan, tiles)
                assert begin <= first, (plan, tiles)
                assert last <= begin + plan["tile_w"], (plan, tiles)
                end = max(end, last)
            assert end == result_w, (plan, tiles)
        parts = 2 if kind == "tf32x3" else 1
        rows = 64 // plan["block_n"] if parts > 1 else 4 if plan["block_n"] == 32 and element == 2 else 2
        assert plan["tile_h"] * plan["tile_w"] == 8 * 32 * rows, plan
        assert plan["row_tiles"] == -(-result_h // plan["tile_h"]), plan
        assert plan["channel_tiles"] == -(-n_channels // plan["block_n"]), plan
        tiles = batch * plan["row_tiles"] * plan["column_tiles"] * plan["channel_tiles"]
        assert plan["num_tiles"] == tiles, plan
        assert 1 <= plan["num_blocks"] <= min(H200[1], tiles), plan
        # A stage has 32 bytes of every position's channels: rows of the source, and the taps' weights.
        assert k_channels * element <= plan["num_chunks"] * 32 < k_channels * element + 32, plan
        # Boxes of the source's classes hold every row and column that a tile reads, wherever in 16 bytes rows begin.
        assert (plan["row_classes"], plan["channel_classes"]) == classes, plan
        most_shift = 16 // element - 16 // element // max(classes)
        assert plan["tile_w"] + kernel_w - 1 + most_shift <= plan["pitch"], plan
        box = -(-(plan["tile_h"] + 2) // row_classes) * 32 // channel_classes * plan["pitch"]
        assert box % 128 == 0, plan
        source = box * row_classes * channel_classes
        weights = 3 * kernel_w * plan["block_n"] * 32 * parts
        assert source + weights <= plan["slot_bytes"], plan
        assert plan["slot_bytes"] % 128 == 0, plan
        assert plan["source_slots"] >= 2, plan
        assert plan["source_slots"] * plan["slot_bytes"] <= plan["staged_begin"], plan
        # And all results of a tile wait in shared memory, or half or a quarter of their channels.
        halves = 1 if plan["block_n"] * element <= 128 or kernel_w == 3 else 2
        pieces = halves if parts == 1 else 4 if plan["block_n"] == 64 and kernel_w == 7 else 1
        staged = (128 * rows * element + 16) * plan["block_n"] // pieces + 4 * plan["block_n"]
        assert plan["staged_begin"] + 2 * staged <= plan["barriers_begin"], plan
        assert plan["barriers_begin"] + 16 * (plan["source_slots"] + 2) <= plan["shared_bytes"] <= H200[2], plan
        assert plan["packed_bytes"] == plan["workspace_bytes"], plan
        assert plan["packed_bytes"] == plan["channel_tiles"] * plan["num_chunks"] * weights, plan


@many_problems
@given(
    direction=st.sampled_from(DIRECTIONS),
    kernel_w=st.sampled_from([3, 5, 7]),
    padding=st.tuples(st.integers(0, 3), st.integers(0, 7)),
    size=st.tuples(st.integers(4, 9), st.integers(2, 12)),
    seed=st.integers(0, 2**31),
)
def test_windows_compute_the_operator(plan_module, direction, kernel_w, padding, size, seed):
    """Sums over taps by ascending source row and column, as the kernel takes them from a stage."""
    h, w = size[0], 4 * size[1]
    padding = (min(padding[0], (h + 1) // 2), min(padding[1], (w + kernel_w - 2) // 2))
    problem = layer(2, 3, h, w, kernel_w, padding, precision=TF32, has_bias=False)
    problem |= {"direction": direction}
    (source, weight, *_), expected = operands_and_result(problem, seed)
    taps = weight if direction == GRAD_INPUT else weight.flip(2, 3).transpose(0, 1)
    first_h, first_w = plan_module.window_shifts(problem)
    border = 64  # more than any window reaches out of the source
    framed = torch.nn.functional.pad(source, [border] * 4)
    result = torch.zeros_like(expected)
    rows, columns = result.shape[2:]
    for i, j in itertools.product(range(3), range(kernel_w)):
        y, z = border + first_h + i, border + first_w + j
        result += torch.einsum("nchw,oc->nohw", framed[:, :, y : y + rows, z : z + columns], taps[:, :, i, j])
    assert torch.equal(result, expected)

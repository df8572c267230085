"""The scatter engine's plans: legal, exact when executed as kernels/scatter_sm90a does, and offered where it serves."""

from __future__ import annotations

import functools
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from plan.exact import assert_exact
from plan.problems import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    FORWARD,
    GRAD_INPUT,
    GRAD_WEIGHT,
    H200,
    IEEE,
    TF32,
    TF32X3,
    element_bytes,
    from_row,
    make_axis,
    make_problem,
)
from plan.profile import few_problems
from plan.tensor_cores import HALF, plans_of
from plan.test_plan_choice import LAYERS

engine_plans = functools.partial(plans_of, "scatter_sm90a")

CLASSES = [(FLOAT32, TF32), (BFLOAT16, HALF), (FLOAT16, HALF), (FLOAT32, TF32X3)]
# Class, slots, columns and whether channels_last, in the order of kernels/scatter_sm90a/instances.h.
INSTANCES = [
    (kind, slots, columns, channels_last)
    for channels_last in (False, True)
    for kind in CLASSES
    for slots, columns in ((2, 24), (2, 40), (3, 32))
    if columns != 40 or channels_last or kind == (FLOAT32, TF32X3)
]


def assert_scatter_is_legal(module, problem, layout, instance, shared=H200[2]):
    element = element_bytes(problem)
    kind, slots, columns, channels_last = INSTANCES[instance]
    assert kind == (problem["dtype"], problem["precision"])
    assert layout["slots"] <= slots
    assert layout["slot_columns"] <= columns
    # A copy's box: sides of 256 at most, an odd number of 32-byte units from channel to channel, on 128 bytes. In
    # channels_last rows of 128 bytes, which eights of begin on 1024.
    width = module.scatter_positions // layout["strips"]
    assert 1 << layout["strip_log2"] == width
    assert layout["pitch"] == (width if channels_last else width + 8)
    assert layout["box_channels"] <= layout["chunk_channels"] <= 256
    if layout["box_channels"] < layout["chunk_channels"]:
        assert layout["strips"] == layout["num_chunks"] == 1
        assert layout["box_channels"] == problem["c_in"]
    box = layout["strips"] * layout["chunk_channels"] * layout["pitch"] * element
    assert box <= layout["stage_bytes"]
    assert layout["stage_bytes"] % (1024 if channels_last else 128) == 0
    if channels_last:
        assert layout["box_channels"] * element == 128
    assert layout["chunk_steps"] % 4 == 0
    assert layout["num_chunks"] * layout["chunk_channels"] >= problem["c_in"]
    assert layout["steps"] == layout["num_chunks"] * layout["chunk_steps"]
    assert layout["weight_batch"] <= module.scatter_most_weights
    taps = problem["h"]["kernel"] * problem["w"]["kernel"] * problem["c_out"]
    assert layout["weight_units"] == taps * -(-problem["c_in"] // layout["weight_batch"])
    # What lies in shared memory, one behind the other.
    assert layout["stages"] * layout["stage_bytes"] <= layout["weights_begin"]
    parts = 2 if problem["precision"] == TF32X3 else 1
    assert layout["weights_begin"] + 32 * parts * layout["steps"] * slots * columns <= layout["staged_begin"]
    assert layout["slot_columns"] * module.scatter_plane * 4 <= layout["staged_bytes"]
    assert layout["staged_begin"] + 2 * layout["staged_bytes"] <= layout["unit_begin"]
    assert layout["unit_begin"] + 16 * layout["num_units"] <= layout["plane_begin"]
    assert layout["plane_begin"] + 16 * layout["num_planes"] <= layout["barriers_begin"]
    assert layout["barriers_begin"] + 16 * (layout["stages"] + 2) <= layout["shared_bytes"] <= shared
    assert layout["stages"] >= 2
    for begin in ("weights_begin", "staged_begin", "unit_begin", "plane_begin", "barriers_begin"):
        assert layout[begin] % 16 == 0


def run(module, problem, layout, channels_last, x, weight, bias):
    """The results, and how often each was written."""
    h, w, c_out = problem["h"], problem["w"], problem["c_out"]
    batch, c_in = problem["batch"], problem["c_in"]
    width = module.scatter_positions // layout["strips"]
    sh, sw = h["stride"], w["stride"]
    y = np.full((batch, c_out, h["out"], w["out"]), np.nan)
    writes = np.zeros(y.shape, int)
    # A slot's columns: [phase along H][channel][tap along W].
    phases = min(h["kernel"], sh)
    slot_weights = np.zeros((layout["slots"], c_in, phases, c_out, w["kernel"]))
    for kh in range(h["kernel"]):
        slot_weights[kh // sh, :, kh % sh] = weight[:, :, kh]
    for number in range(layout["num_tiles"]):
        rest, column_tile = divmod(number, layout["column_tiles"])
        first_image, row_tile = divmod(rest, layout["row_tiles"])
        row_begin = layout["first_row"] + row_tile * layout["tile_rows"]
        row_end = min(row_begin + layout["tile_rows"], layout["end_row"])
        source_column = layout["begin_w"] + column_tile * layout["advance_w"]
        assert channels_last or source_column % 2 == 0  # two columns are read at a time
        last = column_tile == layout["column_tiles"] - 1
        column_begin = layout["first_column"] if column_tile == 0 else source_column + layout["reach_w"]
        column_end = layout["end_column"] if last else source_column + layout["advance_w"] + layout["reach_w"]
        begin, end = max(column_begin * sw, w["padding"]), min(column_end * sw, w["padding"] + w["out"])
        assert layout["strips"] * (end - begin) * (c_out if channels_last else 1) <= layout["num_units"]
        for strip in range(layout["strips"]):
            image = first_image * layout["strips"] + strip
            if image >= batch:
                continue
            sums = np.zeros((layout["slots"], width, phases, c_out, w["kernel"]))
            for row in range(row_begin - layout["slots"] + 1, row_end):
                if 0 <= row < h["in"]:
                    source = np.zeros((c_in, width))
                    have = x[image, :, row, source_column : source_column + width]
                    source[:, : have.shape[1]] = have
                    sums += np.einsum("cp,sczok->spzok", source, slot_weights)
                if row >= row_begin:
                    for phase in range(sh):
                        out_row = row * sh + phase - h["padding"]
                        if not 0 <= out_row < h["out"]:
                            continue
                        for column in range(begin, end):
                            total = np.zeros(c_out)
                            for kw in range(w["kernel"]):
                                at, between = divmod(column - kw * w["dilation"], sw)
                                if phase < phases and between == 0 and 0 <= at < w["in"]:
                                    total += sums[0, at - source_column, phase, :, kw]
                            y[image, :, out_row, column - w["padding"]] = total + (0 if bias is None else bias)
                            writes[image, :, out_row, column - w["padding"]] += 1
                sums = np.concatenate([sums[1:], np.zeros_like(sums[:1])])
                for slot in range(1, layout["slots"]):  # what a slot does not have stays zero
                    assert not sums[slot - 1, :, max(0, h["kernel"] - slot * sh) :].any() or slot * sh < h["kernel"]
    return y, writes


@st.composite
def few_channels_out(draw):
    """A problem that one of the instances serves, of small images."""
    dtype, precision = draw(st.sampled_from(CLASSES))
    vector = 4 if dtype == FLOAT32 else 8
    stride_h, stride_w = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    kernel_h = draw(st.integers(1, 3 * stride_h))
    kernel_w = draw(st.integers(1, 9))
    dilation_w = draw(st.sampled_from([1, 1, 2, 3, stride_w]))
    channels_last = draw(st.booleans())
    h_in, w_in = draw(st.integers(1, 6)), draw(st.integers(1, 100))
    c_in = draw(st.integers(1, 20))
    if channels_last:
        c_in = -(-c_in // vector) * vector
    else:
        w_in = -(-w_in // vector) * vector

    def axis(size, kernel, stride, dilation):
        output_padding = draw(st.integers(0, max(stride, dilation) - 1))
        out = make_axis(size, kernel, stride, 0, output_padding, dilation)["out"]
        return make_axis(size, kernel, stride, min(draw(st.integers(0, 9)), (out - 1) // 2), output_padding, dilation)

    return make_problem(
        draw(st.integers(1, 5)), c_in, draw(st.integers(1, 4)),
        axis(h_in, kernel_h, stride_h, 1), axis(w_in, kernel_w, stride_w, dilation_w),
        dtype=dtype, precision=precision, has_bias=draw(st.booleans()), channels_last=channels_last,
    )  # fmt: skip


@few_problems
@given(problem=few_channels_out(), data=st.data())
def test_any_tile_is_exact(plan_module, problem, data):
    """Tiles that divide nothing too, not only those that the planner would choose."""
    channels_last = problem["x_stride"][1] == 1
    kind = (problem["dtype"], problem["precision"])
    instances = [i for i, row in enumerate(INSTANCES) if row[0] == kind and row[3] == channels_last]
    plan = {
        "instance": data.draw(st.sampled_from(instances)),
        "strips": data.draw(st.sampled_from([1, 2, 4])),
        "tile_h": data.draw(st.integers(1, 6)),
        "chunk_steps": 4 if channels_last else data.draw(st.sampled_from([4, 8])),
        "stages": 2,
    }
    layout = plan_module.scatter_layout(problem, plan)
    assume(layout is not None)
    assert_scatter_is_legal(plan_module, problem, layout, plan["instance"], 2**21)
    assert_exact(problem, partial(run, plan_module, problem, layout, channels_last))


# Kernel, stride and padding along W: the first tile's results begin within a position, or after more than it reaches.
WIDE = [(4, 2, 5), (4, 2, 1), (9, 3, 13), (5, 1, 2), (3, 5, 7)]


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("w", WIDE, ids=str)
def test_rows_of_several_tiles_are_exact(plan_module, w, channels_last):
    """Those between the first and the last may have the most results, for which there must be units."""
    kernel, stride, padding = w
    row = (1, 4, 1, (2, 400), (1, kernel), (1, stride), (0, padding))
    problem = from_row(*row, precision=TF32, channels_last=channels_last)
    instance = INSTANCES.index(((FLOAT32, TF32), 2, 24, channels_last))
    plan = {"instance": instance, "strips": 1, "tile_h": 2, "chunk_steps": 4, "stages": 2}
    layout = plan_module.scatter_layout(problem, plan)
    assert layout["column_tiles"] > 2
    assert_scatter_is_legal(plan_module, problem, layout, instance, 2**21)
    assert_exact(problem, partial(run, plan_module, problem, layout, channels_last))


@few_problems
@given(problem=few_channels_out())
def test_candidates_are_legal(plan_module, problem):
    for plan in engine_plans(plan_module, problem):
        layout = plan_module.scatter_layout(problem, plan)
        assert_scatter_is_legal(plan_module, problem, layout, plan["instance"])
        assert plan["shared_bytes"] == layout["shared_bytes"]
        assert 1 <= plan["num_blocks"] <= min(layout["num_tiles"], 2 * H200[1])
        assert plan["workspace_bytes"] == plan["packed_bytes"] == 0


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(("dtype", "precision"), CLASSES)
@pytest.mark.parametrize("name", ["dcgan_rgb", "fsrcnn"])
def test_layers_of_few_channels_get_them(plan_module, name, dtype, precision, channels_last):
    problem = from_row(*LAYERS[name], dtype=dtype, precision=precision, channels_last=channels_last)
    assert engine_plans(plan_module, problem)
    assert plan_module.choose(problem, H200)["engine"] == "scatter_sm90a"


def layer(**changes):
    options = {"n": 2, "c_in": 16, "c_out": 3, "size": 32, "kernel": 4, "stride": 2, "padding": 1, "precision": TF32}
    return from_row(**(options | changes))


CHANGES = {
    "channels": layer(c_out=8),
    "groups": layer(c_out=4, groups=2),
    "rows of taps apart": layer(dilation=(2, 1)),
    "many taps": layer(kernel=16, stride=8),
    "pixels between vectors": layer(c_in=18, channels_last=True),
    "rows between vectors": layer(size=30),
}


@pytest.mark.parametrize("change", CHANGES)
def test_other_layers_get_none(plan_module, change):
    assert engine_plans(plan_module, layer())
    assert not engine_plans(plan_module, CHANGES[change])


def test_what_it_does_not_serve(plan_module):
    assert not engine_plans(plan_module, layer(), [80, *H200[1:]])
    for direction in (GRAD_INPUT, GRAD_WEIGHT):
        assert not engine_plans(plan_module, layer() | {"direction": direction})
    assert not engine_plans(plan_module, layer() | {"direction": FORWARD, "precision": IEEE})

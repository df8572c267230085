"""The upsample engine's plans: legal, exact when executed as kernels/upsample_sm90a does, offered where it serves."""

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
from plan.tensor_cores import CLASS_OF_DTYPE, plans_of
from plan.test_plan_choice import LAYERS

engine_plans = functools.partial(plans_of, "upsample_sm90a")


def assert_upsample_is_legal(module, problem, layout, shared=H200[2]):
    element = element_bytes(problem)
    vector = 16 // element
    # A copy's box: whole vectors, on 128 bytes, with a product's columns wherever in a vector they begin.
    assert layout["pitch"] % vector == 0
    assert layout["pitch"] >= module.upsample_positions + 2 + vector - 1
    assert layout["slot_bytes"] == module.upsample_channels * layout["pitch"] * element
    assert layout["slot_bytes"] % 128 == 0
    assert problem["c_in"] <= module.upsample_channels
    assert layout["channel_blocks"] * module.upsample_channels >= problem["c_out"]
    assert layout["slots"] >= 4  # a position row reads two
    steps = 6 if element == 4 else 3
    assert layout["slots"] * layout["slot_bytes"] <= layout["weights_begin"]
    assert layout["weights_begin"] + 4 * steps * module.upsample_step_bytes + 16 <= layout["bias_begin"]
    assert layout["bias_begin"] + 4 * module.upsample_channels <= layout["barriers_begin"]
    assert layout["barriers_begin"] + 16 * layout["slots"] <= layout["shared_bytes"] <= shared
    for begin in ("weights_begin", "bias_begin", "barriers_begin"):
        assert layout[begin] % 16 == 0
    assert layout["num_operands"] == layout["stride_h"] * layout["octets"] * layout["channel_blocks"]
    assert 1 <= layout["shares"] <= layout["num_tiles"]


def quads_of(problem, octet):
    """Of both quads of an octet: the first tap along W, and the source column of it from a position."""
    w = problem["w"]
    for quad in range(2):
        source, tap = divmod(8 * octet + 4 * quad + w["padding"], w["stride"])
        assert tap + 4 <= w["stride"]  # all four phases read the same source columns
        yield quad, tap, source


def run(module, problem, layout, x, weight, bias):
    """The results, and how often each was written."""
    h, w, c_out = problem["h"], problem["w"], problem["c_out"]
    batch, c_in = problem["batch"], problem["c_in"]
    sh, sw, positions, block = h["stride"], w["stride"], module.upsample_positions, module.upsample_channels
    y = np.full((batch, c_out, h["out"], w["out"]), np.nan)
    writes = np.zeros(y.shape, int)

    def source_columns(image, row, begin):
        """Zeros outside of the source."""
        columns = np.zeros((c_in, positions))
        first, last = max(begin, 0), min(begin + positions, w["in"])
        if 0 <= row < h["in"] and first < last:
            columns[:, first - begin : last - begin] = x[image, :, row, first:last]
        return columns

    for number in range(layout["num_operands"] * layout["shares"]):
        share, operand = divmod(number, layout["num_operands"])
        rest, phase_h = divmod(operand, layout["stride_h"])
        channel_block, octet = divmod(rest, layout["octets"])
        channels = slice(channel_block * block, min((channel_block + 1) * block, c_out))
        source_h, tap_h = divmod(phase_h + h["padding"], sh)
        for tile in range(share, layout["num_tiles"], layout["shares"]):
            rest, column_tile = divmod(tile, layout["column_tiles"])
            image, row_tile = divmod(rest, layout["row_tiles"])
            column = column_tile * positions
            first = row_tile * layout["tile_rows"]
            for row in range(first, min(first + layout["tile_rows"], layout["rows"])):
                out_row = row * sh + phase_h
                if out_row >= h["out"]:
                    continue
                for quad, tap_w, source_w in quads_of(problem, octet):
                    sums = np.zeros((c_out, positions, 4))
                    for th in range(2):
                        if tap_h + th * sh >= h["kernel"]:
                            continue
                        for tw in range(2):
                            source = source_columns(image, row + source_h - th, column + source_w - tw)
                            taps = weight[:, :, tap_h + th * sh, tap_w + tw * sw : tap_w + tw * sw + 4]
                            sums += np.einsum("ip,ioe->ope", source, taps)
                    for position in range(positions):
                        begin = (column + position) * sw + 8 * octet + 4 * quad
                        if begin >= w["out"]:
                            continue
                        assert begin + 4 <= w["out"]
                        added = 0 if bias is None else bias[channels, None]
                        y[image, channels, out_row, begin : begin + 4] = sums[channels, position] + added
                        writes[image, channels, out_row, begin : begin + 4] += 1
    return y, writes


@st.composite
def upsampled(draw):
    """A problem that the engine serves, of small images."""
    dtype = draw(st.sampled_from(sorted(CLASS_OF_DTYPE)))
    stride_h, stride_w = draw(st.integers(1, 6)), draw(st.sampled_from([8, 8, 16]))
    kernel_h = draw(st.integers(1, 2 * stride_h))
    h_in, w_in = draw(st.integers(1, 5)), draw(st.integers(1, 80))
    out_h = make_axis(h_in, kernel_h, stride_h, 0, 0, 1)["out"]
    padding_h = min(draw(st.integers(0, 7)), (out_h - 1) // 2)
    padding_w = 4 * min(draw(st.integers(0, 5)), w_in)
    return make_problem(
        draw(st.integers(1, 3)), draw(st.integers(1, 24)), draw(st.integers(1, 30)),
        make_axis(h_in, kernel_h, stride_h, padding_h, draw(st.integers(0, stride_h - 1)), 1),
        make_axis(w_in, 2 * stride_w, stride_w, padding_w, draw(st.sampled_from([0, 0, stride_w - 8])), 1),
        dtype=dtype, precision=CLASS_OF_DTYPE[dtype], has_bias=draw(st.booleans()),
    )  # fmt: skip


@few_problems
@given(problem=upsampled(), data=st.data())
def test_any_tile_is_exact(plan_module, problem, data):
    """Tiles that divide nothing too, not only those that the planner would choose."""
    plan = {
        "instance": [FLOAT32, BFLOAT16, FLOAT16].index(problem["dtype"]),
        "tile_h": data.draw(st.integers(1, 6)),
        "shares": data.draw(st.integers(1, 5)),
        "slots": data.draw(st.integers(4, 7)),
    }
    layout = plan_module.upsample_layout(problem, plan)
    assume(layout is not None)
    assert_upsample_is_legal(plan_module, problem, layout)
    assert_exact(problem, partial(run, plan_module, problem, layout))


@few_problems
@given(problem=upsampled())
def test_candidates_are_legal(plan_module, problem):
    plans = engine_plans(plan_module, problem)
    assert plans
    for plan in plans:
        layout = plan_module.upsample_layout(problem, plan)
        assert_upsample_is_legal(plan_module, problem, layout)
        assert plan["shared_bytes"] == layout["shared_bytes"]
        assert plan["num_blocks"] == layout["num_operands"] * layout["shares"]
        assert plan["workspace_bytes"] == plan["packed_bytes"] == 0


@pytest.mark.parametrize("dtype", CLASS_OF_DTYPE)
def test_fcn8s_gets_it(plan_module, dtype):
    problem = from_row(*LAYERS["fcn8s"], dtype=dtype, precision=CLASS_OF_DTYPE[dtype])
    assert plan_module.choose(problem, H200)["engine"] == "upsample_sm90a"


def layer(**changes):
    options = {"n": 2, "c_in": 21, "c_out": 21, "size": 32, "kernel": 16, "stride": 8, "padding": 4, "precision": TF32}
    return from_row(**(options | changes))


def test_any_source_gets_it(plan_module):
    """By boxes where rows begin on 16 bytes, by elements everywhere."""
    assert len(engine_plans(plan_module, layer())) == 4
    assert len(engine_plans(plan_module, layer(size=30))) == 2


CHANGES = {
    "channels": layer(c_in=25),
    "groups": layer(c_in=20, c_out=20, groups=2),
    "narrow stride": layer(kernel=8, stride=4),
    "narrow kernel": layer(kernel=15),
    "wide kernel": layer(kernel=17),
    "phases of a quad that read different columns": layer(padding=2),  # whose rows begin on vectors nevertheless
    "taps apart": layer(dilation=(2, 1)),
    "rows of the result between vectors": layer(output_padding=1),
    "channels_last": layer(channels_last=True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_other_layers_get_none(plan_module, change):
    assert engine_plans(plan_module, layer())
    assert not engine_plans(plan_module, CHANGES[change])


def test_what_it_does_not_serve(plan_module):
    assert not engine_plans(plan_module, layer(), [80, *H200[1:]])
    for direction in (GRAD_INPUT, GRAD_WEIGHT):
        assert not engine_plans(plan_module, layer() | {"direction": direction})
    for other in (IEEE, TF32X3):
        assert not engine_plans(plan_module, layer() | {"precision": other})

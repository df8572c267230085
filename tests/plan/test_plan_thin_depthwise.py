"""The thin engine's plans of depthwise layers: who computes which result, from which rows and columns."""

from __future__ import annotations

from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from plan.exact import assert_exact, exact_data, exact_grad_output, expected_gradient
from plan.problems import (
    ATEN,
    BFLOAT16,
    DEVICES,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    FORWARD,
    GRAD_INPUT,
    GRAD_WEIGHT,
    H200,
    from_row,
    make_axis,
    make_problem,
    problems,
)
from plan.profile import few_problems
from plan.test_plan_choice import LAYERS

DTYPES = [FLOAT32, FLOAT16, BFLOAT16]
each_direction = pytest.mark.parametrize("direction", [FORWARD, GRAD_INPUT, GRAD_WEIGHT])


def depthwise_plans(module, problem, device=H200):
    """The candidates in which warps walk down strips of a channel."""
    plans = module.candidates(problem, device)
    return [plan for plan in plans if plan["engine"] == "depthwise" and "rows" in plan and "vector" not in plan]


def channels_last_plans(module, problem, device=H200):
    """The candidates in which lanes are channels."""
    plans = module.candidates(problem, device)
    return [plan for plan in plans if plan["engine"] == "depthwise" and "vector" in plan]


def assert_warps_cover(problem, layout):
    """Strips and chunks of rows cover every result, or pixel, once."""
    forward, h, w = problem["direction"] == FORWARD, problem["h"], problem["w"]
    columns = 32 * (4 if forward and problem["dtype"] == FLOAT32 else 8)
    width = w["out"] if forward else w["in"]
    strip = columns if forward else columns // layout["stride"]
    assert layout["num_warps"] == problem["batch"] * problem["c_in"] * layout["chunks"] * layout["strips"]
    assert (layout["chunks"] - 1) * layout["rows"] < layout["num_rows"] <= layout["chunks"] * layout["rows"]
    assert (layout["strips"] - 1) * strip < width <= layout["strips"] * strip
    assert layout["num_blocks"] == -(-layout["num_warps"] // 4)
    if not forward:
        assert (layout["first_row"], layout["num_rows"]) == (0, h["in"])
        return
    rows = [
        q * h["stride"] + phase - h["padding"]
        for q in range(layout["first_row"], layout["first_row"] + layout["num_rows"])
        for phase in range(h["stride"])
    ]
    assert set(range(h["out"])) <= set(rows) <= set(range(1 - h["stride"], h["out"] + h["stride"] - 1))


@each_direction
@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT16])
def test_the_layer_that_they_were_made_for(plan_module, direction, dtype):
    """On every GPU the same."""
    problem = {**from_row(*LAYERS["dw_up"], dtype=dtype), "direction": direction}
    rows = set()
    for device in DEVICES.values():
        (plan,) = depthwise_plans(plan_module, problem, device)
        layout = plan_module.thin_depthwise_layout(problem, plan)
        assert layout["num_blocks"] == plan["num_blocks"]
        assert_warps_cover(problem, layout)
        slabs = problem["batch"] * layout["chunks"] * layout["strips"]
        assert plan["workspace_bytes"] == (slabs * 64 * 16 * 4 if direction == GRAD_WEIGHT else 0)
        rows.add(plan["rows"])
    assert len(rows) == 1  # they decide the order of the weight's sums


@st.composite
def depthwise_problems(draw, shapes=((4, 2), (3, 2), (2, 2), (3, 1)), channels_last=False, most_padding_w=9, most_w=40):
    """Layers of these kernels and strides."""
    kernel, stride = draw(st.sampled_from(shapes))
    channels = draw(st.one_of(st.integers(1, 9), st.integers(1, 40).map(lambda count: 4 * count)))

    def axis(most_padding, most_size):
        size, output_padding = draw(st.integers(1, most_size)), draw(st.integers(0, stride - 1))
        padding, room = draw(st.integers(0, most_padding)), make_axis(size, kernel, stride, 0, output_padding)["out"]
        return make_axis(size, kernel, stride, min(padding, (room - 1) // 2), output_padding)

    h, w = axis(9, 9), axis(most_padding_w, most_w)
    return make_problem(
        draw(st.integers(1, 2)), channels, channels, h, w, channels, draw(st.sampled_from(DTYPES)),
        has_bias=draw(st.booleans()), channels_last=channels_last,
    )  # fmt: skip


@few_problems
@given(problem=depthwise_problems(((4, 2), (3, 2), (2, 2)), most_padding_w=2, most_w=300), data=st.data())
def test_warps_cover_what_they_serve(plan_module, problem, data):
    problem = {**problem, "direction": data.draw(st.integers(0, 2))}
    plans = depthwise_plans(plan_module, problem)
    assume(plans)
    (plan,) = plans
    assert_warps_cover(problem, plan_module.thin_depthwise_layout(problem, plan))
    changed = {**plan, "rows": data.draw(st.integers(1, 12))}
    assert_warps_cover(problem, plan_module.thin_depthwise_layout(problem, changed))


@few_problems
@given(problem=problems(dtypes=True), direction=st.integers(0, 2), rows=st.integers(1, 9), instance=st.integers(0, 26))
def test_they_serve_nothing_else(plan_module, problem, direction, rows, instance):
    problem = {**problem, "direction": direction}
    layout = plan_module.thin_depthwise_layout(problem, {"instance": instance, "rows": rows})
    if layout is None:
        return
    h, w = problem["h"], problem["w"]
    assert problem["groups"] == problem["c_in"] == problem["c_out"]
    assert h["kernel"] == w["kernel"] == layout["kernel"]
    assert h["stride"] == w["stride"] == layout["stride"]
    assert h["dilation"] == w["dilation"] == 1
    assert w["padding"] < layout["kernel"]
    assert direction == FORWARD or w["padding"] <= layout["kernel"] - layout["stride"]
    assert_warps_cover(problem, layout)


@pytest.mark.parametrize("kernel", [2, 3, 4])
@each_direction
def test_the_most_padding(plan_module, direction, kernel):
    """Forward a result's first column still has a tap; of a gradient a window reaches into one lane's columns alone."""
    most = kernel - (1 if direction == FORWARD else 2)

    def plans(padding):
        problem = from_row(2, 8, 8, 64, kernel, 2, (0, padding), groups=8)
        return depthwise_plans(plan_module, {**problem, "direction": direction})

    assert plans(most)
    assert not plans(most + 1)


def positions_of_blocks(layout, batch):
    """(image, channels, rows, columns) of every CTA, as kernels/depthwise/channels_last.cuh decodes its index."""
    first_row, num_rows = layout["positions_h"]
    first_column, num_columns = layout["positions_w"]
    for block in range(layout["num_blocks"]):
        index, column_block = divmod(block, layout["column_blocks"])
        index, channel_block = divmod(index, layout["channel_blocks"])
        image, chunk = divmod(index, layout["chunks"])
        assert image < batch
        width = layout["columns"] * layout["positions"]
        columns = range(first_column, first_column + num_columns)[column_block * width : (column_block + 1) * width]
        rows = range(first_row, first_row + num_rows)[chunk * layout["rows"] : (chunk + 1) * layout["rows"]]
        block_channels = layout["lanes"] * layout["vector"]
        channels = range(layout["channels"])[channel_block * block_channels : (channel_block + 1) * block_channels]
        assert columns
        assert rows
        assert channels
        yield image, slice(channels[0], channels[-1] + 1), rows, columns


def phases_of(axis, q):
    """(output, [(input, tap)]) of all phases of position q, counted from the padded output's edge; taps ascending."""
    kernel, stride = axis["kernel"], axis["stride"]
    for phase in range(stride):
        output = q * stride + phase - axis["padding"]
        taps = [(q - t, phase + stride * t) for t in range(-(-kernel // stride)) if phase + stride * t < kernel]
        if 0 <= output < axis["out"]:
            yield output, [(i, k) for i, k in taps if 0 <= i < axis["in"]]


def taps_of(axis, q):
    """The same for the gradient of the input, whose positions are its elements."""
    places = [(q * axis["stride"] - axis["padding"] + k, k) for k in range(axis["kernel"])]
    yield q, [(o, k) for o, k in places if 0 <= o < axis["out"]]


def run_channels_last(problem, layout, source, weight, bias=None):
    """A plan executed, and how often each result is written."""
    forward, h, w = problem["direction"] == FORWARD, problem["h"], problem["w"]
    end = "out" if forward else "in"
    result = np.zeros((problem["batch"], problem["c_in"], h[end], w[end]))
    writes = np.zeros_like(result, int)
    terms = phases_of if forward else taps_of
    for image, channels, rows, columns in positions_of_blocks(layout, problem["batch"]):
        for q_h, q_w in product(rows, columns):
            for (row, taps_h), (column, taps_w) in product(terms(h, q_h), terms(w, q_w)):
                total = 0 if bias is None else bias[channels]
                for (i, k_h), (j, k_w) in product(taps_h, taps_w):
                    total = total + source[image, channels, i, j] * weight[channels, 0, k_h, k_w]
                result[image, channels, row, column] = total
                writes[image, channels, row, column] += 1
    return result, writes


@few_problems
@given(problem=depthwise_problems(channels_last=True), direction=st.integers(0, 1), data=st.data())
def test_channels_last_is_exact(plan_module, problem, direction, data):
    """Chunks of any number of rows, channels as vectors and alone."""
    problem = {**problem, "direction": direction}
    plans = channels_last_plans(plan_module, problem, DEVICES[data.draw(st.sampled_from(sorted(DEVICES)))])
    assert len(plans) == (problem["w"]["in" if direction else "out"] > 0 and problem["c_in"] > 1)
    assume(plans)
    (plan,) = plans
    layout = plan_module.thin_channels_last_layout(problem, plan)
    for key in ("num_blocks", "shared_bytes"):
        assert plan[key] == layout[key]
    assert plan["shared_bytes"] <= 40 * 1024
    assert plan["threads"] == 256
    changed = {**plan, "rows": data.draw(st.integers(1, 12)), "vector": data.draw(st.sampled_from([1, plan["vector"]]))}
    layout = plan_module.thin_channels_last_layout(problem, changed)
    assert layout["lanes"] * layout["columns"] <= 256
    assert_exact(problem, partial(run_channels_last, problem, layout))


@few_problems
@given(problem=depthwise_problems(channels_last=True), data=st.data())
def test_channels_last_grad_weight_is_exact(plan_module, problem, data):
    """The same rows of a CTA on every GPU, any others, and channels that are no vectors after all, in the workspace."""
    problem = {**problem, "direction": GRAD_WEIGHT, "has_bias": False}
    plans = [channels_last_plans(plan_module, problem, device) for device in DEVICES.values()]
    assume(plans[0])
    assert len({(plan["instance"], plan["rows"], plan["vector"]) for (plan,) in plans}) == 1
    ((plan, *_), *_) = plans
    x, weight, _ = exact_data(problem, 0)
    grad_output = exact_grad_output(problem, 1)
    expected = expected_gradient(problem, grad_output, x, weight, of_input=False).numpy()
    vector = data.draw(st.sampled_from([1, plan["vector"]]))
    for rows in (plan["rows"], data.draw(st.integers(1, 12))):
        layout = plan_module.thin_channels_last_layout(problem, {**plan, "rows": rows, "vector": vector})
        slabs = problem["batch"] * layout["chunks"] * layout["column_blocks"]
        assert rows != plan["rows"] or slabs * weight.numel() * 4 <= plan["workspace_bytes"]
        assert layout["shared_bytes"] <= 40 * 1024
        result = np.zeros(expected.shape)
        for image, channels, pixel_rows, pixel_columns in positions_of_blocks(layout, problem["batch"]):
            for ih, iw in product(pixel_rows, pixel_columns):
                (_, taps_h), (_, taps_w) = *taps_of(problem["h"], ih), *taps_of(problem["w"], iw)
                for (oh, k_h), (ow, k_w) in product(taps_h, taps_w):
                    products = x[image, channels, ih, iw] * grad_output[image, channels, oh, ow]
                    result[channels, 0, k_h, k_w] += products.numpy()
        np.testing.assert_array_equal(result, expected)


@few_problems
@given(problem=problems(dtypes=True), direction=st.integers(0, 2))
def test_channels_last_serves_nothing_else(plan_module, problem, direction):
    problem = {**problem, "direction": direction}
    for plan in channels_last_plans(plan_module, problem):
        h, w = problem["h"], problem["w"]
        tensors = {FORWARD: ["y_stride"], GRAD_INPUT: ["x_stride"], GRAD_WEIGHT: ["x_stride", "y_stride"]}[direction]
        assert problem["groups"] == problem["c_in"] == problem["c_out"]
        assert (h["kernel"], h["stride"], h["dilation"]) == (w["kernel"], w["stride"], w["dilation"])
        assert (h["kernel"], h["stride"], h["dilation"]) in [(4, 2, 1), (3, 2, 1), (2, 2, 1), (3, 1, 1)]
        assert all(problem[tensor][1] == 1 != problem[tensor][3] for tensor in tensors)
        assert problem["c_in"] % plan["vector"] == 0


@pytest.mark.parametrize("other", ["x_stride", "y_stride"])
def test_the_weights_gradient_wants_both_in_channels_last(plan_module, other):
    problem = {**from_row(*LAYERS["dw_up"], channels_last=True), "direction": GRAD_WEIGHT}
    assert channels_last_plans(plan_module, problem)
    assert not channels_last_plans(plan_module, {**problem, other: from_row(*LAYERS["dw_up"])[other]})


@each_direction
@pytest.mark.parametrize("channels_last", [False, True])
def test_neither_float64_nor_aten(plan_module, direction, channels_last):
    problem = {**from_row(*LAYERS["dw_up"], dtype=FLOAT64, channels_last=channels_last), "direction": direction}
    assert not depthwise_plans(plan_module, problem)
    assert not channels_last_plans(plan_module, problem)
    if direction == FORWARD:
        problem = from_row(*LAYERS["dw_up"], precision=ATEN, channels_last=channels_last)
        assert not depthwise_plans(plan_module, problem)
        assert not channels_last_plans(plan_module, problem)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels_last", [False, True])
@each_direction
def test_they_are_chosen(plan_module, direction, channels_last, dtype):
    """Measured to be the fastest."""
    problem = {**from_row(*LAYERS["dw_up"], dtype=dtype, channels_last=channels_last), "direction": direction}
    wanted = (channels_last_plans if channels_last else depthwise_plans)(plan_module, problem)
    chosen = plan_module.candidates(problem, H200)[0]
    assert chosen["kernel"] == wanted[0]["kernel"]

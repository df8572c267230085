"""The NHWC engine's plans, launchers and kernels on the host, against sums in float64.

Copies, stores and products are asynchronous on the GPU. Here they happen as late as the kernel allows or, where a run
asks for it, at once: what depends on either comes out wrong in one of both.
"""

from __future__ import annotations

import dataclasses

import pytest
import torch
from cases import Case
from emulator.calls import CLASSES, FEW_CLASSES, H200, Call, in_format

pytestmark = pytest.mark.slow(seconds=1)

ONE_SM = (90, 1, *H200[2:])  # one CTA runs all tiles; on many SMs each CTA runs one
DIRECTIONS = ("forward", "grad_input")
# Ways to load the source if a tensor map can describe it (the address may be unaligned), and if none can.
WITH_MAP, WITHOUT_MAP = {"direct", "gathered"}, {"gathered", "packed"}
SEVERAL_TILES = Case("several_tiles", "", n=2, c_in=96, c_out=72, h=5, w=9, k=(3, 2), s=(2, 2), p=(1, 0))


def call_of(case: Case, direction: str, kind: str, **others) -> Call:
    """In channels_last."""
    call = Call.of(dataclasses.replace(case, layout="channels_last"), direction, kind, True, **others)
    return dataclasses.replace(call, engine="nhwc_sm90a")


def few_plans(emulated, call: Call, gpu=ONE_SM) -> dict[tuple, int]:
    """Returns a plan of few tiles and without clusters for each kernel and each way to load and store.

    On several SMs only plans that split tiles.
    """
    found: dict[tuple, tuple[int, int]] = {}
    known = emulated.plans(call.problem(), gpu, call.engine)
    for number in call.plans(emulated, gpu):
        kernel, tile, *_ = known[number]
        source = "gathered" if tile["gathers"] else "packed" if tile["packs_source"] else "direct"
        key = (kernel, source, tile["direct"], tile["staged"])
        if tile["splits"] == 1 and (tile["parts"] > 1) == (gpu is not ONE_SM):
            found[key] = min(found.get(key, (2**31, 0)), (tile["num_tiles"], number))
    return {key: number for key, (_, number) in found.items()}


def run(emulated, call: Call, number: int, turn: int, gpu=ONE_SM, **others) -> torch.Tensor:
    emulated.set_eager(turn % 2 == 1, turn % 4 > 1)
    return call.run(emulated, number, gpu, **others).double()


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("weight", [torch.contiguous_format, torch.channels_last], ids=["OIHW", "OHWI"])
def test_every_kernel(emulated, direction, kind, weight):
    """Weights are packed or not; results are stored from registers or through shared memory."""
    call = call_of(SEVERAL_TILES, direction, kind)
    call.weight = call.weight.contiguous(memory_format=weight)
    expected, plans = call.expected(), few_plans(emulated, call)
    for turn, (key, number) in enumerate(plans.items()):
        assert torch.equal(run(emulated, call, number, turn), expected), key
    kernels, sources, direct, staged = (set(values) for values in zip(*plans, strict=True))
    assert len(kernels) == {"tf32": 7, "tf32x3": 5}.get(kind, 9)
    assert sources == WITH_MAP
    assert staged == {False, True}
    assert direct == {direction == "grad_input" and kind != "tf32x3" and weight is torch.channels_last}


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", [kind for kind in FEW_CLASSES if kind != "tf32x3"])
@pytest.mark.parametrize("size", [(19, 70), (16, 8)], ids=str)
def test_taps_of_a_box_read_by_descriptors(emulated, direction, kind, size):
    """Blocks of 64 positions are in one row or in eight rows. With few channels taps share barriers."""
    found = set()
    for turn, channels in enumerate((16, 40)):
        case = dataclasses.replace(SEVERAL_TILES, c_in=channels, c_out=channels, h=size[0], w=size[1], k=(3, 5))
        call = call_of(dataclasses.replace(case, s=(1, 1) if direction == "grad_input" else (1, 2)), direction, kind)
        known, expected = emulated.plans(call.problem(), H200, call.engine), call.expected()
        for number in call.plans(emulated, H200):
            kernel, tile, *_ = known[number]
            key = (kernel, tile["tile_w"], tile["slot_taps"] > 1)
            if tile["tile_w"] in (8, 64) and key not in found:
                found.add(key)
                assert torch.equal(run(emulated, call, number, turn, H200), expected), known[number]
    assert {width for _, width, _ in found} == ({8, 64} if size[1] > 64 else {8})
    assert {several for *_, several in found} == {False, True}
    assert any(kernel.endswith("256x32x16") for kernel, *_ in found)


@pytest.mark.parametrize("kind", CLASSES)
def test_a_box_per_tap(emulated, kind):
    """Results have one position along one axis or both; some taps read no position inside of the source."""
    for turn, (size, padding) in enumerate((((1, 1), (0, 1)), ((1, 6), (1, 0)))):
        case = dataclasses.replace(SEVERAL_TILES, n=5, h=size[0], w=size[1], k=(4, 3), s=(1, 2), p=padding)
        call = call_of(case, "grad_input", kind)
        known, expected = emulated.plans(call.problem(), H200, call.engine), call.expected()
        alone = [number for number in call.plans(emulated, H200) if known[number][1]["splits"] == 1]
        found = {known[number][0]: number for number in alone if known[number][1]["apart"]}
        assert found
        for number in list(found.values())[turn::2]:
            assert torch.equal(run(emulated, call, number, turn, H200), expected), known[number]


GROUPS = Case("groups", "", n=3, c_in=48, c_out=120, h=5, w=9, k=(3, 2), s=(2, 2), p=(1, 0), g=3)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize(
    "channels", [(48, 120), (27, 75), (36, 60)], ids=["of whole vectors", "odd", "of vectors of float32"]
)
def test_groups_and_any_channels(emulated, direction, kind, channels):
    """Vectors of 16 bytes are followed by other channels or by nothing."""
    for turn, groups in enumerate((1, 3)):
        call = call_of(dataclasses.replace(GROUPS, g=groups, c_in=channels[0], c_out=channels[1]), direction, kind)
        expected, plans = call.expected(), few_plans(emulated, call)
        is_aligned = all(c // groups % (16 // call.x.element_size()) == 0 for c in channels)
        assert {source for _, source, *_ in plans} >= (WITH_MAP if is_aligned else WITHOUT_MAP)
        for key, number in list(plans.items())[turn::6]:
            assert torch.equal(run(emulated, call, number, turn), expected), key


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("of_source", [False, True], ids=["NCHW source", "NHWC source"])
def test_layouts_may_differ(emulated, direction, kind, of_source):
    """NCHW results of either source, and NHWC results of an NCHW source."""
    case = dataclasses.replace(GROUPS, layout="channels_last" if of_source else "contiguous")
    for turn, (groups, of_result) in enumerate(((1, False), (3, False), (1, not of_source))):
        call = Call.of(dataclasses.replace(case, g=groups), direction, kind, of_result)
        if direction == "grad_input":
            call.y = in_format(call.y, of_source)
            call.x = in_format(call.x, of_result)
        call = dataclasses.replace(call, engine="nhwc_sm90a")
        expected, plans = call.expected(), few_plans(emulated, call)
        assert {source for _, source, *_ in plans} == (WITH_MAP if of_source else WITHOUT_MAP)
        for key, number in list(plans.items())[turn::5]:
            assert torch.equal(run(emulated, call, number, turn), expected), key


@pytest.mark.parametrize("axes", [(1,), (0,), (2, 3), (0, 1, 2, 3)], ids=["channels", "images", "pixels", "everything"])
@pytest.mark.parametrize("kind", FEW_CLASSES)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_last_element_of_an_expanded_source(emulated, direction, kind, axes):
    """Many of the source's elements are the last one in memory, which in half precision may be alone in its word."""
    odd = dataclasses.replace(SEVERAL_TILES, n=3, c_in=95, c_out=71, k=(3, 3), s=(2, 1), p=(0, 0))
    call = Call.of(odd, direction, kind, False)
    source = call.x if direction == "forward" else call.y
    narrow = source
    for axis in axes:
        narrow = narrow.narrow(axis, 0, 1)
    expanded = narrow.clone(memory_format=torch.contiguous_format).expand(source.shape)
    last = sum((size - 1) * stride for size, stride in zip(source.shape, expanded.stride(), strict=True))
    assert last % 2 == 0  # so that it is
    call = dataclasses.replace(call, engine="nhwc_sm90a", **{"x" if direction == "forward" else "y": expanded})
    expected = call.expected().to(call.y.dtype).double()
    plans = few_plans(emulated, call)
    assert "gathered" in {source for _, source, *_ in plans}
    for turn, (key, number) in enumerate(plans.items()):
        assert torch.equal(run(emulated, call, number, turn), expected), key


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_nan_reaches_the_sums_that_have_it(emulated, direction, kind):
    """NaN is in a corner, where taps end outside, and in the last channels of a stage."""
    check_nan(emulated, call_of(SEVERAL_TILES, direction, kind), direction, ((0, 0, 0, 0), (1, 71, 4, 8)))


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_nan_stays_in_its_group(emulated, direction, kind):
    """The next group follows a group's channels in memory; after packing nothing follows."""
    call = call_of(dataclasses.replace(GROUPS, c_in=60, c_out=60), direction, kind)
    check_nan(emulated, call, direction, ((0, 19, 0, 0), (1, 20, 4, 8), (2, 59, 1, 1)))


def check_nan(emulated, call: Call, direction: str, places) -> None:
    reached = call.spread_nan("x" if direction == "forward" else "y", places)
    for key, number in list(few_plans(emulated, call).items())[::3]:
        assert torch.equal(run(emulated, call, number, 1).isnan(), reached), key


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("channels_last", [True, False])
def test_epilogue(emulated, kind, channels_last):
    """Results have interleaved phases, and are stored from registers or through shared memory; groups are in NCHW."""
    call = call_of(SEVERAL_TILES, "forward", kind)
    if not channels_last:  # rows are multiples of 16 bytes
        call = dataclasses.replace(
            Call.of(dataclasses.replace(GROUPS, w=8), "forward", kind, False), engine="nhwc_sm90a"
        )
    steps, expected = call.with_epilogue()
    for key, number in list(few_plans(emulated, call).items())[-4:]:
        assert torch.equal(run(emulated, call, number, 2, steps=steps), expected), key


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", FEW_CLASSES)
@pytest.mark.parametrize("sms", [3, 60])
def test_splits_of_tiles(emulated, kind, direction, sms):
    """All tiles are split, or those after the last full wave. The last CTA to arrive stores the result with the bias.

    Sources are loaded directly, gathered and packed; results are in channels_last and in NCHW.
    """
    gpu = (90, sms, *H200[2:])
    case = Case("parts", "", n=2, c_in=260, c_out=264, h=7, w=22, k=(2, 3), s=(1, 1), p=(0, 1))
    found = set()
    for turn, layout in enumerate(("channels_last", "contiguous")):
        call = Call.of(dataclasses.replace(case, layout=layout), direction, kind, layout == "channels_last")
        call = dataclasses.replace(call, engine="nhwc_sm90a")
        known = emulated.plans(call.problem(), gpu, call.engine)
        expected = call.expected().to(call.y.dtype).double()  # sums are exact, but not all of them are in bfloat16
        plans = few_plans(emulated, call, gpu)
        of_each_source = {source: number for (_, source, *_), number in plans.items()}
        for number in {*list(plans.values())[turn::3], *of_each_source.values()}:
            tile = known[number][1]
            assert torch.equal(run(emulated, call, number, turn, gpu), expected), known[number]
            found.add((tile["num_tiles"] > sms, tile["gathers"], tile["packs_source"]))
    assert {whole for whole, *_ in found} == {sms == 3}
    # If all tiles are split, float32 sources are loaded in several ways.
    assert len(found) > (sms == 3 and kind in ("tf32", "tf32x3"))

"""The planner on the neighbour grid: no neighbour's estimate is much farther from its floor than its base's.

Exceptions are performance cliffs, which `CLIFFS` lists with reasons. An entry that is no longer needed fails, so that
the list shrinks. Explicit precisions on an H200, in tf32 and bfloat16, with a floor above 40 us.
"""

from __future__ import annotations

import dataclasses

import pytest
from harness.neighbour_summary import Beside, beside_bases, is_judged
from harness.neighbours import BASES, CHANGES, grid

from convt_ext import ops
from convt_ext.bench.dry_run import planned_rows
from convt_ext.bench.modes import MODES, by_name
from convt_ext.bench.operands import DIRECTIONS, LAYOUTS

pytestmark = [
    pytest.mark.skipif(ops.plan is None, reason="the binary is not installed"),
    pytest.mark.slow(seconds=8),
]

ALLOWED = 1.5  # a neighbour's estimate over its floor, divided by that of its base

EVERY_BASE = tuple(base.name for base in BASES)


def every_base_but(*names: str) -> tuple[str, ...]:
    return tuple(name for name in EVERY_BASE if name not in names)


@dataclasses.dataclass(frozen=True)
class Cliff:
    """Steps that are known to be larger than `ALLOWED`, in one direction and layout.

    Attributes:
        changes: names of changes, separated by blanks; each is too large a step from one of the bases.
        at_most: upper limit of the steps; the largest step is not much smaller.
        bases: the bases of these neighbours.
    """

    direction: str
    layout: str
    changes: str
    at_most: float
    reason: str
    bases: tuple[str, ...] = EVERY_BASE

    def has(self, one: Beside) -> bool:
        row = one.row
        return (
            (row["direction"], row["layout"]) == (self.direction, self.layout)
            and row["change"] in self.changes.split()
            and row["base"] in self.bases
        )


CLIFFS = [
    Cliff(
        "fwd", "nchw", "w-1 w+1 w-2 p-1 p+1 pw+1 op-1 op+1", 2.7,
        "the strided engine takes images that it doubles, in rows on 16 bytes, and the patch engine taps that do not "
        "overlap and no padding; flat serves what lies beside them",
    ),
    Cliff(
        "fwd", "nchw", "k-1 k+1 k+2 kw+1 s-1 s+1 sw-1 d=2", 3.2,
        "the strided, patch and window engines have few kernel sizes and strides; flat and the NHWC engine serve the "
        "others",
    ),
    Cliff(
        "fwd", "nchw", "g=4 c_out+1", 2.6,
        "tiles have 32 or 64 channels of one group: a channel more takes another tile, a small group fills part of one",
    ),
    Cliff(
        "fwd", "nhwc", "c_in-1 c_out-1 c_out+1", 3.2,
        "no tensor map has channels between multiples of 16 bytes: the NHWC engine gathers or packs them",
    ),
    Cliff("fwd", "nhwc", "d=2", 1.6, "taps that lie farther apart share larger boxes", ("small_deep4",)),
    Cliff("fwd", "nhwc", "g=4", 3.2, "small groups fill parts of the NHWC engine's tiles"),
    Cliff(
        "fwd", "nhwc", "g=2", 2.2,
        "8 or 16 channels of a group are a sector of channels_last or less: rows to read and store are short",
        ("few5", "one_large4"),
    ),
    Cliff(
        "fwd", "nhwc", "k+1 k+2", 1.9,
        "2 x 2 with stride 2 moves memory alone; where taps overlap every result adds more products",
        ("up2",),
    ),
    Cliff(
        "dx", "nchw", "w-1 w+1 w-2 p-1 p+1 pw+1 op-1 op+1 k-1 s-1 sw-1 d=2", 4.5,
        "as forward: strided and patch have few shapes, and flat and mma serve what lies beside them",
        every_base_but("wide8"),
    ),
    Cliff(
        "dx", "nchw", "k+1 k+2 kw+1 s+1", 4.0,
        "larger kernels with a stride, and stride 3, have the NHWC engine alone, which gathers or packs them",
    ),
    Cliff(
        "dx", "nchw", "c_out+1", 2.4,
        "mma and flat serve 32 channels; 33 take half more of what the NHWC engine gathers or packs",
        ("wide8",),
    ),
    Cliff(
        "dx", "nhwc", "c_in-1 c_out-1 c_out+1", 6.0,
        "as forward; flat and mma serve some",
        every_base_but("wide8"),
    ),
    Cliff(
        "dx", "nhwc", "g=2 g=4", 4.8,
        "small groups fill parts of the NHWC engine's tiles, or mma and the portable engine serve; "
        "16 channels have its full rate",
        every_base_but("wide8"),
    ),
    Cliff(
        "dx", "nhwc", "c_out-1 c_out+1 g=4", 5.7,
        "as of the other bases; the portable engine serves some",
        ("wide8",),
    ),
    Cliff("dx", "nhwc", "d=2", 1.6, "taps that lie farther apart share larger boxes", ("few5",)),
    Cliff(
        "dw", "nchw", "w-1 w+1 w-2 p+1 pw+1 op+1 k-1 k+1 k+2 s-1 s+1 sw-1 d=2", 7.0,
        "the patch engine takes kernels that are their stride, in rows on 16 bytes; mma serves the others",
        ("up2",),
    ),
    Cliff(
        "dw", "nchw", "w-1 w+1 w-2 p-1 p+1 pw+1 op-1 op+1 k-1 k+1 k+2 kw+1 s-1 sw-1", 2.8,
        "the correlate engine packs rows that do not begin on 16 bytes; its tiles of two to five taps fit few widths",
        every_base_but("up2"),
    ),
    Cliff(
        "dw", "nchw", "s+1 d=2", 4.7,
        "in half precision the correlate engine has strides of 1 and 2 and no dilation; mma serves the others",
        every_base_but("up2"),
    ),
    Cliff(
        "dw", "nchw", "g=2 g=4 c_out+1", 2.3,
        "tiles have 64 output channels of a group",
        every_base_but("up2", "small_deep4"),
    ),
    Cliff("dw", "nchw", "c_out+1", 1.8, "the 65th or 129th channel takes another tile", ("up2", "small_deep4")),
    Cliff(
        "dw", "nchw", "k+2", 1.8,
        "5 x 5 moves memory for as long as it multiplies; 7 x 7 multiplies twice as long, and mma's rate is low",
        ("few5",),
    ),
    Cliff(
        "dw", "nhwc", "c_in-1 c_out-1 c_out+1", 4.5,
        "channels that do not begin on 16 bytes are packed first, and the 65th or 129th takes another tile",
    ),
    Cliff(
        "dw", "nhwc", "g=2 g=4", 2.6,
        "small groups fill parts of the correlate engine's tiles of 64 output channels, or mma multiplies few pixels",
        ("up2", "up4", "same3", "small_deep4"),
    ),
    Cliff(
        "dw", "nhwc", "k+1 kw+1 g=2 g=4", 2.0,
        "of 16 and 32 output channels a product of the correlate engine has four and two parts, into which these bases "
        "divide without a rest; the 8 of a group are half of a part, or mma serves",
        ("wide8", "few5", "one_large4"),
    ),
    Cliff(
        "dw", "nhwc", "k-1 s+1", 1.7,
        "memory bounds the floor of 2 x 2 taps; tiles of two to five taps are read by fewer here, or more than needed",
        ("up2",),
    ),
    Cliff(
        "dw", "nhwc", "d=2", 2.2,
        "memory bounds the floor of these bases; where taps overlap, products take longer than memory",
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def steps() -> list[Beside]:
    """Returns every neighbour with a floor that is long enough, compared with its base."""
    modes = [by_name(MODES[name]) for name in ("tf32", "bf16")]
    return [one for one in beside_bases(list(planned_rows(grid(), modes, DIRECTIONS, LAYOUTS))) if is_judged(one.row)]


def words(one: Beside) -> str:
    row = one.row
    call = " ".join(row[key] for key in ("layer", "direction", "precision", "layout"))
    return f"{call}: {one.own:.2f} times its floor by {row['kernel']}, its base {one.of_base:.2f}: {one.jump:.2f}"


def test_no_neighbour_is_much_farther_from_its_floor_than_its_base(steps):
    assert len(steps) > 2000
    found = [
        words(one)
        for one in steps
        if one.jump > max((cliff.at_most for cliff in CLIFFS if cliff.has(one)), default=ALLOWED)
    ]
    assert not found, "\n".join(["larger steps than are known:", *found])


def test_the_list_names_changes_of_the_grid():
    assert {change for cliff in CLIFFS for change in cliff.changes.split()} <= set(CHANGES)


def test_known_cliffs_are_still_there(steps):
    """Remove changes that are no longer cliffs from the list, and lower the limits of lower cliffs."""
    found = []
    for cliff in CLIFFS:
        largest = {
            change: max((one.jump for one in steps if cliff.has(one) and one.row["change"] == change), default=0.0)
            for change in cliff.changes.split()
        }
        name = f"{cliff.direction} {cliff.layout} {cliff.changes}"
        gone = [change for change, jump in largest.items() if jump <= ALLOWED]
        if gone:
            found.append(f"{name}: no cliff any more, so take out {' '.join(gone)}")
        highest = max(largest.values())
        if cliff.at_most > 1.5 * highest:
            found.append(f"{name}: the largest step is {highest:.2f}, so lower {cliff.at_most}")
    assert not found, "\n".join(["the list is to shrink:", *found])

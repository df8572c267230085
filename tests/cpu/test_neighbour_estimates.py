"""The planner on the neighbour grid: no neighbour's estimate is much farther from its floor than its base's.

Exceptions are performance cliffs, which `CLIFFS` lists with reasons. An entry that is no longer needed fails, so that
the list shrinks. Explicit precisions on an H200, in tf32 and bfloat16, with a floor above 40 us.
"""

from __future__ import annotations

import dataclasses

import pytest
from cpu_kernels import needs_binary
from harness.neighbour_report import Beside, beside_bases, is_judged
from harness.neighbours import BASES, grid
from harness.planned import planned_rows

from convt_ext.bench.modes import MODES, by_name
from convt_ext.bench.operands import DIRECTIONS, LAYOUTS

pytestmark = [needs_binary, pytest.mark.slow(seconds=8)]

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
        is_of_kind = (row["direction"], row["layout"]) == (self.direction, self.layout)
        return is_of_kind and row["change"] in self.changes.split() and row["base"] in self.bases


CLIFFS = [
    Cliff("fwd", "nchw", "w-1 w+1 w-2 p-1 p+1 pw+1 op-1 op+1", 2.7,
          "strided supports doubled images in rows on 16 bytes, patch no overlap and no padding; flat runs the others"),
    Cliff("fwd", "nchw", "k-1 k+1 k+2 kw+1 s-1 s+1 sw-1 d=2", 3.2,
          "strided, patch and window support few kernel sizes and strides; flat and nhwc run the others"),
    Cliff("fwd", "nchw", "g=4 c_out+1", 2.6,
          "tiles have 32 or 64 channels of one group: one more channel needs another tile, a small group fills a part"),
    Cliff("fwd", "nhwc", "c_in-1 c_out-1 c_out+1", 3.2,
          "tensor maps need channels in multiples of 16 bytes: nhwc gathers or packs the others"),
    Cliff("fwd", "nhwc", "d=2", 1.6, "taps with a larger distance share larger boxes", ("small_deep4",)),
    Cliff("fwd", "nhwc", "g=4", 3.2, "small groups fill parts of nhwc's tiles"),
    Cliff("fwd", "nhwc", "g=2", 2.2, "8 or 16 channels of a group are at most a sector: rows in memory are short",
          ("few5", "one_large4")),
    Cliff("fwd", "nhwc", "k+1 k+2", 1.9, "2 x 2 with stride 2 only moves memory; overlapping taps add products",
          ("up2",)),
    Cliff("dx", "nchw", "w-1 w+1 w-2 p-1 p+1 pw+1 op-1 op+1 k-1 s-1 sw-1 d=2", 4.5,
          "as forward: strided and patch support few shapes; flat and mma run the others", every_base_but("wide8")),
    Cliff("dx", "nchw", "k+1 k+2 kw+1 s+1", 4.0,
          "larger kernels with a stride, and stride 3, run on nhwc alone, which gathers or packs them"),
    Cliff("dx", "nchw", "c_out+1", 2.4, "mma and flat support 32 channels; nhwc gathers or packs half more for 33",
          ("wide8",)),
    Cliff("dx", "nhwc", "c_in-1 c_out-1 c_out+1", 6.0, "as forward; flat and mma run some", every_base_but("wide8")),
    Cliff("dx", "nhwc", "g=2 g=4", 4.8,
          "small groups fill parts of nhwc's tiles, or mma and portable run; 16 channels have the full rate",
          every_base_but("wide8")),
    Cliff("dx", "nhwc", "c_out-1 c_out+1 g=4", 5.7, "as for the other bases; portable runs some", ("wide8",)),
    Cliff("dx", "nhwc", "d=2", 1.6, "taps with a larger distance share larger boxes", ("few5",)),
    Cliff("dw", "nchw", "w-1 w+1 w-2 p+1 pw+1 op+1 k-1 k+1 k+2 s-1 s+1 sw-1 d=2", 7.0,
          "patch supports kernels equal to their stride, in rows on 16 bytes; mma runs the others", ("up2",)),
    Cliff("dw", "nchw", "w-1 w+1 w-2 p-1 p+1 pw+1 op-1 op+1 k-1 k+1 k+2 kw+1 s-1 sw-1", 2.8,
          "correlate packs rows that do not begin on 16 bytes; its tiles of two to five taps fit few widths",
          every_base_but("up2")),
    Cliff("dw", "nchw", "s+1 d=2", 4.7,
          "in half precision correlate supports strides of 1 and 2 and no dilation; mma runs the others",
          every_base_but("up2")),
    Cliff("dw", "nchw", "g=2 g=4 c_out+1", 2.3, "tiles have 64 output channels of a group",
          every_base_but("up2", "small_deep4")),
    Cliff("dw", "nchw", "c_out+1", 1.8, "the 65th or 129th channel needs another tile", ("up2", "small_deep4")),
    Cliff("dw", "nchw", "k+2", 1.8, "5 x 5 moves memory for as long as it multiplies; 7 x 7 multiplies twice as long",
          ("few5",)),
    Cliff("dw", "nhwc", "c_in-1 c_out-1 c_out+1", 4.5,
          "channels that do not begin on 16 bytes are packed first, and the 65th or 129th needs another tile"),
    Cliff("dw", "nhwc", "g=2 g=4", 2.6,
          "small groups fill parts of correlate's tiles of 64 output channels, or mma multiplies few pixels",
          ("up2", "up4", "same3", "small_deep4")),
    Cliff("dw", "nhwc", "s+1", 1.8, "the base has an instance of two taps", ("up2",)),
    Cliff("dw", "nhwc", "k+1 g=2 g=4", 2.0,
          "correlate splits products of 16 and 32 output channels into parts that these bases fill; 8 fill half of one",
          ("wide8", "few5", "one_large4")),
    Cliff("dw", "nhwc", "k-1 s+1", 1.7,
          "memory bounds the floor of 2 x 2 taps; tiles have two to five taps, fewer or more than are needed here",
          ("up2",)),
    Cliff("dw", "nhwc", "d=2", 2.2,
          "memory bounds the floor of these bases; where taps overlap, products take longer than memory"),
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

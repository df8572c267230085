"""Plans of the strided engine."""

from __future__ import annotations

from plan.problems import H200, TF32, from_row
from plan.tensor_cores import plans_of


def test_warpgroups_that_alternate_have_slots_of_their_own(plan_module):
    """As many each: with an odd number a warpgroup would wait for the other's. Where shared memory leaves room for an
    odd number there is no such plan; an H200's leaves it for the most, eight."""
    problem = from_row(1, 256, 64, 32, 4, 2, 1, precision=TF32)
    slots = {}
    for shared in range(64 * 1024, H200[2] + 1, 4 * 1024):
        plans = plans_of("rows_sm90a", plan_module, problem, [*H200[:2], shared, shared + 1024, *H200[4:]])
        slots[shared] = {plan["source_slots"] for plan in plans if plan["alternate"]}
    assert set().union(*slots.values()) == {4, 6, 8}
    assert not all(slots.values()), "some sizes should have room for an odd number"

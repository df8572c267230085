"""Errors of the binding for invalid arguments: the limit, and the value. For callers of the raw ops; convt_ext's
functions pass such calls to PyTorch."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from plan.problems import H200

from convt_ext.dispatch import ops

pytestmark = pytest.mark.skipif(ops.forward is None, reason="the binary is not installed")

MANY = 2**29


def plan(x=(1, 4, 8, 8), weight=(4, 2, 3, 3), x_stride=(256, 64, 8, 1), direction=0, **changes: Any) -> Any:
    """Calls the op `plan` for a small problem, with changes."""
    lists = {"stride": [1, 1], "padding": [0, 0], "output_padding": [0, 0], "groups": 1, "dilation": [1, 1]} | changes
    w_stride = [weight[1] * weight[2] * weight[3], weight[2] * weight[3], weight[3], 1]
    return torch.ops.convt_ext.plan(
        list(x), list(x_stride), list(weight), w_stride, False, lists["stride"], lists["padding"],
        lists["output_padding"], lists["groups"], lists["dilation"], 0, 0, False, H200, direction, 0,
    )  # fmt: skip


MESSAGES = {
    "channels": ({"x": (1, 2**30, 8, 8), "weight": (2**30, 2, 3, 3)}, "the input's channels must be positive and stay "
                 "below 2^30, got 1073741824"),
    "groups": ({"groups": 3}, "groups must divide the input's channels, got groups 3 and 4 channels"),
    "no groups": ({"groups": 0}, "groups must be positive, got 0"),
    "output channels": ({"weight": (4, 2**30, 3, 3)}, "weight.size(1) times groups, the output's channels, must stay "
                        "below 2^30, got 1073741824 times 1"),
    "output channels of groups": (
        {"x": (1, 2**29, 1, 1), "weight": (2**29, 2, 3, 3), "groups": 2**29},
        "weight.size(1) times groups, the output's channels, must stay below 2^30, got 2 times 536870912",
    ),
    "no output channels": ({"weight": (4, 0, 3, 3)}, "weight.size(1) must be positive, got 0"),
    "batch": ({"x": (2**30, 4, 8, 8)}, "batch must not be negative and stay below 2^30, got 1073741824"),
    "size": ({"x": (1, 4, MANY, 8)}, "the size along H must stay below 2^29, got 536870912"),
    "kernel": ({"weight": (4, 2, 3, MANY)}, "the kernel's size along W must stay below 2^29, got 536870912"),
    "stride": ({"stride": [2**62, 1]}, f"stride along H must stay below 2^29, got {2**62}"),
    "padding": ({"padding": [0, 2**62]}, f"padding along W must stay below 2^29, got {2**62}"),
    "dilation": ({"dilation": [1, 2**62]}, f"dilation along W must stay below 2^29, got {2**62}"),
    "kernel and dilation": ({"dilation": [2**28, 1]}, "dilation * (kernel size - 1) along H must stay below 2^29, got "
                            "268435456 * 2"),
    "output": ({"stride": [2**28, 1]}, "the output's size along H must stay below 2^29, got 1879048195"),
}  # fmt: skip


@pytest.mark.parametrize("name", MESSAGES)
def test_limits_are_named(name):
    changes, message = MESSAGES[name]
    with pytest.raises(RuntimeError, match=re.escape(message)):
        plan(**changes)


@pytest.mark.parametrize("direction", [0, 1, 2])
@pytest.mark.parametrize("stride", [2**31, 2**62, 2**63 - 1])
def test_the_stride_of_a_single_image_has_no_effect(direction, stride):
    """A stride that would overflow yields the plans of an ordinary one."""
    assert plan(direction=direction, x_stride=(stride, 64, 8, 1)) == plan(direction=direction)


@pytest.mark.parametrize("index", [2**31, 2**32, 2**62, -(2**32), -1])
def test_no_gpu_has_such_an_index(index):
    """The index must not be narrowed to that of an existing GPU."""
    with pytest.raises(RuntimeError, match=str(index)):
        torch.ops.convt_ext.device(index)

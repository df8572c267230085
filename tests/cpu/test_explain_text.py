"""The text of `explain`: every kernel family's plan and every candidate can be told, of any layer."""

from __future__ import annotations

import random

import pytest
import torch
from cases import CASES, STAGED_CASES
from cpu_kernels import needs_binary
from raw_ops import PRECISIONS, TENSOR_CORE_CLASSES, Call, GradientCall, kernel_names, tensor_core_kernels

from convt_ext import explain
from convt_ext.explain import _OF_EVERY_PLAN, _plan_lines, _tile
from convt_ext.planner import H200

pytestmark = needs_binary

NUM_LAYERS = 4000
SHARDS = 4


def random_layer(draw: random.Random) -> tuple[torch.Tensor, torch.Tensor, dict]:
    """An ordinary layer: of networks' sizes, each second one with kernel = stride."""
    stride = (draw.choice((1, 2, 2, 3, 4, 8)), draw.choice((1, 2, 2, 3, 4, 8)))
    kernel = stride if draw.random() < 0.5 else (draw.randint(1, 7), draw.randint(1, 7))
    groups = draw.choice((1, 1, 1, 2, 4))
    c_in, c_out = (groups * draw.choice((1, 3, 8, 16, 24, 32, 64, 96, 128)) for _ in range(2))
    size = draw.choice((1, 2, 16)), c_in, draw.choice((1, 4, 7, 16, 37, 64)), draw.choice((1, 4, 7, 16, 37, 64))
    memory_format = draw.choice((torch.contiguous_format, torch.channels_last))
    dtype = draw.choice((torch.float32, torch.float32, torch.float16, torch.bfloat16, torch.float64))
    x = torch.empty(size, dtype=dtype, device="meta").to(memory_format=memory_format)
    weight = torch.empty(c_in, c_out // groups, *kernel, dtype=dtype, device="meta")
    words = ("ieee", "aten", "tf32x3", "tf32", None) if dtype is torch.float32 else ("ieee", None)
    return x, weight, {"stride": stride, "groups": groups, "precision": draw.choice(words)}


@pytest.mark.parametrize("shard", range(SHARDS))
def test_random_layers(shard):
    draw = random.Random(shard)
    for number in range(NUM_LAYERS // SHARDS):
        x, weight, arguments = random_layer(draw)
        found = explain(x, weight, **arguments)
        text = str(found)
        assert found.plan is not None, (number, found)
        for candidate in found.plan["candidates"]:
            assert f"{candidate['kernel']} ({_tile(candidate)})" in text, (number, text)
            assert _tile(candidate), candidate
        assert set(found.plan["plan"]) >= _OF_EVERY_PLAN


def test_every_kernel():
    """Plans of each kernel instance and each direction, as the cases of the GPU tests reach them."""
    told = set()
    classes = [*TENSOR_CORE_CLASSES.values(), (torch.float32, "ieee"), (torch.float32, "aten"), (torch.float64, "ieee")]
    classes += [(torch.float16, "ieee"), (torch.bfloat16, "ieee")]
    for case in [*CASES, *STAGED_CASES]:
        for dtype, precision in classes:
            assert precision in PRECISIONS
            call = Call.of(case, dtype, precision, device="meta")
            for channels_last in (False, True):
                forward = call.replace(
                    channels_last=channels_last,
                    x=call.x.to(memory_format=torch.channels_last) if channels_last else call.x,
                )
                gradients = [GradientCall("grad_input", call.x, call.weight, forward, channels_last)]
                gradients.append(GradientCall("grad_weight", call.x, call.x, forward, channels_last))
                for made in (forward, *gradients):
                    candidates = made.candidates(list(H200))
                    answer = {"plan": candidates[0], "candidates": candidates, "floor_us": 1.0, "torch_us": 0.0}
                    text = "\n".join(_plan_lines(answer, "a GPU", chosen=True))
                    assert all(_tile(plan) and _tile(plan) in text for plan in candidates)
                    told |= {plan["kernel"] for plan in candidates}
    missing = {*kernel_names(), *tensor_core_kernels()} - told
    assert not missing

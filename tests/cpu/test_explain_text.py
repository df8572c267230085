"""The text of `explain` for any layer: its plan and every candidate."""

from __future__ import annotations

import random

import pytest
import torch
from cpu_kernels import needs_binary

from convt_ext import explain
from convt_ext.explain import _OF_EVERY_PLAN, _tile

pytestmark = needs_binary

NUM_LAYERS = 4000
SHARDS = 4


def random_layer(draw: random.Random) -> tuple[torch.Tensor, torch.Tensor, dict]:
    """Draws a layer of usual size; every second one has kernel = stride."""
    stride = (draw.choice((1, 2, 2, 3, 4, 8)), draw.choice((1, 2, 2, 3, 4, 8)))
    kernel = stride if draw.random() < 0.5 else (draw.randint(1, 7), draw.randint(1, 7))
    groups = draw.choice((1, 1, 1, 2, 4))
    c_in, c_out = (groups * draw.choice((1, 3, 8, 16, 24, 32, 64, 96, 128)) for _ in range(2))
    size = draw.choice((1, 2, 16)), c_in, draw.choice((1, 4, 7, 16, 37, 64)), draw.choice((1, 4, 7, 16, 37, 64))
    memory_format = draw.choice((torch.contiguous_format, torch.channels_last))
    dtype = draw.choice((torch.float32, torch.float32, torch.float16, torch.bfloat16, torch.float64))
    x = torch.empty(size, dtype=dtype, device="meta").to(memory_format=memory_format)
    weight = torch.empty(c_in, c_out // groups, *kernel, dtype=dtype, device="meta")
    words = ("exact", "aten", "tf32x3", "tf32", None) if dtype is torch.float32 else ("exact", None)
    return x, weight, {"stride": stride, "groups": groups, "precision": draw.choice(words)}


@pytest.mark.parametrize("shard", range(SHARDS))
def test_random_layers(shard):
    draw = random.Random(shard)
    for number in range(NUM_LAYERS // SHARDS):
        x, weight, arguments = random_layer(draw)
        found = explain(x, weight, **arguments)
        text = found.text(verbose=True)
        assert found.plan is not None, (number, found)
        assert len(str(found).splitlines()) <= 5
        assert text.startswith(str(found))
        for candidate in found.plan["candidates"]:
            assert f"{candidate['kernel']} ({_tile(candidate)})" in text, (number, text)
            assert _tile(candidate), candidate
        assert set(found.plan["plan"]) >= _OF_EVERY_PLAN

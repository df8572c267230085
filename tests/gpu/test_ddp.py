"""DDP and FSDP2 on two GPUs, NCCL: a small DCGAN generator; losses as with the original modules."""

from __future__ import annotations

import distributed_training
import pytest


@pytest.mark.needs_two_gpus
def test_losses_and_ranks(tmp_path):
    distributed_training.check("nccl", "cuda", tmp_path, ours=False)


@pytest.mark.needs_two_gpus
@pytest.mark.slow(seconds=40)
@pytest.mark.parametrize("way", ["fsdp", "fsdp_enabled", "fsdp_compiled"])
def test_fully_shard(tmp_path, way):
    """Parameters in parts on both GPUs, gathered for each layer; under `enabled` and with torch.compile too."""
    distributed_training.check("nccl", "cuda", tmp_path, ours=False, way=way)

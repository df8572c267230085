"""DistributedDataParallel on two GPUs, NCCL: a small DCGAN generator; losses as with the original modules."""

from __future__ import annotations

import distributed_training
import pytest


@pytest.mark.needs_two_gpus
def test_losses_and_ranks(tmp_path):
    distributed_training.check("nccl", "cuda", tmp_path, ours=False)

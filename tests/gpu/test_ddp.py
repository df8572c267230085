"""DistributedDataParallel on two GPUs, NCCL: a small DCGAN generator; losses as with the original modules."""

from __future__ import annotations

import distributed_training
import pytest
import torch


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_losses_and_ranks(tmp_path):
    distributed_training.check("nccl", "cuda", tmp_path, ours=False)

"""DDP and FSDP2 on the CPU, gloo: a small DCGAN generator; losses as with the original modules."""

from __future__ import annotations

import distributed_training
import pytest
import torch
from plan.profile import PROFILE

pytestmark = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()), reason="no gloo in this PyTorch"
)


@pytest.mark.parametrize(
    ("served", "way"),
    [
        pytest.param(*one, marks=pytest.mark.skipif(PROFILE == "ci", reason="only in make test-all"))
        if one in (("pytorch", "ddp"), ("ours", "fsdp"))
        else one
        for one in (("pytorch", "ddp"), *(("ours", way) for way in distributed_training.WAYS))
    ],
)
def test_losses_and_ranks(served, way, tmp_path):
    """With PyTorch's operator, as for CPU tensors, and with convt_ext's ops computed by PyTorch."""
    distributed_training.check("gloo", "cpu", tmp_path, ours=served == "ours", way=way)

"""Several processes that run the same kernels: rank 0's measurements count for all of them.

torchrun --nproc-per-node 2 examples/ddp_tuning.py
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import convt_ext


def main() -> None:
    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", rank % torch.cuda.device_count()) if on_gpu else torch.device("cpu")

    torch.manual_seed(0)
    model = convt_ext.convert(nn.Sequential(nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1), nn.ReLU())).to(device)
    x = torch.randn(4, 32, 16, 16, device=device)

    if on_gpu:
        convt_ext.tuning.tune(model, x)  # measures every layer and gradient for these sizes
    convt_ext.tuning.agree()  # every rank uses the choices of rank 0; nothing is measured any more

    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        loss = parallel(x).square().mean()
        loss.backward()
        optimizer.step()
    losses = [0.0] * dist.get_world_size()
    dist.all_gather_object(losses, round(loss.item(), 4))
    if rank == 0:
        print(f"losses of the ranks: {losses}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

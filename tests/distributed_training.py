"""A DCGAN generator trained by DistributedDataParallel in two processes, with the original modules and with ours.

`check` starts the processes, each of which runs this file, and compares what they wrote: the losses of both
models within the tolerance of the precision class, and the parameters of both ranks, which must be equal to the bit.

    python distributed_training.py BACKEND DEVICE FOLDER RANK WORLD SERVED
"""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from training import generator, train

STEPS = 6
WORLD = 2


def check(backend: str, device: str, folder: Path, ours: bool) -> None:
    """Train in two processes and compare. `ours`: on the CPU, let our ops serve, computed by PyTorch."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    arguments = [backend, device, str(folder)]
    served = "ours" if ours else "pytorch"
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, *arguments, str(rank), str(WORLD), served],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(WORLD)
    ]  # fmt: skip
    outputs = []
    for process in processes:
        try:
            outputs.append(process.communicate(timeout=240)[0])
        except subprocess.TimeoutExpired:
            process.kill()
            outputs.append(process.communicate()[0] + "\ntoo slow")
    assert [process.returncode for process in processes] == [0] * WORLD, "\n".join(outputs)
    found = [torch.load(folder / f"{rank}.pt") for rank in range(WORLD)]
    for rank in range(WORLD):
        mine, theirs = found[rank]["mine"], found[rank]["original"]
        torch.testing.assert_close(torch.tensor(mine), torch.tensor(theirs), rtol=1e-3, atol=1e-5)
        assert mine[-1] != mine[0]
        assert found[rank]["ran"] == (ours or device == "cuda")
    for one, other in zip(found[0]["parameters"], found[1]["parameters"], strict=True):
        assert torch.equal(one, other)
    assert found[0]["mine"] != found[1]["mine"]  # each rank has data of its own


def main(backend: str, device: str, folder: str, rank: int, world: int, served: str) -> None:
    from served import SeenOps

    from convt_ext import convert

    if served == "ours":
        import cpu_kernels
        import pytest

        patch = pytest.MonkeyPatch()
        cpu_kernels.pretend(patch)
    elif served != "pytorch":
        raise SystemExit(f"who is to serve: ours or pytorch, not {served!r}")
    torch.backends.cudnn.allow_tf32 = False
    place = f"cuda:{rank}" if device == "cuda" else "cpu"
    if device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group(backend, init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world)
    original = generator().to(place)
    mine = convert(copy.deepcopy(original), precision="ieee")
    losses = {}
    for name, model in (("original", original), ("mine", mine)):
        parallel = DistributedDataParallel(model, device_ids=[rank] if device == "cuda" else None)
        with SeenOps() as seen:
            losses[name] = train(parallel, STEPS, place, first=1000 * rank)
    parameters = [parameter.detach().cpu() for parameter in mine.parameters()]
    ran = any(name.startswith("convt_ext.grad_weight") for name in seen.names)
    torch.save({**losses, "parameters": parameters, "ran": ran}, Path(folder) / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5]), sys.argv[6])

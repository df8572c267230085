"""A DCGAN generator trained in two processes, with the original modules and with convt_ext's: DDP, FSDP2, FSDP2 of the
original modules under `convt_ext.enabled()`, and FSDP2 compiled.

`check` starts the processes, each of which runs this file, and compares what they wrote: the losses of both models, and
of every way with those of DDP, within the tolerance of the precision class; and the parameters of both ranks, which
must be equal to the bit.

    python distributed_training.py BACKEND DEVICE FOLDER RANK WORLD SERVED WAY
"""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from training import generator, train

STEPS = 6
WORLD = 2
WAYS = ("ddp", "fsdp", "fsdp_enabled", "fsdp_compiled")


def check(backend: str, device: str, folder: Path, ours: bool, way: str = "ddp") -> None:
    """Train in two processes and compare. `ours`: on the CPU, run convt_ext's ops, which PyTorch computes."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    arguments = [backend, device, str(folder)]
    served = "ours" if ours else "pytorch"
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, *arguments, str(rank), str(WORLD), served, way],
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
        mine = found[rank]["mine"]
        for other in ("original", "ddp"):
            torch.testing.assert_close(torch.tensor(mine), torch.tensor(found[rank][other]), rtol=1e-3, atol=1e-5)
        assert mine[-1] != mine[0]
        assert found[rank]["ran"] == (ours or device == "cuda")
    for one, other in zip(found[0]["parameters"], found[1]["parameters"], strict=True):
        assert torch.equal(one, other)
    assert found[0]["mine"] != found[1]["mine"]  # each rank has data of its own


def parallel(model: nn.Module, way: str, device: str, rank: int) -> nn.Module:
    """The model as that way of training has it."""
    if way == "ddp":
        return DistributedDataParallel(model, device_ids=[rank] if device == "cuda" else None)
    from torch.distributed.device_mesh import init_device_mesh  # not in every build of PyTorch
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device, (WORLD,))
    for layer in model:
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if way == "fsdp_compiled":
        model.compile(backend="inductor" if device == "cuda" else "aot_eager")
    return model


class Counted:
    """Counts the backwards of convt_ext that compute a gradient of the weight, in eager or compiled code, and the calls
    that PyTorch's node records, with a backward in C++."""

    def __init__(self, ops) -> None:
        self.calls = 0
        ops.grad_weight._op = self.counting(ops.grad_weight._op)
        ops.run_gradients = self.counting(ops.run_gradients)
        ops.run_recorded = self.counting(ops.run_recorded)

    def counting(self, run):
        def counted(*args, **kwargs):
            self.calls += 1
            return run(*args, **kwargs)

        return counted


def main(backend: str, device: str, folder: str, rank: int, world: int, served: str, way: str) -> None:
    from convt_ext import convert, enabled, use_precision
    from convt_ext.dispatch import ops

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
    mine = copy.deepcopy(original)
    models = {
        "original": (original, way),
        "mine": (mine if way == "fsdp_enabled" else convert(mine, precision="exact"), way),
        "ddp": (convert(copy.deepcopy(original), precision="exact"), "ddp"),
    }
    counted = None if ops.grad_weight is None else Counted(ops)
    losses, calls, frames = {}, {}, {}
    for name, (model, its_way) in models.items():
        before = (counted.calls if counted else 0, torch._dynamo.utils.counters["frames"]["ok"])
        with ExitStack() as stack:
            if its_way == "fsdp_enabled" and name == "mine":
                stack.enter_context(enabled())
                stack.enter_context(use_precision("exact"))
            losses[name] = train(parallel(model, its_way, device, rank), STEPS, place, first=1000 * rank)
        calls[name] = (counted.calls if counted else 0) - before[0]
        frames[name] = torch._dynamo.utils.counters["frames"]["ok"] - before[1]
    assert calls["original"] == 0
    assert (frames["mine"] > 0) == (way == "fsdp_compiled")
    parameters = [
        (parameter if way == "ddp" else parameter.full_tensor()).detach().cpu()
        for parameter in models["mine"][0].parameters()
    ]
    torch.save({**losses, "parameters": parameters, "ran": calls["mine"] > 0}, Path(folder) / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5]), *sys.argv[6:8])
    # Gloo's threads outlive destroy_process_group() and may abort the interpreter's end.
    sys.stdout.flush()
    os._exit(0)

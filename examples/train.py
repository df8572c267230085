"""Trains a DCGAN generator twice, with PyTorch's modules and with convt_ext's: the same losses, two speeds.

    python examples/train.py              # a GPU: batch 64, width 64; the CPU: reduced
    python examples/train.py --steps 200 --precision exact

The data are made here: smooth images that depend on the noise, so that the generator has something to learn and
the losses are comparable step by step. Only the line with `convert` differs between the two runs.
"""

from __future__ import annotations

import argparse
import copy
import time

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import convt_ext

Z = 64


def generator(width: int) -> nn.Sequential:
    """Radford, Metz and Chintala's generator (arXiv:1511.06434): noise (N, 64, 1, 1) to images (N, 3, 64, 64)."""
    layers: list[nn.Module] = [nn.ConvTranspose2d(Z, 8 * width, 4, bias=False), nn.BatchNorm2d(8 * width), nn.ReLU()]
    for factor in (8, 4, 2):
        layers += [
            nn.ConvTranspose2d(factor * width, factor * width // 2, 4, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(factor * width // 2),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers, nn.ConvTranspose2d(width, 3, 4, stride=2, padding=1), nn.Tanh())


def batches(steps: int, size: int, device: torch.device) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Noise and the images it should become: waves, of which the noise gives direction and colour."""
    source = torch.Generator().manual_seed(0)
    y, x = torch.meshgrid(torch.linspace(-3, 3, 64), torch.linspace(-3, 3, 64), indexing="ij")
    made = []
    for _ in range(steps):
        noise = torch.randn(size, Z, 1, 1, generator=source)
        waves = torch.sin(noise[:, 0:1] * x + noise[:, 1:2] * y + noise[:, 2:3])
        made.append((noise.to(device), (0.8 * waves * torch.tanh(noise[:, 3:6])).to(device)))
    return made


def train(model: nn.Module, data: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[list[float], float]:
    """The loss of every step, and the milliseconds of one step after the first few."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.5, 0.999))
    losses = []
    warm = min(3, len(data) - 1)
    start = 0.0
    for number, (noise, images) in enumerate(data):
        if number == warm:
            synchronize(noise.device)
            start = time.perf_counter()
        optimizer.zero_grad()
        loss = (model(noise) - images).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    synchronize(data[0][0].device)
    return torch.stack(losses).tolist(), (time.perf_counter() - start) * 1e3 / (len(data) - warm)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main(arguments: list[str] | None = None) -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100 if on_gpu else 12)
    parser.add_argument("--batch", type=int, default=64 if on_gpu else 4)
    parser.add_argument("--width", type=int, default=64 if on_gpu else 8)
    parser.add_argument(
        "--precision", choices=["exact", "aten", "ieee", "tf32x3", "tf32"], help="of convt_ext; not given: None"
    )
    options = parser.parse_args(arguments)

    # Full float32 for both; PyTorch's default would be TF32.
    torch.backends.cudnn.allow_tf32 = False
    device = torch.device("cuda" if on_gpu else "cpu")
    torch.manual_seed(0)
    original = generator(options.width).to(device)
    mine = convt_ext.convert(copy.deepcopy(original), precision=options.precision)
    data = batches(options.steps, options.batch, device)
    runs = {"PyTorch": train(original, data), "convt_ext": train(mine, data)}

    table = Table(title=f"DCGAN generator, width {options.width}, batch {options.batch}, float32, on {name_of(device)}")
    table.add_column("step", justify="right")
    for name in runs:
        table.add_column(f"loss, {name}", justify="right")
    table.add_column("difference", justify="right")
    for number in sorted({*range(0, options.steps, max(1, options.steps // 8)), options.steps - 1}):
        theirs, ours = (losses[number] for losses, _ in runs.values())
        table.add_row(str(number), f"{theirs:.6f}", f"{ours:.6f}", f"{ours - theirs:+.1e}")
    table.add_section()
    table.add_row("ms a step", *(f"{milliseconds:.2f}" for _, milliseconds in runs.values()), "")
    console = Console()
    console.print(table)
    worst = max(abs(a - b) / a for a, b in zip(runs["PyTorch"][0], runs["convt_ext"][0], strict=True))
    console.print(f"largest relative difference of a loss: {worst:.1e}")
    if not on_gpu:
        console.print("No GPU: PyTorch's operator computes both runs; sizes are reduced.")


def name_of(device: torch.device) -> str:
    return torch.cuda.get_device_name() if device.type == "cuda" else "the CPU"


if __name__ == "__main__":
    main()

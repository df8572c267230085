"""Training of a small DCGAN generator, for tests on the CPU and on the GPU: data, model, loop."""

from __future__ import annotations

import torch
from torch import nn

Z = 16


def generator(seed: int = 0, wide: int = 8) -> nn.Sequential:
    """Noise (N, 16, 1, 1) to images (N, 3, 16, 16)."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.ConvTranspose2d(Z, 4 * wide, 4, bias=False),
        nn.BatchNorm2d(4 * wide),
        nn.ReLU(),
        nn.ConvTranspose2d(4 * wide, 2 * wide, 4, stride=2, padding=1),
        nn.BatchNorm2d(2 * wide),
        nn.ReLU(),
        nn.ConvTranspose2d(2 * wide, 3, 3, stride=2, padding=1, output_padding=1),
        nn.Tanh(),
    )


def batch(number: int, size: int = 8, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    """Returns noise and target images: smooth functions of the noise, the same on every device."""
    made = torch.Generator().manual_seed(number)
    noise = torch.randn(size, Z, 1, 1, generator=made)
    ramp = torch.linspace(-1, 1, 16)
    images = torch.tanh(noise[:, :3] * ramp.view(1, 1, -1, 1) + noise[:, 3:6] * ramp.view(1, 1, 1, -1))
    return noise.to(device), images.to(device)


def train(
    model: nn.Module, steps: int, device: str = "cpu", learning_rate: float = 2e-3, first: int = 0
) -> list[float]:
    """The losses of `steps` steps of Adam."""
    optimizer = torch.optim.Adam(model.parameters(), learning_rate)
    losses = []
    for number in range(first, first + steps):
        noise, images = batch(number, device=device)
        optimizer.zero_grad()
        loss = (model(noise) - images).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()

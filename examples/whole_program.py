"""A program that was not written for convt_ext: one line enables it for every transposed convolution.

python examples/whole_program.py
python -m convt_ext run program.py      # the same for a program that stays unchanged
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import convt_ext


class Upsampler(nn.Module):
    """Calls the functional form, as third-party code often does."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.randn(16, 8, 4, 4))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return F.conv_transpose2d(image, self.weight, stride=2, padding=1)


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model, x = Upsampler().to(device), torch.randn(4, 16, 32, 32, device=device)
    before = model(x)
    with convt_ext.enabled():  # or convt_ext.enable() once, for the whole process
        after = model(x)
    print(f"largest difference: {(after - before).abs().max():.1e}")


if __name__ == "__main__":
    main()

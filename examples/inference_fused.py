"""A decoder for inference: converted, fused with BatchNorm and activation, and frozen.

python examples/inference_fused.py
"""

from __future__ import annotations

import copy

import torch
from torch import nn

import convt_ext


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    decoder = nn.Sequential(
        nn.ConvTranspose2d(128, 64, 4, stride=2, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.ConvTranspose2d(64, 3, 4, stride=2, padding=1), nn.Tanh(),
    ).to(device).eval()  # fmt: skip
    x = torch.randn(16, 128, 16, 16, device=device)

    fast = convt_ext.convert(copy.deepcopy(decoder), fuse=True)  # BatchNorm and activations run with the layer
    convt_ext.freeze(fast)  # folds and packs the weights once; unfreeze(fast) before training

    with torch.no_grad():
        difference = (fast(x) - decoder(x)).abs().max()
    print(f"largest difference: {difference:.1e}")
    print(convt_ext.report(fast, x))


if __name__ == "__main__":
    main()

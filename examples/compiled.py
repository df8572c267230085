"""A converted network under torch.compile: the compiler chooses fused, bare or original for each layer.

python examples/compiled.py
"""

from __future__ import annotations

import copy
import logging

import torch
from torch import nn

import convt_ext


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = nn.Sequential(nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1), nn.ReLU()).to(device).eval()
    x = torch.randn(8, 64, 32, 32, device=device)

    logging.basicConfig()
    logging.getLogger("convt_ext.compile.choice").setLevel(logging.INFO)  # prints the choices, on a GPU
    torch.backends.cudnn.benchmark = True  # measures the alternatives while the program is compiled

    compiled = torch.compile(convt_ext.convert(copy.deepcopy(model)), dynamic=False)
    with torch.no_grad():
        difference = (compiled(x) - model(x)).abs().max()
    print(f"largest difference: {difference:.1e}")


if __name__ == "__main__":
    main()

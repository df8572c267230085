"""What the package takes from torch once, when it is imported."""

from __future__ import annotations

import torch

# PyTorch's operator. Tools replace the name in torch.nn.functional; only functional.py looks at that.
conv_transpose2d = torch.conv_transpose2d

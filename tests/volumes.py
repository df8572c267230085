"""Three-dimensional layers with kernel = stride on a GPU, for tests and for the sanitizers' workload."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from raw_ops import PRECISIONS, TENSOR_CORE_CLASSES, Call

# Input size, C_out, kernel = stride, groups: nnU-Net, few and odd channels, groups, other kernels, one plane.
LAYERS = {
    "nnunet": ((2, 64, 16, 16, 16), 32, (2, 2, 2), 1),
    "nnunet_last": ((1, 320, 4, 5, 6), 256, (2, 2, 2), 1),
    "odd": ((2, 9, 3, 5, 7), 7, (2, 2, 2), 1),
    "groups": ((2, 32, 5, 8, 10), 48, (2, 2, 2), 4),
    "k344": ((1, 24, 4, 6, 9), 16, (3, 4, 4), 1),
    "k442": ((3, 16, 3, 4, 12), 8, (4, 4, 2), 1),
}


def integers(*size: int, dtype: torch.dtype) -> torch.Tensor:
    """Sums of small integers are the same in every order and class."""
    return torch.randint(-2, 3, size, device="cuda").to(dtype)


def call_of(layer: str, kind: str, channels_last: bool) -> Call:
    torch.manual_seed(0)
    size, c_out, kernel, groups = LAYERS[layer]
    dtype, precision = TENSOR_CORE_CLASSES[kind]
    memory = torch.channels_last_3d if channels_last else torch.contiguous_format
    x = integers(*size, dtype=dtype).contiguous(memory_format=memory)
    weight = integers(size[1], c_out // groups, *kernel, dtype=dtype)
    zeros, ones = (0, 0, 0), (1, 1, 1)
    return Call(x, weight, integers(c_out, dtype=dtype), kernel, zeros, zeros, groups, ones, precision, channels_last)


def expected_of(call: Call) -> torch.Tensor:
    tensors = (tensor.double() for tensor in (call.x, call.weight, call.bias))
    return F.conv_transpose3d(*tensors, call.stride, groups=call.groups).to(call.x.dtype)


def gradient_of(call: Call) -> tuple[tuple[Any, ...], torch.Tensor]:
    """Returns the arguments of the input gradient, as `raw_ops.run_candidate` expects them, and the gradient."""
    gy = integers(*expected_of(call).shape, dtype=call.x.dtype)
    x = call.x.double().requires_grad_()
    result = F.conv_transpose3d(x, call.weight.double(), None, call.stride, groups=call.groups)
    expected = torch.autograd.grad(result, x, gy.double())[0].to(call.x.dtype)
    lists = call.arguments.values()
    return (gy, call.weight, None, *lists, PRECISIONS[call.precision], call.channels_last), expected

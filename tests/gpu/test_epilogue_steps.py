"""Steps of an epilogue behind the forward pass, in every family's kernels and in the pass of its own."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from raw_ops import PRECISIONS, Call, run_candidate, run_poisoned

from convt_ext.epilogue import steps as epilogue

OPS = torch.ops.convt_ext
# Input, weight, stride, padding, output_padding, groups: of each a few families have kernels.
LAYERS = [
    ((2, 64, 24, 24), (64, 64, 4, 4), 2, 1, 0, 1),
    ((2, 64, 24, 24), (64, 72, 3, 3), 2, 1, 1, 1),
    ((2, 64, 20, 24), (64, 64, 2, 2), 2, 0, 0, 1),
    ((1, 64, 13, 15), (64, 40, 2, 2), 2, 0, 0, 1),
    ((1, 64, 16, 16), (64, 32, 4, 4), 4, 0, 0, 1),
    ((2, 64, 30, 33), (64, 48, 3, 3), 1, 1, 0, 1),
    ((2, 64, 17, 19), (64, 24, 3, 3), 2, 1, 1, 2),
]
EXACT = [torch.relu, F.relu6, (torch.clamp, -0.3, 0.4), (F.leaky_relu, 0.2), torch.neg]
ROUNDED = [
    F.silu, F.gelu, torch.nn.GELU("tanh"), torch.tanh, torch.sigmoid, F.hardswish, F.mish, F.softplus,
]  # fmt: skip
WITH_OPERANDS = [torch.add, torch.sub, torch.mul, torch.div]


@dataclasses.dataclass(frozen=True)
class CallThen(Call):
    """A call with steps behind it."""

    chain: tuple = ()

    def run(self, candidate=None):
        arguments = (*self._tensors_and_lists(), PRECISIONS[self.precision], self.channels_last)
        return run_candidate("forward", candidate, arguments, epilogue.lists_of(epilogue.steps_of(list(self.chain))))


def operands(result):
    """Of every shape that broadcasts, away from 0, as they also divide."""
    n, c, h, w = result.shape
    drawn = [torch.rand(size, device="cuda") + 0.5 for size in ((c, 1, 1), (n, c, h, w), (h, w), ())]
    shuffled = (torch.rand(n, h, c, w, device="cuda") + 0.5).transpose(1, 2)
    return [0.7, *(one.to(result.dtype) for one in (*drawn, shuffled))]


def chains(result):
    values = operands(result)
    chosen = [[step] for step in (*EXACT, *ROUNDED)]
    chosen += [[(function, value)] for function in WITH_OPERANDS for value in values]
    chosen.append([(torch.mul, values[1]), (torch.add, values[2]), torch.relu])
    channel, full = values[1], values[2]
    in_order = [(torch.mul, channel), (torch.add, channel), (torch.mul, 1.7), (torch.add, 0.3), (torch.add, full)]
    chosen.append([*in_order, F.silu, (torch.add, 0.5), F.hardtanh, (torch.mul, 2.0)])  # all that a kernel takes
    chosen.append([(torch.sub, full), (F.prelu, channel.flatten()), (torch.mul, -0.5)])
    chosen.append([torch.relu, (torch.sub, channel), F.silu])  # not in a kernel's order
    chosen.append([(torch.sub, 0.2), (F.leaky_relu, 0.1), (torch.clamp, None, 0.7)])
    chosen.append([(torch.add, 0.1)] * 9 + [torch.tanh])  # more than a kernel takes
    return chosen


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("layer", LAYERS, ids=str)
@pytest.mark.parametrize(
    ("dtype", "word", "tolerance"),
    [
        (torch.float32, "tf32", 4e-6),
        (torch.float32, "tf32x3", 4e-6),
        (torch.bfloat16, "half", 0.02),
        (torch.float16, "half", 4e-3),
    ],
    ids=str,
)
def test_in_kernels(dtype, word, tolerance, layer, channels_last):
    """Of each kernel of a family that fuses: the steps of its own bare result in float64, within one more rounding.

    What a kernel does not write is NaN.
    """
    size, weight_size, stride, padding, output_padding, groups = layer
    generator = torch.Generator("cuda").manual_seed(1)
    x = torch.randn(size, device="cuda", generator=generator).to(dtype)
    w = (torch.randn(weight_size, device="cuda", generator=generator) / 16).to(dtype)
    bias = torch.randn(weight_size[1] * groups, device="cuda", generator=generator).to(dtype)
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    two = [(number, number) for number in (stride, padding, output_padding)]
    call = CallThen(x, w, bias, *two, groups, precision=word, channels_last=channels_last)
    first = {}
    for number, plan in enumerate(call.candidates()):
        first.setdefault((plan["family"], plan["kernel"], plan["fuses"]), (number, plan["workspace_bytes"]))
    for (_, kernel, _), (number, workspace_bytes) in first.items():
        bare = Call.run(call, number)
        for chain in chains(bare):
            got = run_poisoned(call.replace(chain=chain), bare.numel(), number, workspace_bytes)
            wide = [
                tuple(one.double() if isinstance(one, torch.Tensor) else one for one in step)
                if isinstance(step, tuple)
                else step
                for step in chain
            ]
            expected = epilogue.apply(bare.double(), wide)
            difference = ((got.double() - expected) / (expected.abs() + 1)).abs().max().item()
            assert difference <= tolerance * max(1, len(chain) / 2), (kernel, chain, difference)
            assert got.stride() == bare.stride()


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_the_exact_pass(dtype, channels_last):
    """Bit for bit PyTorch's separate operations, but for functions that are not exactly rounded."""
    result = torch.randn(3, 37, 11, 13, device="cuda").to(dtype)
    result[0, 0, 0, :4] = torch.tensor([math.nan, math.inf, -math.inf, -0.0])
    if channels_last:
        result = result.contiguous(memory_format=torch.channels_last)

    def run(chain):
        got = result.clone(memory_format=torch.preserve_format)
        OPS._finish(got, True, *epilogue.lists_of(epilogue.steps_of(chain)))
        return got, epilogue.apply(result, chain)

    for step in [*EXACT, *((function, value) for function in WITH_OPERANDS for value in operands(result))]:
        got, expected = run([step])
        assert torch.equal(got.nan_to_num(7), expected.nan_to_num(7)), step
        assert torch.equal(got.isnan(), expected.isnan()), step
    for function in ROUNDED:
        got, expected = run([function])
        assert torch.equal(got.isnan(), expected.isnan()), function
        rtol = 4 * torch.finfo(dtype).eps
        torch.testing.assert_close(got, expected, rtol=rtol, atol=rtol, equal_nan=True)

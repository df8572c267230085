"""`conv_transpose3d` and its modules: PyTorch's values, formats, errors and gradients. On the CPU."""

from __future__ import annotations

import copy
import pickle

import bad_input
import pytest
import torch
import torch.nn.functional as F
from cpu.results import outcomes
from cpu_kernels import RAN, cpu_is_gpu, needs_binary
from served import allow_tf32
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

import convt_ext
from convt_ext import ConvTranspose3d, LazyConvTranspose3d
from convt_ext import conv_transpose3d as ours
from convt_ext.dispatch import geometry, planner

__all__ = ["cpu_is_gpu"]

# The size of the kernel, and the arguments.
CASES = {
    "k2s2": ((2, 2, 2), {"stride": 2}),
    "k122": ((1, 2, 2), {"stride": (1, 2, 2)}),
    "k3s2p1": ((3, 3, 3), {"stride": [2], "padding": 1, "output_padding": (1, 0, 1)}),
    "groups": ((2, 1, 3), {"groups": 2, "dilation": (1, 2, 1), "padding": (0, 0, 1)}),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def operands(kernel=(2, 2, 2), groups=1, dtype=torch.float32):
    torch.manual_seed(0)
    return tuple(torch.randn(size, dtype=dtype) for size in ((2, 4, 3, 4, 5), (4, 6 // groups, *kernel), (6,)))


_best_plan = planner.best_plan


@pytest.fixture
def planned(cpu_is_gpu, monkeypatch):
    """Directions without a kernel run PyTorch's operator; the others run convt_ext, however fast PyTorch is."""

    def best_plan(*arguments):
        found = _best_plan(*arguments)
        return found and found._replace(torch_us=0.0)

    monkeypatch.setattr(planner, "best_plan", best_plan)


@pytest.fixture
def with_tf32(planned):
    with allow_tf32(True):
        yield


@each_case
def test_values_and_gradients(with_tf32, case):
    kernel, arguments = case
    x, weight, bias = operands(kernel, arguments.get("groups", 1))
    for one in (x, x[0], x.contiguous(memory_format=torch.channels_last_3d), x[:, :, ::2], x[..., 1:], x[:1]):
        leaves = [tensor.detach().requires_grad_() for tensor in (one, weight, bias)]
        results = [call(*leaves, **arguments) for call in (ours, F.conv_transpose3d)]
        torch.testing.assert_close(*results)
        gradients = [torch.autograd.grad(result.square().sum(), leaves) for result in results]
        torch.testing.assert_close(*gradients)


@needs_binary
def test_kernels_run_all_directions(with_tf32):
    ran = {}
    for name, (kernel, arguments) in CASES.items():
        RAN.clear()
        x, weight, bias = (one.requires_grad_() for one in operands(kernel, arguments.get("groups", 1)))
        ours(x, weight, bias, **arguments).sum().backward()
        ran[name] = set(RAN)
    everything = {"forward", "grad_input", "grad_weight", "grad_bias"}
    assert ran == dict.fromkeys(CASES, everything)


@needs_binary
@each_case
def test_requests(planned, case):
    kernel, arguments = case
    x, weight, bias = operands(kernel, arguments.get("groups", 1))
    expected = F.conv_transpose3d(x, weight, bias, **arguments)
    for asked in ({"precision": "exact"}, {"backend": "convt_ext"}):
        torch.testing.assert_close(ours(x, weight, bias, **arguments, **asked), expected)
    assert RAN == ["forward"] * 2
    ours(x, weight, bias, **arguments, backend="torch")
    assert RAN == ["forward"] * 2


def test_memory_formats():
    torch.manual_seed(0)
    weight = torch.empty(2, 2, 2, 2, 2)
    for _ in range(300):
        size = [int(length) for length in torch.randint(1, 4, (5,))]
        order = torch.randperm(5).tolist()
        tensor = torch.empty([size[axis] for axis in order]).permute([order.index(axis) for axis in range(5)])
        theirs = torch._C._conv_determine_backend_memory_format(tensor, weight, torch._C._ConvBackend.Mkldnn)
        ours = geometry.suggests_channels_last(tensor.shape, tensor.stride())
        assert ours == (theirs is torch.channels_last_3d), (size, tensor.stride())


@needs_binary
def test_results_in_channels_last(with_tf32):
    x, weight, _ = operands()
    found = ours(x.contiguous(memory_format=torch.channels_last_3d), weight, stride=2)
    assert found.is_contiguous(memory_format=torch.channels_last_3d)
    assert ours(x, weight, stride=2).is_contiguous()


BAD = {
    "input_3d": lambda x, w: ((x[0, 0], w), {}),
    "input_6d": lambda x, w: ((x[None], w), {}),
    "weight_4d": lambda x, w: ((x, w[0]), {}),
    "channels": lambda x, w: ((x[:, :3], w), {}),
    "bias_length": lambda x, w: ((x, w, torch.ones(5)), {}),
    "depth_0": lambda x, w: ((x[:, :, :0], w), {}),
    "groups_3": lambda x, w: ((x, w), {"groups": 3}),
    "output_padding_too_large": lambda x, w: ((x, w), {"stride": 2, "output_padding": (2, 0, 0)}),
    **{
        f"{name}_{number}": lambda x, w, name=name, value=value: ((x, w), {name: value})
        for name in ("stride", "padding", "output_padding", "dilation")
        for number, value in enumerate((-1, 0, (2, 2), [1] * 4, (), 2.0, True, None, (2.0, 1, 1), (1, True, 1), 2**63))
    },
}


@pytest.mark.parametrize("row", BAD)
def test_errors_are_pytorchs(cpu_is_gpu, row):
    x, weight, _ = operands()
    tensors, named = BAD[row](x, weight)
    expected, *both = outcomes(ours, tensors, named)
    for found in both:
        if isinstance(expected, torch.Tensor):
            torch.testing.assert_close(found, expected)
        else:
            assert found == expected


def test_gradcheck_and_gradgradcheck(with_tf32):
    x, weight, bias = (one.double().requires_grad_() for one in operands((1, 2, 2)))
    leaves = x[:1, :, :2, :2, :2].detach().requires_grad_(), weight, bias
    assert gradcheck(lambda *leaves: ours(*leaves, (1, 2, 2)), leaves, fast_mode=True)
    assert gradgradcheck(lambda *leaves: ours(*leaves, (1, 2, 2)), leaves, fast_mode=True)


def test_residual_activation_autocast_and_transforms(with_tf32):
    x, weight, bias = operands()
    expected = F.conv_transpose3d(x, weight, bias, 2)
    residual = torch.randn(6, 1, 1, 1)
    RAN.clear()
    found = ours(x, weight, bias, 2, residual=residual, activation="relu")
    torch.testing.assert_close(found, torch.relu(expected + residual))
    assert RAN == ["forward", "steps"]
    torch.testing.assert_close(torch.func.vmap(lambda one: ours(one, weight, bias, 2))(x), expected)
    with torch.autocast("cpu", torch.bfloat16):
        found = ours(x, weight, bias, 2)
        assert found.dtype is torch.bfloat16
        torch.testing.assert_close(found, F.conv_transpose3d(x, weight, bias, 2))


def test_modules(with_tf32):
    torch.manual_seed(0)
    theirs = nn.ConvTranspose3d(4, 6, 3, stride=2, groups=2)
    mine = convt_ext.convert(copy.deepcopy(theirs))
    assert type(mine) is ConvTranspose3d
    assert repr(mine) == repr(theirs)
    x = operands()[0]
    for size in (None, (8, 10, 12), [7, 9, 11], (8, 10), (30, 1, 1)):
        found, expected = (bad_input.outcome(layer, x, size) for layer in (mine, theirs))
        if isinstance(expected, torch.Tensor):
            torch.testing.assert_close(found, expected)
        else:
            assert found == expected
    for other in (copy.deepcopy(mine), pickle.loads(pickle.dumps(mine))):
        torch.testing.assert_close(other(x), theirs(x))
    assert type(convt_ext.revert(mine)) is nn.ConvTranspose3d
    for lazy in (LazyConvTranspose3d(6, 3), convt_ext.convert(nn.LazyConvTranspose3d(6, 3))):
        assert lazy(x).shape == (2, 6, 5, 6, 7)
        assert type(lazy) is ConvTranspose3d


@needs_binary
def test_enable_report_and_explain(with_tf32):
    x, weight, bias = operands()
    with convt_ext.enabled():
        nn.ConvTranspose3d(4, 6, 2, stride=2)(x)
        assert RAN == ["forward"]
    assert F.conv_transpose3d is torch.conv_transpose3d
    (line,) = convt_ext.report(convt_ext.convert(nn.ConvTranspose3d(4, 6, 2, stride=2)).requires_grad_(False), x).lines
    assert line.call.startswith("conv_transpose3d 2x4x3x4x5 * 4x6x2x2x2")
    found = convt_ext.explain(x, weight, bias, 2)
    assert (found.dims, found.served_by, found.gradients["weight"]) == (3, "convt_ext", "convt_ext")
    assert str(found).startswith("conv_transpose3d")
    assert found.plan["plan"]["family"] == "patch"

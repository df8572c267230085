"""Epilogues have the results and gradients of PyTorch's functions, one after the other."""

from __future__ import annotations

import copy
import itertools
import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from cpu_kernels import RAN
from torch import nn
from torch.utils.checkpoint import checkpoint

from convt_ext import conv_transpose2d
from convt_ext.dispatch import routing
from convt_ext.dispatch.auto_dispatch import AutoDispatch
from convt_ext.environment import _torch
from convt_ext.epilogue import fused
from convt_ext.epilogue import steps as epilogues
from convt_ext.functional import conv_transpose_then
from convt_ext.tuning import choices

pytestmark = pytest.mark.usefixtures("cpu_is_gpu")
ours = partial(conv_transpose_then, 2)

FUNCTIONS = [
    (torch.add, 0.5), (torch.sub, 0.5), (torch.rsub, 0.5), (torch.mul, 1.5), (torch.div, 1.5), torch.neg,
    (torch.clamp, -0.3, 0.4), (torch.clamp, None, 0.4), torch.relu, F.relu6, (F.hardtanh, -0.2, 0.3),
    (F.leaky_relu, 0.2), F.silu, F.gelu, nn.GELU("tanh"), torch.tanh, torch.sigmoid, F.hardswish, F.mish, F.softplus,
    nn.ReLU(), nn.LeakyReLU(0.3), nn.PReLU(), nn.PReLU(6), nn.Softplus(2, 3), nn.Hardtanh(-0.1, 0.2), nn.Identity(),
]  # fmt: skip
LINEAR = [(torch.add, 0.25), (torch.sub, 0.5), (torch.mul, 1.5), (torch.div, 0.75), torch.neg]
LAST = [torch.relu, F.relu6, (F.hardtanh, -0.2, 0.3), (F.leaky_relu, 0.2), torch.tanh, torch.sigmoid, (torch.mul, 2)]


@pytest.fixture
def always(monkeypatch):
    """Small recorded calls are fused too."""
    monkeypatch.setattr(fused, "_SMALL_BYTES", 0)


def operands(batched=True, dtype=torch.float64, dims=2):
    generator = torch.Generator().manual_seed(3)
    lengths, kernel = (3, 5, 6)[3 - dims :], (2, 3, 3)[3 - dims :]
    x, weight, bias = (
        torch.randn(size, generator=generator, dtype=dtype)
        for size in ((2, 4, *lengths) if batched else (4, *lengths), (4, 6, *kernel), (6,))
    )
    return x, weight, bias


def both(entries, *tensors, **arguments):
    """Returns the result of convt_ext, and that of PyTorch's functions one after the other."""
    arguments = {"stride": 2, "padding": 1, **arguments}
    dims = tensors[1].dim() - 2
    return conv_transpose_then(dims, *tensors, **arguments, epilogue=entries), epilogues.apply(
        _torch.CONV_TRANSPOSE[dims](*tensors, **arguments), entries
    )


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("batched", [True, False], ids=["batched", "unbatched"])
@pytest.mark.parametrize("entry", FUNCTIONS, ids=epilogues.name_of)
def test_every_function(entry, batched, dims):
    if isinstance(entry, nn.PReLU) and entry.weight.numel() > 1 and not batched:
        pytest.skip("PyTorch counts its channels by the second axis")
    tensors = operands(batched, dims=dims)
    module = copy.deepcopy(entry).double() if isinstance(entry, nn.Module) else entry
    with torch.no_grad():
        found, expected = both([module], *tensors)
    torch.testing.assert_close(found, expected)
    assert (["forward"] if isinstance(entry, nn.Identity) else ["forward", "steps"]) == RAN


@pytest.mark.parametrize("size", [(2, 6, 9, 11), (6, 1, 1), (9, 11), (1,), (), (2, 1, 9, 1), (1, 6, 1, 11)], ids=str)
def test_tensors(size):
    tensor = torch.rand(size, dtype=torch.float64) + 0.5
    for function in (torch.add, torch.sub, torch.mul, torch.div, torch.rsub):
        found, expected = both([(function, tensor), torch.relu], *operands())
        torch.testing.assert_close(found, expected)
    assert RAN.count("steps") == 5


# A tensor for results of one and three dimensions, and whether its planes and rows have one stride.
TENSORS = [
    (1, (2, 6, 11), True), (1, (6, 1), True), (1, (11,), True), (1, (), True), (1, (2, 1, 1), True),
    (3, (2, 6, 4, 9, 11), True), (3, (6, 1, 1, 1), True), (3, (11,), True), (3, (), True), (3, (4, 9, 1), True),
    (3, (9, 11), False), (3, (6, 4, 1, 1), False), (3, (2, 1, 1, 9, 1), False),
]  # fmt: skip


@pytest.mark.parametrize(("dims", "size", "is_fused"), TENSORS, ids=str)
def test_tensors_of_one_and_three_dimensions(dims, size, is_fused):
    tensor = (torch.rand(size, dtype=torch.float64) + 0.5).requires_grad_()
    for entries in ([(torch.mul, tensor.detach()), torch.relu], [(torch.add, tensor), torch.tanh]):
        tensors = [one.requires_grad_() for one in operands(dims=dims)]
        found, expected = both(entries, *tensors)
        torch.testing.assert_close(found, expected)
        needed = [*tensors, tensor] if entries[0][1] is tensor else tensors
        for ours_, theirs in zip(*(torch.autograd.grad(one.sum(), needed) for one in (found, expected)), strict=True):
            torch.testing.assert_close(ours_, theirs)
    with torch.no_grad():
        RAN.clear()
        both([(torch.mul, tensor)], *operands(dims=dims))
    assert ("steps" in RAN) is is_fused


def test_a_transposed_tensor_of_three_dimensions_is_not_fused():
    planes = torch.rand(2, 6, 9, 4, 11, dtype=torch.float64).transpose(2, 3)
    with torch.no_grad():
        found, expected = both([(torch.add, planes)], *operands(dims=3))
    torch.testing.assert_close(found, expected)
    assert "steps" not in RAN


@pytest.mark.parametrize(
    ("function", "tensor", "batched"),
    [
        (torch.mul, torch.rand(3, 6, 9, 11, dtype=torch.float64)[:, None], True),  # enlarges the result
        (torch.mul, torch.rand(6, 1, 1, dtype=torch.complex128), True),
        (torch.mul, torch.rand(6, 1, 1, dtype=torch.float64).to_sparse(), True),
        (F.prelu, torch.rand(9, dtype=torch.float64), False),  # as many as the result is high
    ],
    ids=["larger", "complex", "sparse", "prelu"],
)
def test_unsupported_steps_are_pytorchs(function, tensor, batched):
    found, expected = both([(function, tensor)], *operands(batched))
    torch.testing.assert_close(found.to_dense(), expected.to_dense())
    assert "steps" not in RAN


def test_dtypes_follow_pytorch():
    tensors = operands(dtype=torch.float32)
    for other, is_fused in (
        (torch.rand(6, 1, 1, dtype=torch.float64), False),  # promotes
        (torch.rand(6, 1, 1).half(), True),
        (torch.tensor(1.5, dtype=torch.float64), True),  # no axes: a number
        (torch.arange(6).view(6, 1, 1), True),
    ):
        RAN.clear()
        found, expected = both([(torch.add, other)], *tensors)
        assert found.dtype is expected.dtype
        torch.testing.assert_close(found, expected)
        assert ("steps" in RAN) is is_fused


def test_without_a_gpu(monkeypatch):
    monkeypatch.setattr(routing, "on_gpu", lambda tensor: False)
    found, expected = both([(torch.mul, 2), nn.SiLU()], *operands())
    assert torch.equal(found, expected)
    assert RAN == []


UNKNOWN = [torch.exp, (torch.pow, 2), nn.Softmax(1), "relu", nn.Linear(2, 2), [torch.relu], (nn.ReLU(),), ()]


def test_unknown_entries_and_wrong_arguments_are_refused():
    for entry in UNKNOWN:
        with pytest.raises(ValueError, match="no kernel supports"):
            ours(*operands(), epilogue=[entry])
    for entry in ((torch.add, "1"), (F.prelu, 0.2), nn.GELU("exact"), torch.add):
        with pytest.raises(TypeError):
            ours(*operands(), epilogue=[entry])


def assert_same_gradients(chain, leaves):
    found, expected = both(chain, *leaves[:3])
    torch.testing.assert_close(found, expected)
    cotangent = torch.randn_like(found)
    gradients = [torch.autograd.grad(result, leaves, cotangent) for result in (found, expected)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("last", LAST, ids=epilogues.name_of)
def test_gradients_follow_from_operands_and_result(always, last):
    residual = torch.randn(2, 6, 9, 11, dtype=torch.float64, requires_grad=True)
    by_channel = torch.randn(6, 1, 1, dtype=torch.float64, requires_grad=True)
    factor = torch.rand(6, 1, 1, dtype=torch.float64) + 0.5
    leaves = [*(one.requires_grad_() for one in operands()), residual, by_channel]
    chain = [*LINEAR, (torch.add, residual), (torch.sub, by_channel), (torch.mul, factor), (torch.div, factor), last]
    assert_same_gradients(chain, leaves)
    assert "steps" in RAN


@pytest.mark.parametrize("last", LAST, ids=epilogues.name_of)
def test_gradients_of_every_order(always, last):
    leaves = [one[..., :2, :2].clone() if one.dim() == 4 else one for one in operands()]
    residual = torch.randn(2, 6, 4, 4, dtype=torch.float64)

    def call(x, weight, bias, residual):
        return ours(x, weight, bias, stride=2, epilogue=[(torch.mul, 1.5), (torch.add, residual), last])

    tensors = [one.requires_grad_() for one in (*leaves, residual)]
    assert torch.autograd.gradcheck(call, tensors, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, tensors, fast_mode=True)


@pytest.mark.parametrize(
    "chain",
    [[torch.relu, (torch.mul, 2)], [F.silu], [(torch.clamp, 0, 1)], [nn.PReLU().double()]],
    ids=["not_last", "silu", "clamp", "prelu"],
)
def test_other_gradients_are_recorded_by_pytorchs_functions(always, chain):
    assert_same_gradients(chain, [one.requires_grad_() for one in operands()])
    assert "steps" not in RAN


@pytest.mark.parametrize(
    "function", [torch.relu, F.relu6, (F.hardtanh, 0, 1), (F.leaky_relu, 0.5)], ids=epilogues.name_of
)
def test_gradients_at_the_bounds_are_pytorchs(always, function):
    """Zeros, ones, NaN and infinities."""
    weight = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    x = torch.tensor([0.0, -0.0, 1.0, 6.0, math.inf, -math.inf, math.nan, 0.5], dtype=torch.float64).view(1, 1, 1, 8)
    x.requires_grad_()
    found = ours(x, weight, None, epilogue=[function])
    assert "steps" in RAN
    (gradient,) = torch.autograd.grad(found.sum(), x)
    (expected,) = torch.autograd.grad(epilogues.apply(F.conv_transpose2d(x, weight), [function]).sum(), x)
    torch.testing.assert_close(gradient, expected, equal_nan=True, rtol=0, atol=0)


def test_only_what_is_asked_for_is_computed(always):
    x, weight, bias = (one.requires_grad_() for one in operands())
    result = ours(x, weight, bias, epilogue=[torch.tanh])
    RAN.clear()
    torch.autograd.grad(result.sum(), weight)
    assert RAN == ["grad_weight"]


def test_a_result_that_was_changed_is_not_differentiated(always):
    x, weight, bias = (one.requires_grad_() for one in operands())
    result = ours(x, weight, bias, epilogue=[torch.tanh])
    result.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


# ---- non-reentrant checkpointing: saved tensors do not depend on measurements made meanwhile

EPILOGUES = {
    "relu": [torch.relu],
    "mul_relu": [(torch.mul, 2.0), torch.relu],
    "by_channel": [(torch.mul, torch.rand(3, 1, 1) + 0.5), torch.relu],
    "add": [(torch.add, 1.0)],
    "div_tanh": [(torch.div, 2.0), torch.tanh],
    "residual": [(torch.add, torch.randn(2, 3, 6, 6)), torch.relu],
    "half_residual": [(torch.add, torch.randn(2, 3, 6, 6).bfloat16()), torch.relu],
    "gelu": [F.gelu],
    "prelu": [nn.PReLU()],
    "nothing": [],
}


@pytest.fixture(params=[False, True], ids=["ours", "torchs"])
def by_torch(request, monkeypatch):
    """Returns which directions PyTorch's operator computes."""
    choice = choices.Choice(request.param, 0, 1.0, 2.0, "estimated")
    monkeypatch.setattr(choices, "estimated", lambda problem, direction: choice)
    return request.param


@pytest.fixture(params=[(True, False), (False, True)], ids=["first", "then"])
def changing(request, monkeypatch):
    """Changes the choices of a problem on each query, as measurements in between do."""
    for name in ("serves", "is_recorded_by_torch"):
        answers = itertools.cycle(request.param)
        monkeypatch.setattr(AutoDispatch, name, lambda *_, answers=answers: next(answers))


def leaves():
    torch.manual_seed(0)
    return [torch.randn(size, requires_grad=True) for size in ((2, 3, 6, 6), (3, 3, 3, 3), (3,))]


def gradients(call, operands):
    return torch.autograd.grad(call(*operands).float().square().sum(), operands)


@pytest.mark.usefixtures("by_torch", "changing")
@pytest.mark.parametrize("lowers", [False, True], ids=["float32", "autocast"])
@pytest.mark.parametrize("name", EPILOGUES)
def test_a_recomputation_saves_the_same(name, lowers):
    entries = EPILOGUES[name]

    def ours_block(x, weight, bias):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=lowers):
            return ours(x, weight, bias, padding=1, epilogue=entries)

    def block(x, weight, bias):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=lowers):
            return epilogues.apply(F.conv_transpose2d(x, weight, bias, padding=1), entries)

    operands = leaves()
    expected = gradients(block, operands)
    for _ in range(3):
        found = gradients(lambda *tensors: checkpoint(ours_block, *tensors, use_reentrant=False), operands)
        for one, other in zip(found, expected, strict=True):
            if lowers:  # eight bits, rounded after the convolution and after each step
                assert (one - other).norm() <= 2 * 2**-8 * other.norm()
            else:
                torch.testing.assert_close(one, other)


def test_other_calls_are_chosen_as_ever(by_torch):
    """Small calls without hooks keep PyTorch's operations; those with hooks run in one node of convt_ext."""
    operands = leaves()
    conv_transpose2d(*operands, activation="relu")
    assert "steps" not in RAN
    with torch.autograd.graph.saved_tensors_hooks(lambda one: one, lambda one: one):
        result = conv_transpose2d(*operands, activation="relu")
        assert type(result.grad_fn).__name__ == "ThenBackward"
        with torch.no_grad():
            assert conv_transpose2d(*operands, activation="relu").grad_fn is None


def test_a_release_without_that_name_is_watched_always(monkeypatch):
    """The fallback of fused.py keeps results correct."""
    monkeypatch.setattr(_torch, "saved_tensors_hooks", lambda _: True)
    result = conv_transpose2d(*leaves(), activation="relu")
    assert type(result.grad_fn).__name__ == "ThenBackward"

"""Epilogues have the results and gradients of PyTorch's functions, one after the other."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from cpu_kernels import RAN, cpu_is_gpu
from torch import nn

from convt_ext import conv_transpose2d, fused, routing
from convt_ext import epilogue as epilogues
from convt_ext.functional import conv_transpose2d_then as ours

pytestmark = pytest.mark.usefixtures("cpu_is_gpu")
__all__ = ["cpu_is_gpu"]

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


def operands(batched=True, dtype=torch.float64):
    generator = torch.Generator().manual_seed(3)
    x, weight, bias = (
        torch.randn(size, generator=generator, dtype=dtype)
        for size in ((2, 4, 5, 6) if batched else (4, 5, 6), (4, 6, 3, 3), (6,))
    )
    return x, weight, bias


def both(entries, *tensors, **arguments):
    """Returns the result of convt_ext, and that of PyTorch's functions one after the other."""
    arguments = {"stride": 2, "padding": 1, **arguments}
    return ours(*tensors, **arguments, epilogue=entries), epilogues.apply(
        F.conv_transpose2d(*tensors, **arguments), entries
    )


@pytest.mark.parametrize("batched", [True, False], ids=["batched", "unbatched"])
@pytest.mark.parametrize("entry", FUNCTIONS, ids=epilogues.name_of)
def test_every_function(entry, batched):
    if isinstance(entry, nn.PReLU) and entry.weight.numel() > 1 and not batched:
        pytest.skip("PyTorch counts its channels by the height")
    tensors = operands(batched)
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


@pytest.mark.parametrize(
    "tensor",
    [
        torch.rand(3, 6, 9, 11, dtype=torch.float64)[:, None],  # enlarges the result
        torch.rand(6, 1, 1, dtype=torch.complex128),
        torch.rand(6, 1, 1, dtype=torch.float64).to_sparse(),
    ],
    ids=["larger", "complex", "sparse"],
)
def test_unsupported_steps_are_pytorchs(tensor):
    found, expected = both([(torch.mul, tensor)], *operands())
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


def test_prelu_of_an_unbatched_input_is_pytorchs():
    slope = torch.rand(9, dtype=torch.float64)  # as many as the result is high
    found, expected = both([(F.prelu, slope)], *operands(batched=False))
    torch.testing.assert_close(found, expected)
    assert "steps" not in RAN


def test_without_a_gpu(monkeypatch):
    monkeypatch.setattr(routing, "on_gpu", lambda tensor: False)
    found, expected = both([(torch.mul, 2), nn.SiLU()], *operands())
    assert torch.equal(found, expected)
    assert RAN == []


UNKNOWN = {
    "function": torch.exp,
    "with_an_argument": (torch.pow, 2),
    "module": nn.Softmax(1),
    "text": "relu",
    "layer": nn.Linear(2, 2),
    "list": [torch.relu],
    "module_in_a_tuple": (nn.ReLU(),),
    "nothing": (),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_entries_are_refused(name):
    with pytest.raises(ValueError, match="no kernel supports"):
        ours(*operands(), epilogue=[UNKNOWN[name]])


def test_wrong_arguments_are_refused():
    for entry in ((torch.add, "1"), (F.prelu, 0.2), nn.GELU("exact"), torch.add):
        with pytest.raises(TypeError):
            ours(*operands(), epilogue=[entry])


@pytest.mark.parametrize("last", LAST, ids=epilogues.name_of)
def test_gradients_follow_from_operands_and_result(always, last):
    residual = torch.randn(2, 6, 9, 11, dtype=torch.float64, requires_grad=True)
    by_channel = torch.randn(6, 1, 1, dtype=torch.float64, requires_grad=True)
    factor = torch.rand(6, 1, 1, dtype=torch.float64) + 0.5
    leaves = [*(one.requires_grad_() for one in operands()), residual, by_channel]
    chain = [*LINEAR, (torch.add, residual), (torch.sub, by_channel), (torch.mul, factor), (torch.div, factor), last]
    found, expected = both(chain, *leaves[:3])
    torch.testing.assert_close(found, expected)
    assert "steps" in RAN
    cotangent = torch.randn_like(found)
    torch.testing.assert_close(
        torch.autograd.grad(found, leaves, cotangent), torch.autograd.grad(expected, leaves, cotangent)
    )


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
    leaves = [one.requires_grad_() for one in operands()]
    found, expected = both(chain, *leaves)
    assert "steps" not in RAN
    cotangent = torch.randn_like(found)
    torch.testing.assert_close(
        torch.autograd.grad(found, leaves, cotangent), torch.autograd.grad(expected, leaves, cotangent)
    )


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


def test_a_small_training_call_keeps_pytorchs_node():
    leaves = [one.requires_grad_() for one in operands()]
    found = ours(*leaves, epilogue=[torch.relu])
    assert "steps" not in RAN
    assert "relu" in found.grad_fn.name().lower()


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


def test_symbolic_traces_hold_pytorchs_functions():
    graph = torch.fx.symbolic_trace(lambda x, weight: ours(x, weight, None, epilogue=[torch.relu, (torch.mul, 2)]))
    x, weight, _ = operands()
    targets = [node.target for node in graph.graph.nodes]
    assert conv_transpose2d in targets
    assert torch.relu in targets
    assert torch.mul in targets
    torch.testing.assert_close(graph(x, weight), 2 * F.conv_transpose2d(x, weight).relu())


def test_compiled_programs_hold_pytorchs_functions():
    tensors = operands(dtype=torch.float32)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def call(x, weight, bias):
        return ours(x, weight, bias, stride=2, epilogue=[torch.relu, (torch.mul, 2), F.silu])

    expected = F.silu(2 * torch.relu(F.conv_transpose2d(*tensors, stride=2)))
    torch.testing.assert_close(call(*tensors), expected)


def test_steps_survive_as_lists():
    entries = [(torch.add, torch.ones(1)), F.softplus, (torch.mul, torch.ones(2, 1, 1)), (torch.clamp, -1, 2)]
    steps = epilogues.steps_of(entries)
    again = epilogues.steps_in(*epilogues.lists_of(steps))
    assert [step[:3] for step in again] == [step[:3] for step in steps]
    assert all(one.tensor is other.tensor for one, other in zip(again, steps, strict=True))

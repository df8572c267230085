"""freeze_weights() on the CPU, with an op that computes from the packed copy: when copies are made and dropped."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from cpu_kernels import RAN, cpu_is_gpu
from torch import nn
from torch.nn.utils import parametrizations

from convt_ext import ConvTranspose2d, convert, planner

pytestmark = pytest.mark.usefixtures("cpu_is_gpu")
__all__ = ["cpu_is_gpu"]


def layer(**named) -> ConvTranspose2d:
    return ConvTranspose2d(4, 6, 3, stride=2, **named).eval()


@pytest.fixture
def packing(monkeypatch):
    """A planner whose plans pack the float32 weight of `layer`."""
    answer = {"plan": {"packed_bytes": 4 * 6 * 9 * 4}}
    monkeypatch.setattr(planner, "plan", lambda *_: answer)
    return answer


@pytest.fixture
def frozen(packing):
    made = layer(precision="tf32")
    made.freeze_weights()
    return made


@torch.no_grad()
def ran(call, x=None) -> list[str]:
    RAN.clear()
    call(torch.randn(2, 4, 5, 6) if x is None else x)
    return list(RAN)


@torch.no_grad()
def test_the_first_call_of_a_size_packs(frozen):
    x, plain = torch.randn(2, 4, 5, 6), layer(precision="tf32")
    plain.load_state_dict(frozen.state_dict())
    assert ran(frozen, x) == ["forward_packing"]
    assert ran(frozen, x) == ["forward_packed"]
    assert ran(frozen, x[:1]) == ["forward_packing"]
    assert ran(frozen, x[0]) == ["forward_packed"]  # the same problem without its batch
    assert ran(plain, x) == ["forward"]
    for one in (x, x[:1], x[0]):
        assert torch.equal(frozen(one), plain(one))


def test_a_plan_that_packs_nothing_changes_nothing(packing):
    packing["plan"]["packed_bytes"] = 0
    made = layer(precision="ieee")
    made.freeze_weights()
    assert ran(made) == ran(made) == ["forward"]


def test_gradients_are_recorded_as_ever(frozen):
    x = torch.randn(2, 4, 5, 6)
    ran(frozen, x)
    frozen(x).sum().backward()
    assert frozen.weight.grad is not None
    assert "forward_packed" not in RAN[1:]


@pytest.mark.parametrize(
    "end",
    [
        lambda made: made.train(),
        lambda made: made.double().float(),
        lambda made: made.load_state_dict(made.state_dict()),
        lambda made: setattr(made, "weight", nn.Parameter(torch.randn(4, 6, 3, 3))),
        lambda made: nn.Sequential(made).train(),
        lambda made: nn.Sequential(made).to(torch.float64).float(),
    ],
)
def test_what_ends_it(frozen, end):
    ran(frozen)
    end(frozen)
    assert ran(frozen) == ["forward"]


def test_evaluation_does_not_end_it(frozen):
    ran(frozen)
    frozen.eval()
    assert frozen._frozen is not None


def test_copies_are_not_frozen(frozen):
    ran(frozen)
    for other in (copy.deepcopy(frozen), pickle.loads(pickle.dumps(frozen))):
        assert ran(other) == ["forward"]
    assert ran(frozen, torch.randn(9, 4, 5, 6)) == ["forward_packing"]


def test_only_some_copies_are_kept(frozen):
    for size in range(1, 12):
        ran(frozen, torch.randn(1, 4, size, 6))
    assert len(frozen._frozen._copies) == 8
    assert ran(frozen, torch.randn(1, 4, 11, 6)) == ["forward_packed"]
    assert ran(frozen, torch.randn(1, 4, 1, 6)) == ["forward_packing"]


@torch.no_grad()
def test_an_input_between_vectors_has_no_part_in_copies(frozen):
    """Of the same shape and strides, but a kernel that wants vectors does not run, and nothing would be packed."""
    memory, plain = torch.randn(2 * 4 * 5 * 6 + 1), layer(precision="tf32")
    plain.load_state_dict(frozen.state_dict())
    between, on_vectors = (memory[at : at + 240].view(2, 4, 5, 6) for at in (1, 0))
    assert on_vectors.data_ptr() % 16 == 0
    for x, expected in ((between, "forward"), (on_vectors, "forward_packing"), (between, "forward")):
        assert ran(frozen, x) == [expected]
        assert torch.equal(frozen(x), plain(x))


def test_autocast_is_served_without_the_copy(frozen):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ran(lambda x: convert(frozen, precision="ieee")(x)) == ["forward"]


def test_it_says_what_it_needs():
    with pytest.raises(RuntimeError, match=r"call eval\(\) first"):
        ConvTranspose2d(4, 6, 3).freeze_weights()
    computed = parametrizations.weight_norm(layer())
    with pytest.raises(RuntimeError, match="parametrization"):
        computed.freeze_weights()


def test_the_raw_op_is_not_for_training(frozen):
    arguments = ((2, 2), (0, 0), (0, 0), 1, (1, 1), 3, False)
    packed = torch.empty(4 * 6 * 9 * 4, dtype=torch.uint8)
    with pytest.raises(NotImplementedError, match="convt_ext::forward"):
        torch.ops.convt_ext.forward_packed(torch.randn(2, 4, 5, 6), frozen.weight, None, *arguments, packed, False)

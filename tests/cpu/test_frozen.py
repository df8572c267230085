"""freeze() on the CPU, with an op that computes from the packed copy: when copies are made and dropped."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from types import SimpleNamespace

import pytest
import torch
from cpu_kernels import RAN
from torch import nn
from torch.nn.utils import parametrizations, vector_to_parameters
from torch.optim.swa_utils import AveragedModel

import convt_ext
import convt_ext.dispatch.frozen
from convt_ext import ConvTranspose2d
from convt_ext.dispatch import planner
from convt_ext.environment import _torch

pytestmark = pytest.mark.usefixtures("cpu_is_gpu")


def layer(**named) -> ConvTranspose2d:
    return ConvTranspose2d(4, 6, 3, stride=2, **named).eval()


PACKS, PACKED = "forward_packing", "forward_packed"
X = torch.randn(2, 4, 5, 6)


@pytest.fixture
def frozen(packing):
    return convt_ext.freeze(layer(precision="tf32"))


@pytest.fixture
def plain(frozen):
    """Returns an equal layer that is not frozen."""
    other = layer(precision="tf32")
    other.load_state_dict(frozen.state_dict())
    return other


@torch.no_grad()
def ran(call, x=X) -> list[str]:
    RAN.clear()
    call(x)
    return list(RAN)


@torch.no_grad()
def check(frozen, plain, *calls) -> None:
    """Each call of an input runs the expected op, with the result of `plain`."""
    for x, expected in calls:
        assert ran(frozen, x) == [expected]
        assert torch.equal(frozen(x), plain(x))


def test_the_first_call_of_a_size_packs(frozen, plain):
    check(frozen, plain, (X, PACKS), (X, PACKED), (X[:1], PACKS), (X[0], PACKED))  # X[0]: without its batch
    assert ran(plain) == ["forward"]


@pytest.mark.parametrize("dims", [1, 3])
@torch.no_grad()
def test_one_and_three_dimensions(packing, dims):
    """With an epilogue, and cast by autocast, too."""
    packing["packed"] = 4 * 6 * 3**dims * 4
    kind = convt_ext.ConvTranspose1d if dims == 1 else convt_ext.ConvTranspose3d
    plain = kind(4, 6, 3, stride=2, precision="tf32").eval()
    frozen = convt_ext.freeze(copy.deepcopy(plain))
    x = torch.randn(2, 4, 5, *(6, 7)[: dims - 1])
    check(frozen, plain, (x, PACKS), (x, PACKED), (x[0], PACKS), (x[0], PACKED))
    model, expected = (convt_ext.convert(nn.Sequential(one, nn.ReLU()), fuse=True) for one in (frozen, plain))
    assert ran(model, x) == [PACKED, "steps"]
    assert torch.equal(model(x), expected(x))
    frozen.weight.mul_(2), plain.weight.mul_(2)
    check(frozen, plain, (x, PACKS), (x, PACKED))
    with torch.autocast("cpu", torch.bfloat16):
        frozen.precision = plain.precision = None
        assert torch.equal(frozen(x), plain(x))


def test_a_plan_that_packs_nothing_changes_nothing(packing):
    packing["packed"] = 0
    made = convt_ext.freeze(layer(precision="exact"))
    assert ran(made) == ran(made) == ["forward"]


def test_gradients_are_recorded_as_ever(frozen):
    ran(frozen)
    frozen(X).sum().backward()
    assert frozen.weight.grad is not None
    assert PACKED not in RAN[1:]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (lambda made: made.eval(), PACKED),
        (lambda made: made.train(), "forward"),
        (lambda made: made.share_memory(), "forward"),  # other processes may write it
        (lambda made: made.double().float(), "forward"),
        (lambda made: made.load_state_dict(made.state_dict()), "forward"),
        (lambda made: setattr(made, "weight", nn.Parameter(torch.randn(4, 6, 3, 3))), "forward"),
        (lambda made: nn.Sequential(made).train(), "forward"),
        (lambda made: nn.Sequential(made).to(torch.float64).float(), "forward"),
    ],
)
def test_events_that_unfreeze(frozen, event, expected):
    ran(frozen)
    event(frozen)
    assert ran(frozen) == [expected]


def test_copies_are_not_frozen(frozen):
    ran(frozen)
    for other in (copy.deepcopy(frozen), pickle.loads(pickle.dumps(frozen))):
        assert ran(other) == ["forward"]
    assert ran(frozen, torch.randn(9, 4, 5, 6)) == [PACKS]


def test_copies_with_a_parametrization_are_not_frozen(frozen):
    """parametrize's class copies every attribute, regardless of __getstate__."""
    assert ran(frozen) == [PACKS]
    computed = parametrizations.weight_norm(frozen)
    assert ran(computed) == ["forward"]
    other, expected = copy.deepcopy(computed), computed(X)
    assert ran(other) == ["forward"]
    assert torch.equal(other(X), expected)
    with pytest.raises(RuntimeError, match="state_dict"):  # as PyTorch's
        pickle.dumps(computed)
    torch.nn.utils.parametrize.remove_parametrizations(computed, "weight")
    torch.testing.assert_close(computed(X), expected)


def test_a_parametrization_is_computed_once_for_a_call(frozen):
    class Counted(nn.Module):
        calls = 0

        def forward(self, weight):
            self.calls += 1
            return weight * 2

    counted = Counted()
    torch.nn.utils.parametrize.register_parametrization(frozen, "weight", counted)
    counted.calls = 0
    ran(frozen)
    assert counted.calls == 1


def step(kind=torch.optim.SGD, **options):
    def write(made) -> None:
        optimizer = kind(made.parameters(), lr=0.5, **options)
        made.weight.grad, made.bias.grad = torch.randn_like(made.weight), torch.randn_like(made.bias)
        optimizer.step()

    return write


def average(made, **options) -> None:
    averaged = AveragedModel(made, **options)
    averaged.module.weight = made.weight  # the frozen module is the average
    averaged.n_averaged.fill_(1)
    averaged.update_parameters(layer(precision="tf32"))


def average_uncounted(made) -> None:
    """Averages as torch 2.11 does on a GPU: with one kernel for all parameters, which counts no write."""
    writes = made.weight._version
    average(made, multi_avg_fn=lambda mine, theirs, number: [one.data.mul_(2) for one in mine])
    assert made.weight._version == writes


def assign_twice(made) -> None:
    """Assigns other memory, and then memory that may have the first address, unless the first is kept alive."""
    for _ in range(8):
        made.weight.data = torch.randn_like(made.weight)


WRITES = {
    "optimizer": step(),
    "foreach": step(foreach=True),
    "fused": step(torch.optim.AdamW, fused=True),
    "mul_": lambda made: made.weight.mul_(2),
    "inference_mode": torch.inference_mode()(lambda made: made.weight.mul_(2)),
    "index": lambda made: made.weight[1].copy_(torch.ones(6, 3, 3)),
    "view": lambda made: made.weight.view(-1)[3:5].zero_(),
    "average": average,
    "average_uncounted": average_uncounted,
    "vector_to_parameters": lambda made: vector_to_parameters(torch.randn(4 * 6 * 9 + 6), made.parameters()),
    "data": lambda made: setattr(made.weight, "data", torch.randn_like(made.weight)),
    "data_channels_last": lambda made: setattr(
        made.weight, "data", torch.randn(4, 6, 3, 3).to(memory_format=torch.channels_last)
    ),
    "data_twice": assign_twice,
    "swap_tensors": lambda made: torch.utils.swap_tensors(made.weight, nn.Parameter(torch.randn_like(made.weight))),
    "init": lambda made: nn.init.normal_(made.weight),
    "reset_parameters": lambda made: made.reset_parameters(),
}


@pytest.mark.parametrize("write", WRITES)
@torch.no_grad()
def test_a_written_weight_is_never_stale(frozen, plain, write):
    """The next call packs the weight again, and the call after that uses the copy."""
    check(frozen, plain, (X, PACKS), (X, PACKED))
    before = frozen.weight.clone()
    WRITES[write](frozen)
    assert not torch.equal(frozen.weight, before)
    plain.load_state_dict(frozen.state_dict())
    check(frozen, plain, (X, PACKS), (X, PACKED))


def test_a_weight_with_other_strides_is_another(frozen, plain):
    """Memory, version and shape are equal, but the copy would have another order of axes."""
    ran(frozen)
    memory = frozen.weight.data
    frozen.weight.data = memory.view(-1).as_strided((4, 6, 3, 3), (54, 1, 18, 6))
    assert frozen.weight.data_ptr() == memory.data_ptr()
    plain.load_state_dict(frozen.state_dict())
    check(frozen, plain, (X, PACKS))


def test_an_input_with_other_strides_has_its_own_copy(frozen, plain):
    """The plan depends on strides: for equal sizes another kernel may run, which packs differently."""
    exchanged = X.transpose(2, 3).contiguous().transpose(2, 3)
    check(frozen, plain, (X, PACKS), (exchanged, PACKS), (X, PACKED), (exchanged, PACKED))


def test_a_bias_that_comes_or_goes_has_its_own_copy(frozen, plain, monkeypatch):
    """The plan depends on the presence of a bias."""
    asked, real = [], planner.best_plan
    monkeypatch.setattr(planner, "best_plan", lambda problem, **_: asked.append(problem.has_bias) or real(problem))
    bias = frozen.bias
    for one, expected in ((bias, PACKS), (None, PACKS), (bias, PACKED), (None, PACKED)):
        frozen.bias = plain.bias = one
        check(frozen, plain, (X, expected))
    assert asked == [True, False]


@pytest.fixture
def gpu(monkeypatch):
    """Makes CPU tensors report a GPU; a test sets its current stream and capture."""
    state = {"stream": 7, "capturing": False}
    monkeypatch.setattr(torch.Tensor, "is_cuda", True, raising=False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: state["capturing"])
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=state["stream"]))
    monkeypatch.setattr(_torch, "current_raw_stream", lambda index: state["stream"])
    return state


def test_another_stream_that_reads_a_copy_is_told_to_the_allocator(frozen, gpu, monkeypatch):
    told = []
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: told.append(stream.cuda_stream))
    for stream, expected in ((7, []), (7, []), (8, [8]), (7, [8])):
        gpu["stream"] = stream
        ran(frozen)
        assert told == expected


@pytest.mark.parametrize("swaps", [False, True])
def test_copies_in_a_graph_live_as_long_as_the_weights_memory(packing, gpu, monkeypatch, swaps):
    """Each copy is kept once, for any captured calls, and is freed without further action."""
    holds, keep = [], convt_ext.dispatch.frozen._keep_as_long_as
    monkeypatch.setattr(convt_ext.dispatch.frozen, "_keep_as_long_as", lambda *args: holds.append(1) or keep(*args))
    made = convt_ext.freeze(layer(precision="tf32"))
    assert ran(made) == ran(made, X[:1]) == [PACKS]
    copies = [weakref.ref(copy.memory) for copy in made._frozen._copies.values()]
    assert holds == []
    gpu["capturing"] = True
    assert ran(made, torch.randn(3, 4, 5, 6)) == ["forward"]  # nothing was packed before
    for _ in range(2):
        assert ran(made) == [PACKED]
        assert holds == [1]
    memory = made.weight.data
    if swaps:
        torch.utils.swap_tensors(made.weight, nn.Parameter(torch.randn_like(made.weight)))
    del made
    gc.collect()
    assert [one() is not None for one in copies] == [True, False]
    assert memory.shape == (4, 6, 3, 3)
    del memory
    gc.collect()
    assert [one() is not None for one in copies] == [False, False]


@pytest.mark.parametrize(("more", "calls"), [(0, [PACKS, PACKED]), (1, ["forward", "forward"])])
def test_the_largest_copy_that_is_kept(packing, frozen, more, calls):
    """Kernels round up the channels of each group: a copy of many small groups would be far larger than the weight."""
    packing["packed"] = 4 * frozen.weight.nbytes + (4 << 20) + more
    assert ran(frozen) + ran(frozen) == calls


def test_other_buffers_say_nothing_about_the_weight(frozen):
    """The buffer that counts averages is identified by its name and its module."""
    averaged = AveragedModel(layer())
    assert ran(frozen) == [PACKS]
    nn.Module().register_buffer("n_averaged", torch.zeros(()))
    averaged.register_buffer("another", torch.zeros(()))
    assert ran(frozen) == [PACKED]


@torch.no_grad()
def test_memory_that_is_missing_ends_in_the_ordinary_call(frozen, monkeypatch):
    def no_memory(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 8.00 GiB.")

    monkeypatch.setattr("convt_ext.dispatch.ops.run_forward_packed", no_memory)
    assert ran(frozen) == ["forward"]


def test_only_some_copies_are_kept(frozen):
    for size in range(1, 12):
        ran(frozen, torch.randn(1, 4, size, 6))
    assert ran(frozen, torch.randn(1, 4, 11, 6)) == [PACKED]
    assert ran(frozen, torch.randn(1, 4, 4, 6)) == [PACKED]
    assert ran(frozen, torch.randn(1, 4, 3, 6)) == [PACKS]


def test_an_input_between_vectors_has_no_part_in_copies(frozen, plain):
    """Shape and strides are equal, but a kernel with vector loads cannot run, and nothing is packed."""
    memory = torch.randn(2 * 4 * 5 * 6 + 1)
    between, on_vectors = (memory[at : at + 240].view(2, 4, 5, 6) for at in (1, 0))
    assert on_vectors.data_ptr() % 16 == 0
    check(frozen, plain, (between, "forward"), (on_vectors, PACKS), (between, "forward"))


def test_errors_state_the_requirement():
    with torch.inference_mode():
        without_version_counter = layer()
    for model, words in (
        (without_version_counter, "inference_mode"),
        (ConvTranspose2d(4, 6, 3), r"call eval\(\) first"),
        (parametrizations.weight_norm(layer()), "parametrization"),
        (nn.Sequential(nn.ConvTranspose2d(4, 6, 3)), r"no layer of convt_ext: call convt_ext.convert"),
    ):
        with pytest.raises(RuntimeError, match=words):
            convt_ext.freeze(model)
    for function in (convt_ext.freeze, convt_ext.unfreeze):
        with pytest.raises(TypeError, match=r"expects a torch\.nn\.Module, but got list"):
            function([layer()])


def test_a_model_is_frozen_as_a_whole_or_not_at_all():
    model = nn.Sequential(ConvTranspose2d(4, 6, 3), nn.ReLU(), ConvTranspose2d(6, 2, 3)).eval()
    assert convt_ext.freeze(model) is model
    assert all(model[index]._frozen is not None for index in (0, 2))
    assert convt_ext.unfreeze(model) is model
    assert all(model[index]._frozen is None for index in (0, 2))
    model[2].train()
    with pytest.raises(RuntimeError, match=r"freeze cannot freeze 2: it is in training mode"):
        convt_ext.freeze(model)
    assert model[0]._frozen is None

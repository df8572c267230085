"""freeze() on the CPU, with an op that computes from the packed copy: when copies are made and dropped."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import pytest
import torch
from cpu_kernels import RAN, cpu_is_gpu
from torch import nn
from torch.nn.utils import parametrizations, vector_to_parameters
from torch.optim.swa_utils import AveragedModel

import convt_ext
import convt_ext.frozen
from convt_ext import ConvTranspose2d, _torch, planner

pytestmark = pytest.mark.usefixtures("cpu_is_gpu")
__all__ = ["cpu_is_gpu"]


def layer(**named) -> ConvTranspose2d:
    return ConvTranspose2d(4, 6, 3, stride=2, **named).eval()


@pytest.fixture
def packing(monkeypatch):
    """Makes all plans pack the float32 weight of `layer`."""
    bytes_of = {"packed": 4 * 6 * 9 * 4}
    monkeypatch.setattr(planner, "best_plan", lambda *_, **__: planner.BestPlan(1.0, 0.0, bytes_of["packed"]))
    return bytes_of


@pytest.fixture
def frozen(packing):
    made = layer(precision="tf32")
    convt_ext.freeze(made)
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
    packing["packed"] = 0
    made = layer(precision="exact")
    convt_ext.freeze(made)
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
def test_events_that_unfreeze(frozen, end):
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


def test_copies_with_a_parametrization_are_not_frozen(frozen):
    """parametrize's class copies every attribute, regardless of __getstate__."""
    assert ran(frozen) == ["forward_packing"]
    computed = parametrizations.weight_norm(frozen)
    assert ran(computed) == ["forward"]
    other = copy.deepcopy(computed)
    x = torch.randn(2, 4, 5, 6)
    expected = computed(x)
    assert other._frozen is None
    assert torch.equal(other(x), expected)
    with pytest.raises(RuntimeError, match="state_dict"):  # as PyTorch's
        pickle.dumps(computed)
    torch.nn.utils.parametrize.remove_parametrizations(computed, "weight")
    torch.testing.assert_close(computed(x), expected)


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


@torch.no_grad()
def test_memory_that_other_processes_share_is_packed_anew(frozen):
    x = torch.randn(2, 4, 5, 6)
    ran(frozen, x)
    assert frozen.share_memory() is frozen
    assert ran(frozen, x) == ["forward"]


def written(frozen, write) -> None:
    """After `write` changes the weight, the next call packs it again, and the call after that uses the copy."""
    x, plain = torch.randn(2, 4, 5, 6), layer(precision="tf32")
    assert ran(frozen, x) == ["forward_packing"]
    assert ran(frozen, x) == ["forward_packed"]
    before = frozen.weight.detach().clone()
    write(frozen)
    assert not torch.equal(frozen.weight, before)
    plain.load_state_dict(frozen.state_dict())
    expected = plain(x)
    RAN.clear()
    with torch.no_grad():
        results = [frozen(x), frozen(x)]
    assert RAN == ["forward_packing", "forward_packed"]
    for result in results:
        assert torch.equal(result, expected)


def step(made, kind=torch.optim.SGD, **options) -> None:
    optimizer = kind(made.parameters(), lr=0.5, **options)
    made.weight.grad, made.bias.grad = torch.randn_like(made.weight), torch.randn_like(made.bias)
    optimizer.step()


@torch.no_grad()
def average(made) -> None:
    averaged = AveragedModel(made)
    averaged.module.weight = made.weight  # the frozen module is the average
    averaged.n_averaged.fill_(1)
    averaged.update_parameters(layer(precision="tf32"))


@torch.no_grad()
def average_uncounted(made) -> None:
    """Averages as torch 2.11 does on a GPU: with one kernel for all parameters, which counts no write."""
    averaged = AveragedModel(made, multi_avg_fn=lambda mine, theirs, number: [one.data.mul_(2) for one in mine])
    averaged.module.weight = made.weight
    averaged.n_averaged.fill_(1)
    writes = made.weight._version
    averaged.update_parameters(layer(precision="tf32"))
    assert made.weight._version == writes


@torch.no_grad()
def swap(made) -> None:
    torch.utils.swap_tensors(made.weight, nn.Parameter(torch.randn_like(made.weight)))


@torch.no_grad()
def twice(made) -> None:
    """Assigns other memory, and then memory that may have the first address, unless the first is kept alive."""
    for _ in range(8):
        made.weight.data = torch.randn_like(made.weight)


@pytest.mark.parametrize(
    "write",
    [
        step,
        lambda made: step(made, foreach=True),
        lambda made: step(made, torch.optim.AdamW, fused=True),
        torch.no_grad()(lambda made: made.weight.mul_(2)),
        torch.inference_mode()(lambda made: made.weight.mul_(2)),
        torch.no_grad()(lambda made: made.weight[1].copy_(torch.ones(6, 3, 3))),
        torch.no_grad()(lambda made: made.weight.view(-1)[3:5].zero_()),
        average,
        average_uncounted,
        lambda made: vector_to_parameters(torch.randn(4 * 6 * 9 + 6), made.parameters()),
        lambda made: setattr(made.weight, "data", torch.randn_like(made.weight)),
        lambda made: setattr(made.weight, "data", torch.randn(4, 6, 3, 3).to(memory_format=torch.channels_last)),
        twice,
        swap,
        lambda made: nn.init.normal_(made.weight),
        lambda made: made.reset_parameters(),
    ],
    ids=[
        "optimizer", "foreach", "fused", "mul_", "inference_mode", "index", "view", "average", "average_uncounted",
        "vector_to_parameters", "data",
        "data_channels_last", "data_twice", "swap_tensors", "init", "reset_parameters",
    ],
)  # fmt: skip
def test_a_written_weight_is_never_stale(frozen, write):
    written(frozen, write)


@torch.no_grad()
def test_a_weight_with_other_strides_is_another(frozen):
    """Memory, version and shape are equal, but the copy would have another order of axes."""
    x = torch.randn(2, 4, 5, 6)
    ran(frozen, x)
    memory = frozen.weight.data
    frozen.weight.data = memory.view(-1).as_strided((4, 6, 3, 3), (54, 1, 18, 6))
    assert frozen.weight.data_ptr() == memory.data_ptr()
    plain = layer(precision="tf32")
    plain.load_state_dict(frozen.state_dict())
    assert ran(frozen, x) == ["forward_packing"]
    assert torch.equal(frozen(x), plain(x))


@torch.no_grad()
def test_an_input_with_other_strides_has_its_own_copy(frozen):
    """The plan depends on strides: for equal sizes another kernel may run, which packs differently."""
    x, plain = torch.randn(2, 4, 5, 6), layer(precision="tf32")
    plain.load_state_dict(frozen.state_dict())
    exchanged = x.transpose(2, 3).contiguous().transpose(2, 3)
    assert torch.equal(exchanged, x)
    for one, expected in ((x, "packing"), (exchanged, "packing"), (x, "packed"), (exchanged, "packed")):
        assert ran(frozen, one) == [f"forward_{expected}"]
        assert torch.equal(frozen(one), plain(one))


@torch.no_grad()
def test_a_bias_that_comes_or_goes_has_its_own_copy(frozen, monkeypatch):
    """The plan depends on the presence of a bias."""
    asked, real = [], planner.best_plan
    monkeypatch.setattr(planner, "best_plan", lambda problem, **_: asked.append(problem.has_bias) or real(problem))
    x, plain, bias = torch.randn(2, 4, 5, 6), layer(precision="tf32"), frozen.bias
    plain.load_state_dict(frozen.state_dict())
    for one, expected in ((bias, "packing"), (None, "packing"), (bias, "packed"), (None, "packed")):
        frozen.bias = plain.bias = one
        assert ran(frozen, x) == [f"forward_{expected}"]
        assert torch.equal(frozen(x), plain(x))
    assert asked == [True, False]


class Stream:
    """The methods of PyTorch's stream that the package uses."""

    def __init__(self, number: int) -> None:
        self.cuda_stream = number


@pytest.fixture
def gpu(monkeypatch):
    """Makes CPU tensors report a GPU; a test sets its current stream and capture."""
    state = {"stream": 7, "capturing": False}
    monkeypatch.setattr(torch.Tensor, "is_cuda", True, raising=False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: state["capturing"])
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream(state["stream"]))
    monkeypatch.setattr(_torch, "current_raw_stream", lambda index: state["stream"])
    return state


def test_another_stream_that_reads_a_copy_is_told_to_the_allocator(frozen, gpu, monkeypatch):
    told = []
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: told.append(stream.cuda_stream))
    x = torch.randn(2, 4, 5, 6)
    for stream, expected in ((7, []), (7, []), (8, [8]), (7, [8])):
        gpu["stream"] = stream
        ran(frozen, x)
        assert told == expected


@pytest.mark.parametrize("swaps", [False, True])
def test_copies_in_a_graph_live_as_long_as_the_weights_memory(packing, gpu, monkeypatch, swaps):
    """Each copy is kept once, for any captured calls, and is freed without further action."""
    xs, holds = (torch.randn(2, 4, 5, 6), torch.randn(1, 4, 5, 6)), []
    keep = convt_ext.frozen._keep_as_long_as
    monkeypatch.setattr(convt_ext.frozen, "_keep_as_long_as", lambda *args: holds.append(1) or keep(*args))
    made = layer(precision="tf32")
    convt_ext.freeze(made)
    for x in xs:
        assert ran(made, x) == ["forward_packing"]
    copies = [weakref.ref(copy.memory) for copy in made._frozen._copies.values()]
    assert holds == []
    gpu["capturing"] = True
    assert ran(made, torch.randn(3, 4, 5, 6)) == ["forward"]  # nothing was packed before
    for x, count in ((xs[0], 1), (xs[0], 1)):
        assert ran(made, x) == ["forward_packed"]
        assert len(holds) == count
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


@pytest.mark.parametrize(("more", "calls"), [(0, ["forward_packing", "forward_packed"]), (1, ["forward", "forward"])])
def test_the_largest_copy_that_is_kept(packing, frozen, more, calls):
    """Kernels round up the channels of each group: a copy of many small groups would be far larger than the weight."""
    packing["packed"] = 4 * frozen.weight.nbytes + (4 << 20) + more
    assert ran(frozen) + ran(frozen) == calls


def test_other_buffers_say_nothing_about_the_weight(frozen):
    """The buffer that counts averages is identified by its name and its module."""
    averaged = AveragedModel(layer())
    assert ran(frozen) == ["forward_packing"]
    nn.Module().register_buffer("n_averaged", torch.zeros(()))
    averaged.register_buffer("another", torch.zeros(()))
    assert ran(frozen) == ["forward_packed"]


@torch.no_grad()
def test_memory_that_is_missing_ends_in_the_ordinary_call(frozen, monkeypatch):
    def no_memory(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 8.00 GiB.")

    monkeypatch.setattr("convt_ext.ops.run_forward_packed", no_memory)
    assert ran(frozen) == ["forward"]


def test_a_weight_without_a_version_counter_is_rejected():
    with torch.inference_mode():
        made = layer()
    with pytest.raises(RuntimeError, match="inference_mode"):
        convt_ext.freeze(made)


def test_only_some_copies_are_kept(frozen):
    for size in range(1, 12):
        ran(frozen, torch.randn(1, 4, size, 6))
    assert len(frozen._frozen._copies) == 8
    assert ran(frozen, torch.randn(1, 4, 11, 6)) == ["forward_packed"]
    assert ran(frozen, torch.randn(1, 4, 1, 6)) == ["forward_packing"]


@torch.no_grad()
def test_an_input_between_vectors_has_no_part_in_copies(frozen):
    """Shape and strides are equal, but a kernel with vector loads cannot run, and nothing is packed."""
    memory, plain = torch.randn(2 * 4 * 5 * 6 + 1), layer(precision="tf32")
    plain.load_state_dict(frozen.state_dict())
    between, on_vectors = (memory[at : at + 240].view(2, 4, 5, 6) for at in (1, 0))
    assert on_vectors.data_ptr() % 16 == 0
    for x, expected in ((between, "forward"), (on_vectors, "forward_packing"), (between, "forward")):
        assert ran(frozen, x) == [expected]
        assert torch.equal(frozen(x), plain(x))


def test_errors_state_the_requirement():
    with pytest.raises(RuntimeError, match=r"call eval\(\) first"):
        convt_ext.freeze(ConvTranspose2d(4, 6, 3))
    computed = parametrizations.weight_norm(layer())
    with pytest.raises(RuntimeError, match="parametrization"):
        convt_ext.freeze(computed)
    with pytest.raises(RuntimeError, match=r"no convt_ext.ConvTranspose2d: call convt_ext.convert"):
        convt_ext.freeze(nn.Sequential(nn.ConvTranspose2d(4, 6, 3)))
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

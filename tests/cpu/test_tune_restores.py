"""State that `tune` restores: gradients, buffers, random numbers, files, earlier choices. Benchmarks are fake."""

from __future__ import annotations

import contextlib
import os

import pytest
import torch
from served import switch
from torch import nn
from torch.utils.checkpoint import checkpoint

import convt_ext
from convt_ext.dispatch import planner, routing
from convt_ext.tuning import benchmark, choices, files, tune
from convt_ext.tuning.choices import FORWARD, GRAD_INPUT, GRAD_WEIGHT

pytestmark = pytest.mark.usefixtures("cpu_is_gpu")

HERE = files.Environment("NVIDIA H200", tuple(planner.H200), "", "13.0", "2.11.0", 91900, "580.95.05")


@pytest.fixture(autouse=True)
def benchmarked(monkeypatch, fake_benchmark):
    """Records the benchmarked directions."""
    monkeypatch.setattr(files, "_chosen", ("", {}))
    monkeypatch.setattr(files, "here", lambda device: HERE)
    choices.forget_measured()
    yield fake_benchmark
    choices.forget_measured()


class Block(nn.Module):
    """A block with statistics, a random number, a buffer that is replaced and a buffer that the first call adds."""

    def __init__(self, is_broken=False, reentrant=None) -> None:
        super().__init__()
        self.up = convt_ext.ConvTranspose2d(4, 6, 3)
        self.norm = nn.BatchNorm2d(6)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("nothing", None)
        self.is_broken, self.reentrant = is_broken, reentrant

    def body(self, x):
        return nn.functional.dropout(self.norm(self.up(x)))

    def forward(self, x, scale=1.0):
        self.calls = self.calls + 1
        self.register_buffer("seen", torch.ones(()))
        result = self.body(x) if self.reentrant is None else checkpoint(self.body, x, use_reentrant=self.reentrant)
        if self.is_broken:
            raise LookupError("broken")
        return {"result": result * scale, "other": 1}


def state_of(module):
    named = [*module.named_buffers(), *module.named_parameters()]
    gradients = {name: parameter.grad for name, parameter in module.named_parameters()}
    return dict(named), [tensor.clone() for _, tensor in named], gradients


@contextlib.contextmanager
def nothing_changes(module, *tensors):
    """Checks that tensors and their values, gradients, random numbers and modes do not change."""
    before, values, gradients = state_of(module)
    contents = [None if one is None else one.clone() for one in gradients.values()]
    of_tensors = [tensor.grad for tensor in tensors]
    random, grad_mode = torch.get_rng_state(), torch.is_grad_enabled()
    flags = [one.training for one in module.modules()]
    yield
    after, values_after, gradients_after = state_of(module)
    assert list(before) == list(after)
    assert all(before[name] is after[name] for name in before)
    assert all(torch.equal(one, other) for one, other in zip(values, values_after, strict=True))
    for one, other, content in zip(gradients.values(), gradients_after.values(), contents, strict=True):
        assert one is other
        assert one is None or torch.equal(one, content)
    assert all(tensor.grad is one for tensor, one in zip(tensors, of_tensors, strict=True))
    assert torch.equal(random, torch.get_rng_state())
    assert torch.is_grad_enabled() == grad_mode
    assert [one.training for one in module.modules()] == flags
    assert benchmark._forced is None
    assert not nn.modules.module._has_any_global_hook()


def operand():
    return torch.randn(2, 4, 5, 6, requires_grad=True)


@pytest.mark.parametrize("reentrant", [None, False, True])
@pytest.mark.parametrize("has_gradients", [True, False])
@pytest.mark.parametrize("is_function", [True, False])
def test_gradients_buffers_and_random_numbers(benchmarked, is_function, has_gradients, reentrant):
    module, x = Block(reentrant=reentrant), operand()
    if has_gradients:
        for tensor in (x, *module.parameters()):
            tensor.grad = torch.ones_like(tensor)
    with nothing_changes(module, x):
        tune((lambda x: module(x)) if is_function else module, x)
    assert sorted(set(benchmarked)) == [FORWARD, GRAD_INPUT, GRAD_WEIGHT]


@pytest.mark.parametrize("is_function", [True, False])
def test_a_target_that_raises(benchmarked, is_function):
    module, x = Block(is_broken=True), operand()
    with nothing_changes(module, x), pytest.raises(LookupError, match="broken"):
        tune((lambda x: module(x)) if is_function else module, x)
    assert benchmarked
    assert choices.measured() == []


def test_a_backward_that_raises():
    module, x = Block(), operand()

    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise LookupError("broken")

    with nothing_changes(module, x), pytest.raises(LookupError, match="broken"):
        tune(lambda x: module(Broken.apply(x)), x)


def test_the_graph_of_an_input_stays():
    x = operand()
    hidden = x.exp()
    tune(convt_ext.ConvTranspose2d(4, 6, 3), hidden)
    assert hidden.is_leaf is False
    hidden.sum().backward()
    assert x.grad is not None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("make", "restores"),
    [
        (lambda layer: torch.compile(lambda x: layer(x), backend="aot_eager", fullgraph=True), lambda *made: made[0]),
        (lambda layer: nn.Sequential(layer, torch.jit.script(nn.BatchNorm2d(6))), lambda *made: made[1]),
        (lambda layer: nn.Sequential(layer, nn.LazyBatchNorm2d()), lambda *made: made[0]),
    ],
    ids=["compiled", "scripted", "lazy"],
)
def test_targets_of_other_kinds(benchmarked, make, restores):
    """For example, hooks on the modules of a compiled function must not break its graph."""
    layer, x = convt_ext.ConvTranspose2d(4, 6, 3), operand()
    target = make(layer)
    with nothing_changes(restores(layer, target), x):
        tune(lambda x: target(x), x)
    assert set(benchmarked) == {FORWARD, GRAD_INPUT, GRAD_WEIGHT}


def test_keyword_arguments(benchmarked):
    module, x = Block(), operand()
    with nothing_changes(module, x):
        found = tune(module, x=x, scale=2.0)
        assert found == tune(module, x, scale=torch.tensor(2.0), backward=True)
    with pytest.raises(TypeError, match="unknown"):
        tune(module, x, unknown=1)


def test_earlier_measurements_are_kept(benchmarked):
    other = convt_ext.ConvTranspose2d(3, 2, 1)
    with switch(torch.backends.cudnn, "benchmark", True), torch.no_grad():
        earlier = benchmark.force(True)
        other(torch.randn(1, 3, 4, 4))
        benchmark.force(earlier)
    (known,) = choices.measured()
    with pytest.raises(LookupError):
        tune(Block(is_broken=True), operand())
    assert choices.measured() == [known]
    tune(Block(), operand())
    assert known in choices.measured()
    assert len(choices.measured()) == 4
    routing.forget()


@pytest.mark.parametrize("kind", ["missing", "folder", "read-only", "other content"])
def test_a_file_that_cannot_be_written_is_noticed_first(benchmarked, tmp_path, monkeypatch, kind):
    path = tmp_path / "tuning.json"
    if kind == "missing":
        path = tmp_path / "no" / "tuning.json"
    elif kind == "folder":
        path.mkdir()
    elif kind == "read-only":
        real = os.open
        files.write(path, {})

        def refuse(name, flags, *others, **named):
            if flags & (os.O_WRONLY | os.O_RDWR):
                raise PermissionError(13, "Permission denied", name)
            return real(name, flags, *others, **named)

        monkeypatch.setattr(os, "open", refuse)
    else:
        path.write_text("something of the user's")
    before = sorted(tmp_path.iterdir()), path.read_text() if path.is_file() else None
    module, x = Block(), operand()
    with nothing_changes(module), pytest.raises((OSError, ValueError), match="tuning"):
        tune(module, x, file=path)
    monkeypatch.undo()
    assert benchmarked == []
    assert (sorted(tmp_path.iterdir()), path.read_text() if path.is_file() else None) == before


def test_entries_that_were_added_while_measuring_stay(tmp_path):
    path = tmp_path / "tuning.json"
    files.write(path, {})
    module, entry = convt_ext.ConvTranspose2d(4, 6, 3), files.Entry("kernel", {}, 1.0, 2.0)

    def target(x):
        files.write(path, {HERE: {"of another process": entry}})
        return module(x)

    found = tune(target, operand(), file=path)
    assert files.read(path) == files.merged((found, {HERE: {"of another process": entry}}))

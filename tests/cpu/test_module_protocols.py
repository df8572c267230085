"""PyTorch's operations on modules: copies, pickles, replicas, and replacement of registered modules."""

from __future__ import annotations

import copy
import io
import pickle
import threading

import pytest
import torch
import torch.nn.functional as F
from cpu_kernels import CODES
from torch import nn

import convt_ext
from convt_ext import ConvTranspose1d, ConvTranspose2d, convert, use_precision
from convt_ext.dispatch.precision import CODES as CODE_OF


def stored(module):
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


COPIERS = {"deepcopy": copy.deepcopy, "pickle": lambda module: pickle.loads(pickle.dumps(module)), "torch.save": stored}


@torch.no_grad()
@pytest.mark.parametrize("copier", COPIERS)
def test_a_copy_of_a_compiled_module_has_its_own_weights(copier):
    layer = ConvTranspose2d(4, 6, 3)
    layer.compile(backend="eager")
    x = torch.randn(1, 4, 3, 3)
    layer(x)
    other = COPIERS[copier](layer)
    assert other._compiled_call_impl is None
    other.weight.zero_()
    other.bias.zero_()
    assert torch.equal(other(x), torch.zeros(1, 6, 5, 5))
    assert not torch.equal(layer(x), torch.zeros(1, 6, 5, 5))


@pytest.mark.parametrize("copier", COPIERS)
@pytest.mark.parametrize("kind", [ConvTranspose1d, ConvTranspose2d])
def test_copies(copier, kind):
    layer = kind(4, 6, 3, stride=2, precision="aten").eval()
    other = COPIERS[copier](layer)
    assert type(other) is kind
    assert (other.precision, other.training) == ("aten", False)
    x = torch.randn(1, 4, 3, 3) if kind is ConvTranspose2d else torch.randn(1, 4, 3)
    assert torch.equal(other(x), layer(x))


def test_swapped_parameters_take_part():
    layer = ConvTranspose2d(4, 6, 3)
    x = torch.randn(2, 4, 5, 6)
    torch.utils.swap_tensors(layer.weight, nn.Parameter(torch.randn(4, 6, 3, 3)))
    torch.testing.assert_close(layer(x), F.conv_transpose2d(x, layer.weight, layer.bias))
    assert layer.share_memory() is layer
    assert layer.weight.is_shared()
    torch.testing.assert_close(layer(x), F.conv_transpose2d(x, layer.weight, layer.bias))


# nn.DataParallel: `replicate` makes replicas in the caller's thread, `parallel_apply` calls them in threads.


def replica_of(module):
    """Replicates as torch.nn.parallel.replicate does, which supports only GPUs."""
    replicas = {one: one._replicate_for_data_parallel() for one in module.modules()}
    for original, replica in replicas.items():
        for name, child in original._modules.items():
            setattr(replica, name, replicas[child])
        for name, parameter in original._parameters.items():
            setattr(replica, name, None if parameter is None else parameter.detach() * 2)
    return replicas[module]


def in_thread(call):
    found = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    return found[0]


def codes(replica, x=None):
    """Returns the precisions of the calls of a replica in another thread."""
    CODES.clear()
    with torch.no_grad():
        in_thread(lambda: replica(torch.randn(2, 4, 5, 6) if x is None else x))
    return CODES[:]


@pytest.mark.parametrize("fuse", [False, True])
def test_the_precision_of_a_replica_is_that_of_the_caller(cpu_is_gpu, fuse):
    model = convert(nn.Sequential(nn.ConvTranspose2d(4, 6, 3), nn.ReLU()), fuse=fuse).eval()
    with use_precision("aten"):
        inside = replica_of(model)
        of_replica = in_thread(lambda: replica_of(inside))
    compiled = torch.compile(lambda x: inside(x), backend="eager", fullgraph=True)
    for replica in (inside, of_replica, compiled):
        assert codes(replica) == [CODE_OF["aten"]]
    assert codes(replica_of(model)) == [CODE_OF["ieee"]]
    with use_precision("aten"), use_precision(None):
        assert codes(replica_of(model)) == [CODE_OF["ieee"]]


class InScope(nn.Module):
    def __init__(self, precision):
        super().__init__()
        self.up, self.precision = ConvTranspose2d(4, 6, 3), precision

    def forward(self, x):
        with use_precision(self.precision):
            return self.up(x)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (lambda: ConvTranspose2d(4, 6, 3, precision="tf32x3"), "tf32x3"),
        (lambda: InScope("tf32"), "tf32"),
        (lambda: InScope(None), "ieee"),
    ],
    ids=["its own", "a scope in the thread", "an empty scope in the thread"],
)
def test_a_precision_that_comes_before_that_of_the_caller(cpu_is_gpu, model, expected):
    with use_precision("aten"):
        replica = replica_of(model())
    assert codes(replica) == [CODE_OF[expected]]


def test_a_precision_of_another_dtype_is_ignored_in_flags(cpu_is_gpu):
    """Unlike a keyword, which would be an error."""
    with use_precision("tf32"):
        replica = replica_of(ConvTranspose2d(4, 6, 3, dtype=torch.float64))
    assert codes(replica, torch.randn(2, 4, 5, 6, dtype=torch.float64)) == [CODE_OF["ieee"]]


def test_a_replica_is_not_frozen():
    layer = convt_ext.freeze(ConvTranspose2d(4, 6, 3).eval())
    assert layer._replicate_for_data_parallel()._frozen is None
    assert layer._frozen is not None

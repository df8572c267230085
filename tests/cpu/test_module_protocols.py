"""PyTorch's operations on modules: copies, pickles, replicas, and replacement of registered modules."""

from __future__ import annotations

import copy
import io
import pickle
import threading

import pytest
import torch
import torch.nn.functional as F
from cpu_kernels import CODES, cpu_is_gpu
from torch import nn

import convt_ext
from convt_ext import ConvTranspose2d, convert, use_precision
from convt_ext.precision import CODES as CODE_OF

__all__ = ["cpu_is_gpu"]


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


def test_swapped_parameters_take_part():
    layer = ConvTranspose2d(4, 6, 3)
    x = torch.randn(2, 4, 5, 6)
    torch.utils.swap_tensors(layer.weight, nn.Parameter(torch.randn(4, 6, 3, 3)))
    torch.testing.assert_close(layer(x), F.conv_transpose2d(x, layer.weight, layer.bias))
    layer.share_memory()
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


@pytest.mark.usefixtures("cpu_is_gpu")
class TestPrecisionOfReplicas:
    def codes(self, replica, x):
        CODES.clear()
        with torch.no_grad():
            in_thread(lambda: replica(x))
        return CODES[:]

    @pytest.mark.parametrize("fuse", [False, True])
    def test_it_is_that_of_the_caller(self, fuse):
        model = convert(nn.Sequential(nn.ConvTranspose2d(4, 6, 3), nn.ReLU()), fuse=fuse).eval()
        x = torch.randn(2, 4, 5, 6)
        with use_precision("aten"):
            inside = replica_of(model)
            of_replica = in_thread(lambda: replica_of(inside))
        for replica in (inside, of_replica):
            assert self.codes(replica, x) == [CODE_OF["aten"]]
        assert self.codes(replica_of(model), x) == [CODE_OF["ieee"]]
        with use_precision("aten"), use_precision(None):
            assert self.codes(replica_of(model), x) == [CODE_OF["ieee"]]

    def test_a_precision_of_its_own_comes_first(self):
        x = torch.randn(2, 4, 5, 6)
        layer = ConvTranspose2d(4, 6, 3, precision="tf32x3")
        with use_precision("aten"):
            replica = replica_of(layer)
        assert self.codes(replica, x) == [CODE_OF["tf32x3"]]

    @pytest.mark.parametrize(("inner", "expected"), [("tf32", "tf32"), (None, "ieee")])
    def test_a_scope_within_the_thread_comes_first(self, inner, expected):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.up = ConvTranspose2d(4, 6, 3)

            def forward(self, x):
                with use_precision(inner):
                    return self.up(x)

        with use_precision("aten"):
            replica = replica_of(Model())
        assert self.codes(replica, torch.randn(2, 4, 5, 6)) == [CODE_OF[expected]]

    def test_a_precision_of_another_dtype_is_ignored_in_flags(self):
        """Unlike a keyword, which would be an error."""
        layer = ConvTranspose2d(4, 6, 3, dtype=torch.float64)
        with use_precision("tf32"):
            replica = replica_of(layer)
        assert self.codes(replica, torch.randn(2, 4, 5, 6, dtype=torch.float64)) == [CODE_OF["ieee"]]

    def test_compiled_code_sees_it(self):
        with use_precision("aten"):
            replica = replica_of(ConvTranspose2d(4, 6, 3))
        compiled = torch.compile(lambda x: replica(x), backend="eager", fullgraph=True)
        assert self.codes(compiled, torch.randn(2, 4, 5, 6)) == [CODE_OF["aten"]]

    def test_a_replica_is_not_frozen(self):
        layer = ConvTranspose2d(4, 6, 3).eval()
        convt_ext.freeze(layer)
        assert layer._replicate_for_data_parallel()._frozen is None
        assert layer._frozen is not None


def test_calls_of_functions_begin_with_none(cpu_is_gpu):
    """The docstring promises it."""
    x, weight = torch.randn(2, 4, 5, 6), torch.randn(4, 6, 3, 3)
    with use_precision("aten"), torch.no_grad():
        in_thread(lambda: convt_ext.conv_transpose2d(x, weight))
    assert list(CODES) == [CODE_OF["ieee"]]

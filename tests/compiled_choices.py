"""Runs the pass over Inductor's graphs on small models, without compiling them."""

from __future__ import annotations

import pytest
import torch

import convt_ext
from convt_ext.compile import fusion, measure, mode, traced_epilogues, traced_ops
from convt_ext.compile.mode import BARE, FUSED, ORIGINAL

ALTERNATIVES = {
    traced_ops.forward: BARE, traced_epilogues.forward_then: FUSED, torch.conv_transpose2d: ORIGINAL,
    torch.conv_transpose3d: ORIGINAL,
}  # fmt: skip

X = torch.rand(2, 8, 5, 6, generator=torch.Generator().manual_seed(0))
VOLUME = torch.rand(2, 8, 3, 5, 6, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def from_scratch(monkeypatch):
    """Nothing is forced and nothing measured."""
    monkeypatch.setattr(mode, "MODE", mode.AUTO)
    monkeypatch.setattr(measure, "_known", {})
    torch._dynamo.reset()


def layer(c_in=8, c_out=6, **named):
    torch.manual_seed(0)
    return convt_ext.ConvTranspose2d(c_in, c_out, 4, 2, 1, **named)


def volume(c_in=8, c_out=6, **named):
    torch.manual_seed(0)
    return convt_ext.ConvTranspose3d(c_in, c_out, 4, 2, 1, **named)


def rewritten(function, *inputs, trains=False, **named):
    """The graph that the pass leaves of a function, which computes the same with it."""
    graphs = []

    def backend(gm, _):
        fusion.fuse(gm.graph)
        gm.graph.lint()
        gm.recompile()
        graphs.append(gm.graph)
        return gm.forward

    torch._dynamo.reset()
    with torch.set_grad_enabled(trains):
        found = torch.compile(function, backend=backend, fullgraph=True, **named)(*inputs)
        torch.testing.assert_close(found, function(*inputs), rtol=1e-4, atol=1e-5)
    (graph,) = graphs
    return graph


def alternatives(graph):
    """Returns the alternative of each transposed convolution, in order."""
    return [ALTERNATIVES[node.target] for node in graph.nodes if node.target in ALTERNATIVES]


def turns(graph):
    """Whether each of our ops asks for a network in channels_last."""
    ours = [node for node in graph.nodes if ALTERNATIVES.get(node.target) in (FUSED, BARE)]
    return [traced_ops.TURNS in traced_ops.flags_of(node.args[3]) for node in ours]

"""What stands for the list of an epilogue: iterators, None, malformed entries, and what torch.fx records of it."""

from __future__ import annotations

import weakref

import pytest
import torch
import torch.nn.functional as F
from cpu_kernels import cpu_is_gpu, needs_binary
from torch import nn

import convt_ext
from convt_ext import conv_transpose2d as ours
from convt_ext import epilogue as epilogues
from convt_ext import functional, routing

__all__ = ["cpu_is_gpu"]

# Made anew for each call: an iterator gives its entries once.
FORMS = {
    "list": lambda: [torch.relu, (torch.mul, 2)],
    "tuple": lambda: (torch.relu, (torch.mul, 2)),
    "iterator": lambda: iter([torch.relu, (torch.mul, 2)]),
    "generator": lambda: (one for one in (torch.relu, (torch.mul, 2))),
    "filter": lambda: filter(None, [torch.relu, (torch.mul, 2)]),
}

# What is no list, and lists with an entry that is none; the words name it, and its index.
NO_LISTS = {
    "function": (torch.relu, r"epilogue must be a list of steps, but got relu: write epilogue=\[\.\.\.\]"),
    "module": (nn.ReLU(), "epilogue must be a list of steps, but got ReLU"),
    "text": ("relu", "epilogue must be a list of steps, but got 'relu'"),
}
BAD_ENTRIES = {
    "unknown": ([torch.relu, torch.sin], ValueError, r"epilogue\[1\]: no kernel knows sin: .* on the result instead"),
    "unknown_module": ([nn.Softmax(1)], ValueError, r"epilogue\[0\]: no kernel knows Softmax"),
    "list_in_the_list": ([[torch.relu]], ValueError, r"epilogue\[0\]: no kernel knows \["),
    "no_tuple": ([(), torch.relu], ValueError, r"epilogue\[0\]: no kernel knows \(\)"),
    "tensor": ([torch.relu, torch.ones(9)], ValueError, r"epilogue\[1\]: no kernel knows a tensor of size \(9,\)"),
    "one_tuple_for_the_list": ((F.leaky_relu, 0.2), ValueError, r"epilogue\[1\]: no kernel knows 0\.2"),
    "module_in_a_tuple": ([(nn.ReLU(),)], ValueError, r"epilogue\[0\]: no kernel knows \(ReLU,\)"),
}
BAD_ARGUMENTS = {
    "operand_missing": ((torch.add, torch.ones(1)), r"epilogue\[0\]: add: missing .*epilogue=\[\(add, \.\.\.\)\]"),
    "text": ([torch.relu, (torch.mul, "2")], r"epilogue\[1\]: \(mul, '2'\): expected a number or a tensor, got str"),
    "too_many": ([(torch.add, torch.ones(2, 1), 3)], r"epilogue\[0\]: \(add, a tensor of size \(2, 1\), 3\): takes 1"),
    "slope": ([(F.prelu, 0.2)], r"epilogue\[0\]: \(prelu, 0\.2\): expected a tensor, got float"),
    "gelu": ([nn.GELU("exact")], r"epilogue\[0\]: GELU: approximate must be 'none' or 'tanh', but got 'exact'"),
}


@pytest.fixture(params=[pytest.param(True, marks=needs_binary, id="gpu"), pytest.param(False, id="cpu")])
def on_both(request):
    """The way of CPU tensors, and that of tensors on a GPU."""
    if request.param:
        request.getfixturevalue("cpu_is_gpu")
    else:
        routing.forget()


def operands(requires_grad=False):
    generator = torch.Generator().manual_seed(3)
    return [
        torch.randn(size, generator=generator).requires_grad_(requires_grad)
        for size in ((2, 4, 5, 6), (4, 6, 3, 3), (6,))
    ]


@pytest.mark.usefixtures("on_both")
class TestForms:
    @pytest.mark.parametrize("requires_grad", [False, True])
    @pytest.mark.parametrize("form", FORMS)
    def test_of_a_call(self, form, requires_grad):
        tensors = operands(requires_grad)
        expected = 2 * F.conv_transpose2d(*tensors).relu()
        torch.testing.assert_close(ours(*tensors, epilogue=FORMS[form]()), expected)
        compiled = torch.compile(
            lambda *tensors: ours(*tensors, epilogue=FORMS[form]()), backend="eager", fullgraph=form != "filter"
        )
        torch.testing.assert_close(compiled(*tensors), expected)

    @pytest.mark.parametrize("form", FORMS)
    def test_of_a_module(self, form):
        module = convt_ext.ConvTranspose2d(4, 6, 3, epilogue=FORMS[form]())
        x = operands()[0]
        expected = 2 * F.conv_transpose2d(x, module.weight, module.bias).relu()
        for _ in range(2):
            torch.testing.assert_close(module(x), expected)
        assert "epilogue=(relu, mul)" in repr(module)

    @pytest.mark.parametrize("nothing", [None, (), [], iter(())], ids=["none", "tuple", "list", "iterator"])
    def test_nothing(self, nothing):
        tensors = operands()
        torch.testing.assert_close(ours(*tensors, epilogue=nothing), F.conv_transpose2d(*tensors))
        module = convt_ext.ConvTranspose2d(4, 6, 3, epilogue=nothing)
        assert module.epilogue == ()
        assert module(tensors[0]).shape == (2, 6, 7, 8)

    def test_modules_in_a_container(self):
        module = convt_ext.ConvTranspose2d(4, 6, 3, epilogue=nn.Sequential(nn.ReLU(), nn.Tanh()))
        assert [type(one) for one in module.epilogue] == [nn.ReLU, nn.Tanh]

    @pytest.mark.parametrize("case", NO_LISTS)
    def test_no_list(self, case):
        wrong, words = NO_LISTS[case]
        with pytest.raises(TypeError, match=words):
            ours(*operands(), epilogue=wrong)
        with pytest.raises(TypeError, match=words):
            convt_ext.ConvTranspose2d(4, 6, 3, epilogue=wrong)

    @pytest.mark.parametrize("case", BAD_ENTRIES)
    def test_a_bad_entry(self, case):
        wrong, kind, words = BAD_ENTRIES[case]
        tensors = operands()
        with pytest.raises(kind, match=words):
            ours(*tensors, epilogue=wrong)
        with pytest.raises(kind, match=words):
            convt_ext.ConvTranspose2d(4, 6, 3, epilogue=wrong)
        with pytest.raises(kind, match=words):  # fullgraph would tell of Dynamo's failure instead
            torch.compile(lambda *tensors: ours(*tensors, epilogue=wrong), backend="eager")(*tensors)

    @pytest.mark.parametrize("case", BAD_ARGUMENTS)
    def test_bad_arguments(self, case):
        wrong, words = BAD_ARGUMENTS[case]
        with pytest.raises(TypeError, match=words):
            ours(*operands(), epilogue=wrong)
        with pytest.raises(TypeError, match=words):
            convt_ext.ConvTranspose2d(4, 6, 3, epilogue=wrong)


@needs_binary
def test_explain_takes_an_iterator():
    x, weight = torch.empty(8, 64, 32, 32, device="meta"), torch.empty(64, 64, 4, 4, device="meta")
    found = convt_ext.explain(x, weight, stride=2, precision="tf32", epilogue=iter([nn.SiLU(), (torch.mul, 2)]))
    assert found.epilogue.startswith("SiLU, mul: ")


def test_a_compiled_call_takes_numbers_that_change():
    compiled = torch.compile(
        lambda x, weight, factor: ours(x, weight, epilogue=[(torch.mul, factor)]),
        backend="eager", fullgraph=True, dynamic=True,
    )  # fmt: skip
    x, weight, _ = operands()
    for factor in (2.5, 3.5):
        torch.testing.assert_close(compiled(x, weight, factor), F.conv_transpose2d(x, weight) * factor)


# torch.fx: operands of the call and of its epilogue are proxies.


@pytest.mark.usefixtures("on_both")
class TestSymbolicTrace:
    def check(self, function, *arguments):
        traced = torch.fx.symbolic_trace(function)
        torch.testing.assert_close(traced(*arguments), function(*arguments))
        assert sum(node.target is ours for node in traced.graph.nodes) == 1
        return [node.target for node in traced.graph.nodes if node.op.startswith("call_")]

    def test_the_example_of_the_readme(self):
        def call(x, weight, bias, residual):
            return ours(x, weight, bias, stride=2, padding=1, epilogue=[(torch.add, residual), torch.relu])

        residual = torch.randn(2, 6, 9, 11)
        assert self.check(call, *operands(), residual) == [ours, torch.add, torch.relu]

    def test_proxies_in_the_epilogue_alone(self):
        tensors = operands()

        def call(low, slope):
            return epilogues.apply(ours(*tensors), [(torch.clamp, low, 1), (F.prelu, slope)])

        traced = torch.fx.symbolic_trace(
            lambda low, slope: ours(*tensors, epilogue=[(torch.clamp, low, 1), (F.prelu, slope)])
        )
        torch.testing.assert_close(traced(-0.5, torch.full((1,), 0.3)), call(-0.5, torch.full((1,), 0.3)))

    def test_entries_are_checked_all_the_same(self):
        def call(x, weight, other):
            return ours(x, weight, epilogue=[(torch.add, other), torch.sin])

        with pytest.raises(ValueError, match=r"epilogue\[1\]: no kernel knows sin"):
            torch.fx.symbolic_trace(call)

    @pytest.mark.parametrize("entry", [nn.PReLU(), nn.PReLU(6), nn.GELU()], ids=["prelu", "prelu_6", "gelu"])
    def test_modules(self, entry):
        """Those of the traced model stay modules of it, so that they train; of others their functions are recorded."""
        x = operands()[0]

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.up = convt_ext.ConvTranspose2d(4, 6, 3, epilogue=[entry, (torch.mul, 2)])

            def forward(self, x):
                return self.up(x)

        model = Model()
        assert self.check(model, x) == [ours, "up.epilogue_modules.0", torch.mul]
        assert list(torch.fx.symbolic_trace(model).state_dict()) == list(model.state_dict())

    def test_a_module_that_the_model_does_not_contain(self):
        x, weight, _ = operands()
        assert self.check(lambda x, weight: ours(x, weight, epilogue=[nn.SiLU()]), x, weight) == [ours, F.silu]


def test_steps_by_pytorchs_functions_hold_no_more_than_two_results(monkeypatch):
    """As PyTorch's own functions one after the other, which fit where three results do not."""
    convolve, seen = functional._torchs_or_a_tools, []

    def convolve_and_watch(*arguments):
        found = convolve(*arguments)
        seen.append(weakref.ref(found))
        return found

    def second_step(self, input):
        seen.append(seen.pop()() is not None)
        return F.relu(input)

    monkeypatch.setattr(functional, "_torchs_or_a_tools", convolve_and_watch)
    monkeypatch.setattr(nn.ReLU, "forward", second_step)
    x, weight, _ = operands()
    entries = [(torch.mul, 2.0), nn.ReLU()]
    model = nn.Sequential(convt_ext.ConvTranspose2d(4, 6, 3, epilogue=[(torch.mul, 2.0)]), nn.ReLU()).eval()
    with torch.no_grad():
        ours(x, weight, epilogue=entries)
        convt_ext.ConvTranspose2d(4, 6, 3, epilogue=entries)(x)
        convt_ext.convert(model, fuse=True)(x)
    assert seen == [False] * 3

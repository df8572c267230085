"""functional.py on the CPU: PyTorch's results and PyTorch's errors, for any precision."""

from __future__ import annotations

import inspect

import bad_input
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cases import each_case, named
from cpu_kernels import RAN, cpu_is_gpu  # noqa: F401
from pretend_gpu import pretend_gpu  # noqa: F401
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

import convt_ext
from convt_ext import conv_transpose2d as ours
from convt_ext import explain, ops


def test_signature_is_pytorchs_and_four_keywords():
    names = list(inspect.signature(ours).parameters)
    assert names == ["input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation",
                     "precision", "backend", "residual", "activation"]  # fmt: skip
    for name in ("precision", "backend", "residual", "activation"):
        assert inspect.signature(ours).parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
    defaults = [parameter.default for parameter in inspect.signature(ours).parameters.values()]
    assert defaults[2:] == [None, 1, 0, 0, 1, 1, None, None, None, None]


@each_case()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_cpu_gives_pytorchs_bits(case, dtype):
    x, weight, bias = case.tensors(dtype)
    theirs = F.conv_transpose2d(x, weight, bias, **case.arguments)
    mine = ours(x, weight, bias, **case.arguments)
    assert torch.equal(mine, theirs)
    assert mine.stride() == theirs.stride()


@pytest.mark.parametrize("word", ["exact", "aten", "tf32x3", "tf32"])
def test_cpu_gives_pytorchs_result_for_every_precision(word):
    x, weight, bias = named("k4s2p1").tensors(torch.float64)
    theirs = F.conv_transpose2d(x, weight, bias, 2, 1)
    assert torch.equal(ours(x, weight, bias, 2, 1, precision=word), theirs)
    with convt_ext.use_precision(word):
        assert torch.equal(ours(x, weight, bias, 2, 1), theirs)


@bad_input.each_bad_input()
@pytest.mark.parametrize("precision", [None, "exact"])
def test_errors_are_pytorchs(row, precision):
    arguments = bad_input.arguments(row, "cpu")
    theirs = bad_input.outcome(F.conv_transpose2d, *arguments)
    mine = bad_input.outcome(ours, *arguments, precision=precision)
    if isinstance(theirs, torch.Tensor):
        assert torch.equal(mine, theirs)
    else:
        assert mine == theirs


@pytest.mark.parametrize("which", [0, 1, 2], ids=["input", "weight", "bias"])
@pytest.mark.parametrize("precision", [None, "exact"])
def test_a_sparse_operand_is_pytorchs_error(which, precision, cpu_is_gpu):  # noqa: F811
    """Also on a GPU, with tensors that the kernels would support if they were strided."""
    operands = list(named("plain").tensors())
    assert ours(*operands, precision=precision).shape == (2, 6, 7, 8)
    operands[which] = operands[which].to_sparse()
    theirs = bad_input.outcome(F.conv_transpose2d, *operands)
    assert isinstance(theirs, tuple)
    assert "sparse" in theirs[1]
    assert bad_input.outcome(ours, *operands, precision=precision) == theirs
    assert RAN == ["forward"]


@pytest.mark.parametrize("which", [0, 1, 2], ids=["input", "weight", "bias"])
@pytest.mark.parametrize("precision", [None, "exact"])
@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_operand_is_pytorchs_error(which, precision, dims, cpu_is_gpu):  # noqa: F811
    """Tests the strided nested layout, a plain Tensor without sizes; `torch.jagged` is a subclass."""
    operands = list(named("plain").tensors())
    operands[which] = torch.nested.nested_tensor([torch.randn([4] * dims), torch.randn([4] * (dims - 1) + [5])])
    theirs = bad_input.outcome(F.conv_transpose2d, *operands)
    assert isinstance(theirs, tuple)
    assert bad_input.outcome(ours, *operands, precision=precision) == theirs
    assert RAN == []
    found = explain(*operands, precision=precision)
    assert (found.served_by, found.reason) == ("torch", "a tensor is nested")
    assert "nested" in str(found)


@pytest.mark.parametrize("row", bad_input.WORDS)
def test_rows_of_the_table_say_what_they_are_there_for(row):
    kind, words = bad_input.outcome(F.conv_transpose2d, *bad_input.arguments(row, "cpu"))
    assert issubclass(kind, Exception)
    assert bad_input.WORDS[row] in words


@pytest.mark.parametrize(
    "stride",
    [2, (2,), (2, 2), [2, 2], torch.Size([2, 2]), torch.tensor(2), np.int64(2)],
    ids=lambda v: type(v).__name__,
)
def test_forms(stride):
    x, weight, bias = named("plain").tensors()
    assert torch.equal(ours(x, weight, bias, stride), F.conv_transpose2d(x, weight, bias, 2))


def test_unbatched_complex_and_empty():
    x, weight, bias = named("plain").tensors()
    assert torch.equal(ours(x[0], weight, bias, 2), F.conv_transpose2d(x[0], weight, bias, 2))
    assert ours(x[:0], weight, bias, 2).shape == (0, 6, 11, 13)
    complex_x, complex_weight = x.to(torch.complex64), weight.to(torch.complex64)
    assert torch.equal(ours(complex_x, complex_weight), F.conv_transpose2d(complex_x, complex_weight))


def test_meta_tensors():
    x, weight = torch.empty(2, 4, 5, 6, device="meta"), torch.empty(4, 6, 3, 3, device="meta")
    result = ours(x, weight, stride=2, precision="exact")
    assert result.is_meta
    assert result.shape == (2, 6, 11, 13)


def test_subclasses_keep_their_meaning():
    class Marked(torch.Tensor):
        pass

    x, weight, bias = named("plain").tensors()
    result = ours(x.as_subclass(Marked), weight, bias)
    assert type(result) is Marked


def test_torch_function_gets_pytorchs_function():
    seen = []

    class Recorder(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Recorder():
        ours(*named("plain").tensors())
    assert F.conv_transpose2d in seen


def test_autograd_and_transforms_on_the_cpu():
    x, weight, bias = named("k4s2p1").tensors(torch.float64)
    inputs = [tensor.clone().requires_grad_() for tensor in (x, weight, bias)]
    grads = torch.autograd.grad(ours(*inputs, 2, 1, precision="exact").sum(), inputs)
    theirs = torch.autograd.grad(F.conv_transpose2d(*inputs, 2, 1).sum(), inputs)
    assert all(torch.equal(a, b) for a, b in zip(grads, theirs, strict=True))
    batched = torch.func.vmap(lambda one: ours(one, weight, bias, 2, 1))(x)
    assert torch.allclose(batched, ours(x, weight, bias, 2, 1))


@pytest.mark.parametrize("precision", [None, "exact"])
def test_traces_in_one_graph(precision):
    x, weight, bias = named("k4s2p1").tensors()
    call = torch.compile(lambda *tensors: ours(*tensors, 2, 1, precision=precision), backend="eager", fullgraph=True)
    assert torch.equal(call(x, weight, bias), F.conv_transpose2d(x, weight, bias, 2, 1))
    with convt_ext.use_precision("exact"):
        assert torch.equal(call(x, weight, bias), F.conv_transpose2d(x, weight, bias, 2, 1))


def test_exports():
    class Up(torch.nn.Module):
        def forward(self, x, weight):
            return ours(x, weight, stride=2)

    x, weight, _ = named("plain").tensors()
    program = torch.export.export(Up(), (x, weight))
    assert torch.equal(program.module()(x, weight), F.conv_transpose2d(x, weight, stride=2))


def test_explicit_precision_where_our_kernels_cannot_serve(pretend_gpu):  # noqa: F811
    x, weight = torch.ones(2, 4, 5, 6, device="cuda"), torch.ones(4, 6, 3, 3, device="cuda")
    with forward_ad.dual_level():
        with pytest.raises(RuntimeError, match=r"forward-mode.*dual level.*precision=None"):
            ours(x, weight, precision="exact")
        with pytest.raises(RuntimeError, match="forward-mode"), convt_ext.use_precision("aten"):
            ours(x, weight)


@pytest.mark.skipif(ops.forward is None, reason="the binary is not installed")
@each_case()
@pytest.mark.parametrize("unbatched", [False, True])
def test_op_gets_what_it_needs(case, unbatched, pretend_gpu):  # noqa: F811
    """The whole way to the op and back, with its fake kernel."""
    x = torch.empty(case.n, case.c_in, case.h, case.w, device="cuda")
    weight = torch.empty(case.c_in, case.c_out // case.g, *case.k, device="cuda")
    bias = torch.empty(case.c_out, device="cuda") if case.bias else None
    result = ours(x.select(0, 0) if unbatched else x, weight, bias, **case.arguments, precision="exact")
    assert result.device.type == "cuda"
    assert tuple(result.shape) == case.output_size[1 if unbatched else 0 :]

"""functional.py on the CPU: PyTorch's results and errors for any precision, and messages of the logger."""

from __future__ import annotations

import inspect
import logging

import bad_input
import pytest
import torch
import torch.nn.functional as F
from cases import each_case, named
from cpu_kernels import RAN
from torch.autograd import forward_ad

import convt_ext
from convt_ext import conv_transpose2d, explain, functional
from convt_ext import conv_transpose2d as ours


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


def nested(*size):
    """The strided nested layout, a plain Tensor without sizes; `torch.jagged` is a subclass."""
    return torch.nested.nested_tensor([torch.randn(*size, 4), torch.randn(*size, 5)])


@pytest.mark.parametrize("which", [0, 1, 2], ids=["input", "weight", "bias"])
@pytest.mark.parametrize("precision", [None, "exact"])
@pytest.mark.parametrize(
    ("make", "word"),
    [(torch.Tensor.to_sparse, "not strided"), (lambda _: nested(4), "nested"), (lambda _: nested(4, 4), "nested")],
    ids=["sparse", "nested_2d", "nested_3d"],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_sparse_or_nested_operand_is_pytorchs_error(which, precision, make, word, cpu_is_gpu):
    """Also on a GPU, with tensors that the kernels would support if they were strided."""
    operands = list(named("plain").tensors())
    assert ours(*operands, precision=precision).shape == (2, 6, 7, 8)
    operands[which] = make(operands[which])
    theirs = bad_input.outcome(F.conv_transpose2d, *operands)
    assert isinstance(theirs, tuple)
    assert bad_input.outcome(ours, *operands, precision=precision) == theirs
    assert RAN == ["forward"]
    found = explain(*operands, precision=precision)
    assert (found.served_by, found.reason) == ("torch", f"a tensor is {word}")
    assert word in str(found)


@pytest.mark.parametrize("row", bad_input.WORDS)
def test_rows_of_the_table_say_what_they_are_there_for(row):
    kind, words = bad_input.outcome(F.conv_transpose2d, *bad_input.arguments(row, "cpu"))
    assert issubclass(kind, Exception)
    assert bad_input.WORDS[row] in words


def test_empty_and_batched_by_vmap():
    x, weight, bias = named("k4s2p1").tensors()
    assert ours(x[:0], weight, bias, 2, 1).shape == (0, 6, 10, 12)
    batched = torch.func.vmap(lambda one: ours(one, weight, bias, 2, 1))(x)
    assert torch.allclose(batched, ours(x, weight, bias, 2, 1))


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


def test_explicit_precision_where_our_kernels_cannot_serve(pretend_gpu):
    x, weight = torch.ones(2, 4, 5, 6, device="cuda"), torch.ones(4, 6, 3, 3, device="cuda")
    with forward_ad.dual_level():
        with pytest.raises(RuntimeError, match=r"forward-mode.*dual level.*precision=None"):
            ours(x, weight, precision="exact")
        with pytest.raises(RuntimeError, match="forward-mode"), convt_ext.use_precision("aten"):
            ours(x, weight)


# ---- the logger "convt_ext": fallbacks at INFO, choices at DEBUG, once for each shape


@pytest.fixture
def logged(caplog, monkeypatch):
    """Returns the messages of a level since the last call."""
    monkeypatch.setattr(functional, "_told", set())
    caplog.set_level(logging.DEBUG, "convt_ext")

    def since(level):
        messages = [record.getMessage() for record in caplog.records if record.levelno == level]
        caplog.clear()
        return messages

    return since


def test_fallbacks(logged):
    x, weight = torch.ones(1, 2, 3, 4), torch.ones(2, 1, 1, 1)
    for _ in range(3):
        conv_transpose2d(x, weight)
    assert logged(logging.INFO) == ["PyTorch's operator computes an input of 1x2x3x4: the input is not on a CUDA GPU"]
    conv_transpose2d(x[:, :, :1], weight)
    with pytest.raises(TypeError):
        conv_transpose2d("x", weight)
    assert [message.split(":")[0].split()[-1] for message in logged(logging.INFO)] == ["1x2x1x4", "tensor"]


def test_choices(logged, cpu_is_gpu):
    x, weight = torch.ones(1, 2, 3, 5, requires_grad=True), torch.ones(2, 1, 1, 1, requires_grad=True)
    for _ in range(3):
        conv_transpose2d(x, weight).sum().backward()
    messages = logged(logging.DEBUG)
    starts = [
        f"{name} of 1x2x3x5 * 2x1x1x1: " for name in ("forward", "gradient of the input", "gradient of the weight")
    ]
    assert sorted(message[: len(start)] for message, start in zip(messages, starts, strict=True)) == sorted(starts)
    assert all("convt_ext, estimated" in message for message in messages)
    assert logged(logging.INFO) == []


def test_nothing_is_made_ready_for_a_logger_that_is_off(monkeypatch):
    monkeypatch.setattr(functional, "_log_once", None)
    logging.getLogger("convt_ext").setLevel(logging.WARNING)
    try:
        conv_transpose2d(torch.ones(1, 2, 3, 4), torch.ones(2, 1, 1, 1))
    finally:
        logging.getLogger("convt_ext").setLevel(logging.NOTSET)

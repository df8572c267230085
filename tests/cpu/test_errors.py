"""Failures inside an op: exceptions with PyTorch's types and messages, and PyTorch's operator as a fallback."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from cpu_kernels import RAN, needs_binary
from served import cuda_autocast

import convt_ext
from convt_ext.dispatch import directions, ops, routing

WORDS = "CUDA out of memory. Tried to allocate 4.00 GiB (4294967296 bytes on GPU 1, by convt_ext)"


class Op:
    """An op that fails with these words before it succeeds."""

    def __init__(self, *failures: str) -> None:
        self.failures = list(failures)

    def _op(self, *args, **kwargs):
        if self.failures:
            raise RuntimeError(self.failures.pop(0))
        return args, kwargs


def no_memory(*args, **kwargs):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 4.00 GiB. GPU 1 has a total capacity of ...")


def test_missing_memory_is_pytorchs_own_error(monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "empty", lambda *args, **kwargs: asked.append((args, kwargs)) or no_memory())
    op = ops._raises_as_torch(Op(WORDS))
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 4.00 GiB. GPU 1 has"):
        op._op(1)
    assert asked == [((4294967296,), {"dtype": torch.uint8, "device": torch.device("cuda", 1)})]


def test_only_the_failed_allocation_is_reported(monkeypatch):
    """Another thread's capture makes allocations fail too, and a message about short memory would mislead then."""

    def refused(*args, **kwargs):
        raise torch.AcceleratorError("CUDA error: operation not permitted when stream is capturing", 900)

    monkeypatch.setattr(torch, "empty", refused)
    with pytest.raises(torch.AcceleratorError, match="stream is capturing") as caught:
        ops._raises_as_torch(Op(WORDS))._op()
    assert caught.value.__context__ is None


def test_memory_that_is_there_by_now_is_taken_unless_others_take_it_again(monkeypatch):
    monkeypatch.setattr(torch, "empty", lambda *args, **kwargs: None)
    assert ops._raises_as_torch(Op(WORDS))._op(1, a=2) == ((1,), {"a": 2})
    with pytest.raises(torch.OutOfMemoryError, match=r"CUDA out of memory\. Tried to allocate 4\.00 GiB"):
        ops._raises_as_torch(Op(WORDS, WORDS))._op()
    with pytest.raises(RuntimeError, match="groups must divide"):
        ops._raises_as_torch(Op(WORDS, "convt_ext: groups must divide"))._op()


def test_pytorch_reports_the_error_of_an_earlier_kernel(monkeypatch):
    def synchronize():
        raise torch.AcceleratorError("CUDA error: device-side assert triggered", 710)

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    with pytest.raises(torch.AcceleratorError, match="device-side assert"):
        ops._raises_as_torch(Op("CUDA error: device-side assert triggered. A kernel that ran before"))._op()


def test_other_errors_stay_as_they_are():
    for words in ("convt_ext: stride[0] must be positive, got 0", "out of memory somewhere"):
        with pytest.raises(RuntimeError, match=re.escape(words)) as caught:
            ops._raises_as_torch(Op(words))._op()
        assert type(caught.value) is RuntimeError


@needs_binary
def test_every_op_that_computes_is_wrapped():
    for op in (ops.forward, ops.grad_input, ops.grad_weight, ops.grad_bias):
        assert op._op.__qualname__.startswith("_raising")
    for run in (ops.run_forward, ops.run_forward_packed, ops.run_gradients, ops.run_recorded):
        assert run.__qualname__.startswith("_raising")


@needs_binary
def test_no_op_returns_a_string():
    """PyTorch leaks the strings that ops of its stable ABI return."""
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("convt_ext::")]
    tensors = [], ["Tensor"], ["Tensor"] * 2, ["Optional[Tensor]"] * 3, ["Optional[Tensor]"] * 4
    results = *tensors, ["int"], ["List[int]"]
    assert len(names) > 10
    for name in names:
        schema = getattr(torch.ops.convt_ext, name.removeprefix("convt_ext::").split(".")[0]).default._schema
        assert [str(result.type) for result in schema.returns] in results, schema


@pytest.mark.parametrize("light_bytes", [0, 1 << 20], ids=["by_python", "by_torch"])
@pytest.mark.parametrize("failing", ["forward", "grad_input", "grad_weight"])
def test_by_default_pytorchs_operator_runs_last(cpu_is_gpu, monkeypatch, failing, light_bytes):
    """If memory is too short for all gradients at once, they are computed one by one."""
    real = ops.run_gradients

    def one_by_one(*arguments):
        if arguments[-1] not in (1, 2) or ("grad_input", "grad_weight")[arguments[-1] - 1] == failing:
            no_memory()
        return real(*arguments)

    monkeypatch.setattr(ops, "run_gradients", one_by_one)
    monkeypatch.setattr(routing, "_LIGHT_BYTES", light_bytes)
    routing.forget()
    if failing == "forward":
        monkeypatch.setattr(ops, "run_forward", no_memory)
        monkeypatch.setattr(ops, "run_recorded", no_memory)
    x, weight = (torch.randn(size, requires_grad=True) for size in ((2, 4, 5, 6), (4, 6, 3, 3)))
    result = convt_ext.conv_transpose2d(x, weight, stride=2)
    grad_output = torch.randn_like(result)
    expected = F.conv_transpose2d(x, weight, stride=2)
    torch.testing.assert_close(result, expected)
    found = torch.autograd.grad(result, (x, weight), grad_output)
    torch.testing.assert_close(found, torch.autograd.grad(expected, (x, weight), grad_output))
    # Where the forward pass is PyTorch's own, so is the backward of a call that its node was to record.
    ours = set() if failing == "forward" and light_bytes else {"forward", "grad_input", "grad_weight"} - {failing}
    assert sorted(RAN) == sorted(ours)


@pytest.mark.parametrize(
    ("failing", "light_bytes"), [("run_forward", 0), ("run_gradients", 0), ("run_recorded", routing._LIGHT_BYTES)]
)
def test_with_an_explicit_precision_the_error_reaches_the_user(cpu_is_gpu, monkeypatch, failing, light_bytes):
    monkeypatch.setattr(routing, "_LIGHT_BYTES", light_bytes)
    routing.forget()
    monkeypatch.setattr(ops, failing, no_memory)
    x, weight = (torch.randn(size, requires_grad=True) for size in ((2, 4, 5, 6), (4, 6, 3, 3)))
    with pytest.raises(torch.OutOfMemoryError, match=r"CUDA out of memory\. Tried to allocate"):
        convt_ext.conv_transpose2d(x, weight, stride=2, precision="exact").sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
def test_pytorchs_operator_keeps_the_dtype_of_the_call_under_autocast(pretend_gpu, dtype):
    """Autocast has already cast the operands of the op."""
    x, weight, bias = (torch.empty(size, device="cuda", dtype=dtype) for size in ((2, 4, 5, 6), (4, 6, 3, 3), (6,)))
    arguments = ((2, 2), (0, 0), (0, 0), 1, (1, 1))
    with cuda_autocast(torch.bfloat16):
        result = directions.torch_forward(x, weight, bias, arguments)
        grad_input, grad_weight, _ = directions.torch_gradients(result, x, weight, arguments, [True, True, False])
        lowered = F.conv_transpose2d(x, weight, bias, stride=2).dtype
    assert result.dtype is grad_input.dtype is grad_weight.dtype is dtype
    assert lowered is (dtype if dtype is torch.float64 else torch.bfloat16)  # that of a user's call

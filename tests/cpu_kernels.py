"""The compiled ops on the CPU, computed by PyTorch: the Python code around them runs with real numbers and no GPU.

Importing this registers them, for float tensors of any dtype, with results in the requested memory format. The
fixture `cpu_is_gpu` makes routing treat CPU tensors as tensors on an H200 with a matching binary, without known times
of PyTorch. A test imports it with `from cpu_kernels import cpu_is_gpu`.
"""

from __future__ import annotations

import pytest
import torch
from served import allow_tf32

from convt_ext.dispatch import geometry, ops, planner, routing
from convt_ext.environment import _extension, _torch
from convt_ext.epilogue import steps as epilogue

needs_binary = pytest.mark.skipif(ops.forward is None, reason="the binary is not installed")

# Ops that a test ran, by name, in order, and the precisions of those that have one; tests/cpu/conftest.py clears both
# before each.
RAN: list[str] = []
CODES: list[int] = []

# The masks of the gradients that PyTorch computed for an op of convt_ext.
MASKS: list[list[bool]] = []


def _formatted(tensor: torch.Tensor, channels_last: bool) -> torch.Tensor:
    return tensor.contiguous(memory_format=geometry.memory_format(channels_last, tensor.dim() - 2))


def _forward(
    input, weight, bias, stride, padding, output_padding, groups, dilation, precision, channels_last, candidate=0
):
    RAN.append("forward")
    CODES.append(precision)
    call = input, weight, bias, stride, padding, output_padding, groups, dilation
    return _formatted(_torch.CONV_TRANSPOSE[input.dim() - 2](*call), channels_last)


def _run_forward_packed(input, weight, bias, call, packed, is_packed, operations, numbers, tensors):
    """Computes with the content of `packed`."""
    packed = packed[: weight.nbytes]  # a copy may be larger
    if not is_packed:
        packed.copy_(weight.detach().contiguous().flatten().view(torch.uint8))
    weight = packed.view(weight.dtype).view(weight.shape)
    result = _run_forward_then(input, weight, bias, call, operations, numbers, tensors)
    RAN[RAN.index("forward")] = "forward_packed" if is_packed else "forward_packing"
    return result


def _gradients(grad_output, input, weight, arguments, output_mask):
    stride, padding, output_padding, groups, dilation = arguments[:5]
    return torch.ops.aten.convolution_backward(
        grad_output, input, weight, None, stride, padding, dilation, True, output_padding, groups, output_mask
    )


def _grad_input(grad_output, weight, *arguments):
    RAN.append("grad_input")
    CODES.append(arguments[5])
    size = ops.fake_grad_input(grad_output.to("meta"), weight.to("meta"), *arguments).shape
    result = _gradients(grad_output, grad_output.new_zeros(size), weight, arguments, [True, False, False])[0]
    return _formatted(result, arguments[6])


def _grad_weight(grad_output, input, *arguments):
    RAN.append("grad_weight")
    CODES.append(arguments[5])
    size = ops.fake_grad_weight(grad_output.to("meta"), input.to("meta"), *arguments).shape
    result = _gradients(grad_output, input, input.new_zeros(size), arguments, [False, True, False])[1]
    return _formatted(result, arguments[6])


def _grad_bias(grad_output):
    RAN.append("grad_bias")
    return grad_output.sum((0, *range(2, grad_output.dim())))


def _run_forward(input, weight, bias, call):
    """Does what kernels/binding/eager.cpp does, as do the next four functions."""
    *arguments, channels_last = ops.arguments_of(call)
    if _by_torch(call) & 1:
        return _torch.CONV_TRANSPOSE[input.dim() - 2](input, weight, bias, *arguments[:5])
    return _forward(input, weight, bias, *arguments, channels_last)


def _run_forward_then(input, weight, bias, call, operations, numbers, tensors):
    result = _run_forward(input, weight, bias, call)
    if not operations:
        return result
    RAN.append("steps")
    return epilogue.apply_steps(result, epilogue.steps_in(operations, numbers, tensors))


def _finish(result, exact, operations, numbers, tensors):
    RAN.append("finish")
    result.copy_(epilogue.apply_steps(result, epilogue.steps_in(operations, numbers, tensors)))


def _run_gradients(grad_output, input, weight, call, needs_grad_mask):
    theirs = _by_torch(call) >> 1 & needs_grad_mask & 3
    by = _grad_input, _grad_weight, _grad_bias
    found = ops.one_by_one(by, grad_output, input, weight, call, needs_grad_mask & ~theirs)
    if theirs == 0:
        return found
    mask = [bool(theirs & 1), bool(theirs & 2), False]
    MASKS.append(mask)
    of_torch = _gradients(grad_output, input, weight, ops.arguments_of(call), mask)
    return (*(of_torch[i] if mask[i] else found[i] for i in (0, 1)), found[2])


def _by_torch(call):
    return ops.remembered(call)[-2]


def _recorded_forward(input, weight, bias, stride, padding, dilation, transposed, output_padding, call):
    assert (stride, padding, dilation, transposed, output_padding) == ([], [], [], True, [])
    return _run_forward(input, weight, bias, call)


def _recorded_gradients(grad_output, input, weight, stride, padding, dilation, transposed, output_padding, call, mask):
    needs_grad_mask = mask[0] + 2 * mask[1] + 4 * mask[2]
    if not torch.is_grad_enabled() and torch._VF._unpack_dual(grad_output, 0)[1] is None:
        try:
            return ops.run_gradients(grad_output, input, weight, call, needs_grad_mask)
        except RuntimeError:
            pass
    *found, words = torch.ops.convt_ext._gradients_again(grad_output, input, weight, call, needs_grad_mask)
    if words is not None:
        raise RuntimeError(bytes(words.tolist()).decode())
    return tuple(found)


_library = torch.library.Library("convt_ext", "IMPL")
if ops.forward is not None:
    _aten = torch.library.Library("aten", "IMPL")
    _aten.impl("convolution_overrideable", _recorded_forward, "CPU")
    _aten.impl("convolution_backward_overrideable", _recorded_gradients, "AutogradCPU")
    _library.impl("_forward", _run_forward, "CPU")
    _library.impl("_forward_then", _run_forward_then, "CPU")
    _library.impl("_forward_packed", _run_forward_packed, "CPU")
    _library.impl("_finish", _finish, "CPU")
    _library.impl("_gradients", _run_gradients, "CPU")
    for _name, _function in (
        ("forward", _forward), ("grad_input", _grad_input), ("grad_weight", _grad_weight), ("grad_bias", _grad_bias),
    ):  # fmt: skip
        _library.impl(_name, _function, "CPU")


def pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes routing treat CPU tensors as tensors on an H200."""
    monkeypatch.setattr(routing, "DEVICE_TYPE", "cpu")
    monkeypatch.setattr(routing, "on_gpu", lambda tensor: tensor.device.type == "cpu")
    monkeypatch.setattr(planner, "device_numbers", lambda index: planner.H200)
    monkeypatch.setattr(planner, "best_plan", lambda *arguments, **named: planner.BestPlan(1.0, 0.0, 0))
    monkeypatch.setattr(_extension, "unsupported_reason", lambda index: None)
    routing.forget()


@pytest.fixture
def cpu_is_gpu(monkeypatch):
    """Inside, CPU tensors are dispatched like tensors on an H200, with TF32 off; `RAN` lists the ops that ran."""
    if ops.forward is None:
        pytest.skip("the binary is not installed")
    pretend(monkeypatch)
    with allow_tf32(False):
        yield RAN
    routing.forget()
    torch._dynamo.reset()
